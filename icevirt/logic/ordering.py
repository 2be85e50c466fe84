"""In which order files are concatenated: by the coordinate's values, else in the order given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import CombineError
from icevirt.model.strings import Strings


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
    urls: Sequence[str] | Strings,
    labels: Sequence[NDArray[np.generic]] | None,
    *,
    dimension: str,
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
    urls: Sequence[str] | Strings, labels: Sequence[NDArray[np.generic]], dimension: str
) -> NDArray[np.int64]:
    lengths = np.fromiter(map(len, labels), np.int64, len(labels))
    filled, empty = np.flatnonzero(lengths), np.flatnonzero(lengths == 0)
    if not len(filled):
        return empty
    flat: NDArray[Any] = np.concatenate(labels)
    starts = (np.cumsum(lengths) - lengths)[filled]
    if flat.dtype.kind == "f" and bool(np.isnan(flat).any()):
        row = int(np.searchsorted(starts, int(np.argmax(np.isnan(flat))), side="right")) - 1
        raise CombineError(
            "a coordinate that orders files holds NaN",
            do="Leave the file out, or repair it.",
            file=urls[int(filled[row])],
            dimension=dimension,
        )
    low, high = np.minimum.reduceat(flat, starts), np.maximum.reduceat(flat, starts)
    order = np.lexsort((high, low))
    if falling := _falling(flat, starts):
        order = order[::-1]
    before, after = (order[1:], order[:-1]) if falling else (order[:-1], order[1:])
    overlap = ~(high[before] < low[after])
    if overlap.any():
        at = int(np.argmax(overlap))
        one, other = int(order[at]), int(order[at + 1])
        raise CombineError(
            f"two files overlap along {dimension!r}",
            do="Leave one of them out; if it is the same steps twice, say which one counts"
            ' with duplicates="newest" or "version".',
            first=urls[int(filled[one])],
            first_range=(low[one].item(), high[one].item()),
            second=urls[int(filled[other])],
            second_range=(low[other].item(), high[other].item()),
        )
    return np.concatenate([filled[order], empty])


def _falling(flat: NDArray[Any], starts: NDArray[np.int64]) -> bool:
    """Say whether the files count down: every file with more than one label does."""
    falls = flat[1:] < flat[:-1]
    inside = np.ones(len(falls), np.bool_)
    inside[starts[1:] - 1] = False
    return bool(inside.any()) and bool(falls[inside].all())
