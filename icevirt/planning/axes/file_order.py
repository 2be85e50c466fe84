"""Order files for concatenation: by their labels, else in the order given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import CombineError, Fix, OverlapError
from icevirt.model.indices import are_all
from icevirt.model.strings import Strings
from icevirt.planning.remedies import fix


def decoded(raw: NDArray[np.generic], attributes: Mapping[str, object]) -> NDArray[np.generic]:
    """Return labels as numbers in their order: unsigned where the file says so, and scaled.

    An offset moves all of them by the same amount and is left out.
    """
    unsigned = str(attributes.get("_Unsigned", "")).lower()
    if unsigned in ("true", "false") and raw.dtype.kind in "iu":
        kind = "u" if unsigned == "true" else "i"
        raw = raw.view(np.dtype(f"{raw.dtype.byteorder}{kind}{raw.dtype.itemsize}"))
    scale = attributes.get("scale_factor")
    if isinstance(scale, int | float) and scale != 1:
        return raw.astype(np.float64) * scale
    return raw


def decoding(attributes: Mapping[str, object]) -> tuple[str, ...]:
    """Return what says how labels decode and which are missing, alike where these are."""
    names = ("scale_factor", "add_offset", "_FillValue", "missing_value")
    unsigned = str(attributes.get("_Unsigned", "")).lower()
    return unsigned, *(repr(attributes.get(name)) for name in names)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Values of many files end to end, some of each."""

    flat: NDArray[Any]
    starts: NDArray[np.int64]  # (files + 1,) values of file n are flat[starts[n]:starts[n + 1]]
    kind: NDArray[np.int32]  # (files,) a number of the data type that a file has them in

    @classmethod
    def spread(
        cls, pieces: Sequence[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]], count: int
    ) -> Runs:
        """Make the column of pieces: which of ``count`` files each describes, values, starts."""
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

    @property
    def _one_each(self) -> bool:
        return len(self.flat) == len(self) and bool((self.starts[1:] > self.starts[:-1]).all())

    def firsts(self) -> NDArray[Any]:
        """Return the first value of each file; of a file without any, 0 or an empty text."""
        if self._one_each:
            return self.flat
        flat: NDArray[Any] = np.concatenate([self.flat, np.zeros(1, self.flat.dtype)])
        return flat[np.where(self.lengths > 0, self.starts[:-1], len(flat) - 1)]

    @property
    def rises(self) -> bool:
        """Whether each file has values, and each value is larger than the one before."""
        flat, starts = self.flat, self.starts
        return bool((starts[1:] > starts[:-1]).all()) and bool((flat[1:] > flat[:-1]).all())

    @property
    def ascends(self) -> bool:
        """Whether each file has one number, which is larger than that of the file before."""
        return self.flat.dtype.kind in "iuf" and len(self.flat) == len(self) and self.rises

    def take(self, rows: NDArray[np.integer]) -> Runs:
        """Return the values of some files, in the order given."""
        if are_all(rows, len(self)):
            return self
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[rows])])
        return Runs(self.flat[self.places(rows)], starts, self.kind[rows])

    def places(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return where the values of some files stand, end to end."""
        size = self.lengths[rows]
        ends = np.cumsum(size)
        shift = np.repeat(self.starts[rows] - (ends - size), size)
        places: NDArray[np.int64] = np.arange(len(shift)) + shift
        return places

    def numbers(self) -> NDArray[np.int64]:
        """Number equal ones alike, by first appearance; an empty one is like no other."""
        if self.ascends and not self.kind.any():  # as nearly always: nothing is sorted
            return np.arange(len(self))
        if self._one_each and self.flat.itemsize <= 8 and not self.kind.any():
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keys:
    """What stands for labels when they are compared: numbers that are equal where steps are."""

    runs: Runs  # (files,)
    missing: NDArray[np.bool_]  # (labels,) where a file has no value
    shown: Callable[[NDArray[np.integer]], list[str]]  # labels at some places, as people read them

    def take(self, rows: NDArray[np.integer]) -> Keys:
        """Return the values of some files, in the order given."""
        if are_all(rows, len(self.runs)):
            return self
        places = self.runs.places(rows)
        return Keys(
            runs=self.runs.take(rows),
            missing=self.missing[places],
            shown=lambda at: self.shown(places[at]),
        )


def order_files(
    urls: Sequence[str] | Strings, keys: Keys | None, *, dimension: str, alone: bool = True
) -> Order:
    """Order files by their labels along ``dimension``; without labels, keep the order.

    Files follow one another as in xarray's ``combine_by_coords``: sorted by their first labels,
    which must not fall inside one file and rise inside another.

    Args:
        urls: Of the files, in the order given.
        keys: The labels of each file, no two files with the same ones; None where there is no
            such coordinate.
        dimension: Its name.
        alone: Whether files are placed along no other dimension.

    Raises:
        CombineError: A label is missing, the labels of a file are not sorted, or two files overlap.
    """
    if keys is None:
        return Order(
            rows=np.arange(len(urls)), reason=f"in the given order: no coordinate {dimension!r}"
        )
    return Order(
        rows=_by_labels(urls, keys, dimension, alone=alone),
        reason=f"ordered by the values of {dimension!r}",
    )


def _by_labels(
    urls: Sequence[str] | Strings, keys: Keys, dimension: str, *, alone: bool
) -> NDArray[np.int64]:
    if keys.runs.rises and not keys.missing.any():  # as nearly always: nothing is sorted
        return np.arange(len(keys.runs))
    lengths, flat = keys.runs.lengths, keys.runs.flat
    filled, empty = np.flatnonzero(lengths), np.flatnonzero(lengths == 0)
    if len(filled) < 2:  # nothing follows anything
        return np.concatenate([filled, empty])
    starts = keys.runs.starts[:-1][filled]
    ends = starts + lengths[filled] - 1

    def url_at(label: int) -> str:
        return urls[int(filled[int(np.searchsorted(starts, label, side="right")) - 1])]

    if keys.missing.any():
        at = int(np.argmax(keys.missing))
        begin = int(starts[int(np.searchsorted(starts, at, side="right")) - 1])
        raise CombineError(
            f"the coordinate of {dimension!r}, which orders files, contains NaN or its fill value",
            fixes=_as_given(dimension) if alone else [],
            do="You can also leave the file out, or repair it.",
            file=url_at(at),
            position=at - begin,
            dimension=dimension,
        )
    inside = np.ones(len(flat) - 1, np.bool_)
    inside[starts[1:] - 1] = False
    rises, falls = (flat[1:] > flat[:-1]) & inside, (flat[1:] < flat[:-1]) & inside
    falling = bool(falls.any() and not rises.any())
    if falls.any() and not falling:
        at = int(np.argmax(falls if falls.sum() <= rises.sum() else rises))  # the odd one
        raise CombineError(
            f"the steps of a file along {dimension!r} are not sorted, or not in the direction of "
            "other files",
            fixes=_as_given(dimension) if alone else [],
            do="You can also repair the file, or leave it out.",
            file=url_at(at),
            dimension=dimension,
            steps=keys.shown(np.array([at, at + 1])),
        )
    low, high = (ends, starts) if falling else (starts, ends)
    order = np.lexsort((flat[high], flat[low]))
    overlap = ~(flat[high][order[:-1]] < flat[low][order[1:]])
    if overlap.any():
        at = int(np.argmax(overlap))
        pair = order[at : at + 2]
        one, other = (int(each) for each in (pair[::-1] if falling else pair))
        raise OverlapError(
            f"two files overlap along {dimension!r}",
            do='Choose the file for the steps that both hold with duplicates="newest" (--duplicates'
            " newest), or leave one of the files out.",
            first=urls[int(filled[one])],
            first_range=keys.shown(np.array([starts[one], ends[one]])),
            second=urls[int(filled[other])],
            second_range=keys.shown(np.array([starts[other], ends[other]])),
        )
    return np.concatenate([filled[order[::-1] if falling else order], empty])


def _as_given(dimension: str) -> list[Fix]:
    """Return the fix that keeps files where they stand among the sources."""
    return [
        fix(
            f"files follow one another in the order given, whatever {dimension} says",
            combine="nested",
            concat_dim=[dimension],
        )
    ]
