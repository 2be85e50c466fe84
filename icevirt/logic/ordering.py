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


def decoding(attributes: Mapping[str, object]) -> tuple[str, object]:
    """Return what `decoded` looks at, so that labels of equal ones decode alike."""
    return str(attributes.get("_Unsigned", "")).lower(), repr(attributes.get("scale_factor"))


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Values of many files end to end, some of each."""

    flat: NDArray[Any]
    starts: NDArray[np.int64]  # (files + 1,) those of a file are flat[starts[n]:starts[n + 1]]
    kind: NDArray[np.int32]  # (files,) a number of the data type that a file has them in

    @classmethod
    def spread(
        cls, pieces: Sequence[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]], count: int
    ) -> Runs:
        """Make the column of pieces: which of ``count`` files each tells of, values, starts."""
        if len(pieces) == 1 and len(pieces[0][0]) == count:
            return cls(pieces[0][1], pieces[0][2], np.zeros(count, np.int32))
        lengths, kind = np.zeros(count, np.int64), np.zeros(count, np.int32)
        kinds: dict[str, int] = {}
        for of, values, starts in pieces:
            lengths[of] = np.diff(starts)
            kind[of] = kinds.setdefault(values.dtype.str, len(kinds))
        starts = np.cumsum([0, *lengths.tolist()])
        flat = np.empty(int(starts[-1]), np.result_type(*(values for _, values, _ in pieces)))
        for of, values, own in pieces:
            size = np.diff(own)
            flat[np.arange(len(values)) + np.repeat(starts[of] - own[:-1], size)] = values
        return cls(flat, starts, kind)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many values each file has."""
        return np.diff(self.starts)

    def take(self, rows: NDArray[np.integer]) -> Runs:
        """Return those of some files, in the order given."""
        size = self.lengths[rows]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
        at = np.arange(int(starts[-1])) + np.repeat(self.starts[rows] - starts[:-1], size)
        return Runs(self.flat[at], starts, self.kind[rows])

    def numbers(self) -> NDArray[np.int64]:
        """Number equal ones alike, by first appearance; an empty one is like no other."""
        one_each = len(self.flat) == len(self) and bool((self.lengths == 1).all())
        if one_each and self.flat.itemsize <= 8 and not self.kind.any():
            values = self.flat.view(f"u{self.flat.itemsize}")
            _, first, number = np.unique(values, return_index=True, return_inverse=True)
            rank = np.empty(len(first), np.int64)
            rank[np.argsort(first)] = np.arange(len(first))
            return rank[number]
        known: dict[object, int] = {}
        ends = self.starts.tolist()
        keys = (
            (kind, self.flat[ends[at] : ends[at + 1]].tobytes() or at)
            for at, kind in enumerate(self.kind.tolist())
        )
        return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The rows of the files in concatenation order, and why."""

    rows: NDArray[np.int64]
    reason: str
    by_labels: bool = False


def order_files(urls: Sequence[str] | Strings, labels: Runs | None, *, dimension: str) -> Order:
    """Order files by their labels along ``dimension``; where these say nothing, keep the order.

    Args:
        urls: Of the files, in the order given.
        labels: The values of the coordinate in each file, or None where there is no such
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
    if _constant(labels):
        return Order(
            rows=as_given,
            reason=f"in the order given: coordinate {dimension!r} holds one and the same value"
            f" ({labels.flat[0]}) in every file",
        )
    return Order(
        rows=_by_labels(urls, labels, dimension),
        reason=f"ordered by the values of {dimension!r}",
        by_labels=True,
    )


def _constant(labels: Runs) -> bool:
    """Say whether several files have a label, and it is one and the same."""
    filled = int((labels.lengths > 0).sum())
    return filled > 1 and len(labels.flat) == filled and bool((labels.flat == labels.flat[0]).all())


def _by_labels(urls: Sequence[str] | Strings, labels: Runs, dimension: str) -> NDArray[np.int64]:
    lengths, flat = labels.lengths, labels.flat
    filled, empty = np.flatnonzero(lengths), np.flatnonzero(lengths == 0)
    if not len(filled):
        return empty
    starts = labels.starts[:-1][filled]
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
