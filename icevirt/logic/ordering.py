"""In which order files are concatenated: by the coordinate's values, else in the order given."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import CombineError


def decoded(raw: NDArray[np.generic], attributes: Mapping[str, object]) -> NDArray[np.generic]:
    """Return labels as numbers in their order: unsigned where the file says so, and scaled.

    An offset moves all of them alike and is left out.
    """
    told = str(attributes.get("_Unsigned", "")).lower()
    if told in ("true", "false") and raw.dtype.kind in "iu":
        kind = "u" if told == "true" else "i"
        raw = raw.view(np.dtype(f"{raw.dtype.byteorder}{kind}{raw.dtype.itemsize}"))
    scale = attributes.get("scale_factor")
    if isinstance(scale, int | float) and scale != 1:
        return raw.astype(np.float64) * scale
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The rows of the files in concatenation order, and why."""

    rows: NDArray[np.int64]
    reason: str
    by_labels: bool = False


def order_files(
    urls: Sequence[str], labels: Sequence[NDArray[np.generic]] | None, *, dimension: str
) -> Order:
    """Order files by their labels along ``dimension``; where these say nothing, keep the order.

    Args:
        urls: Of the files, in the order given.
        labels: The raw values of the coordinate in each file, or None where there is no such
            coordinate (or it holds no numbers).
        dimension: Its name.

    Raises:
        CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
    """
    as_given = np.arange(len(urls))
    if labels is None:
        return Order(
            rows=as_given, reason=f"in the order given: no numeric coordinate {dimension!r}"
        )
    filled = [row for row in range(len(urls)) if len(labels[row])]
    if len(filled) > 1 and _constant([labels[row] for row in filled]):
        return Order(
            rows=as_given,
            reason=f"in the order given: coordinate {dimension!r} holds one and the same value"
            f" ({labels[filled[0]][0]}) in every file",
        )
    return Order(
        rows=_by_labels(urls, labels, dimension),
        reason=f"ordered by the values of {dimension!r}",
        by_labels=True,
    )


def _constant(labels: Sequence[NDArray[np.generic]]) -> bool:
    first = labels[0][:1]
    return all(len(each) == 1 and np.array_equal(each, first) for each in labels)


def _by_labels(
    urls: Sequence[str], labels: Sequence[NDArray[np.generic]], dimension: str
) -> NDArray[np.int64]:
    for row, held in enumerate(labels):
        if held.dtype.kind == "f" and bool(np.isnan(held).any()):
            raise CombineError(
                "a coordinate that orders files holds NaN",
                do="Leave the file out, or repair it.",
                file=urls[row],
                dimension=dimension,
            )
    falling = _falling(labels)
    filled = [row for row in range(len(urls)) if len(labels[row])]
    ends = {row: (labels[row].min().item(), labels[row].max().item()) for row in filled}
    filled.sort(key=lambda row: ends[row], reverse=falling)
    for one, other in itertools.pairwise(filled):
        low, high = (other, one) if falling else (one, other)
        if not ends[low][1] < ends[high][0]:
            raise CombineError(
                f"two files overlap along {dimension!r}",
                do="Leave one of them out; if it is the same steps twice, say which one counts"
                ' with duplicates="newest" or "version".',
                first=urls[one],
                first_range=ends[one],
                second=urls[other],
                second_range=ends[other],
            )
    empty = [row for row in range(len(urls)) if not len(labels[row])]
    return np.array([*filled, *empty], np.int64)


def _falling(labels: Sequence[NDArray[np.generic]]) -> bool:
    """Say whether the files count down: every file with more than one label does."""
    longer = [each for each in labels if len(each) > 1]
    return bool(longer) and all(
        bool(np.all(each[1:] < each[:-1]))  # type: ignore[operator]  # labels are numbers here
        for each in longer
    )
