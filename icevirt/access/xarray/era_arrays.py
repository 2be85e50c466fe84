"""Read arrays from the groups of several eras as one array, lazily, and combine their encodings.

Nothing is copied or kept: an index along the concatenated dimension is divided among the eras that
hold its steps, and the decoded pieces are concatenated. Packing is kept in the encoding completely
or not at all: writing the dataset with half of it (integers without their scale) would silently
lose values.

Durations that eras count or mark differently are decoded. xarray decodes what has a mark, as its
own files have it, and shows the numbers of others; numbers of several units would mean different
durations in one array.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, Variable
from xarray.backends import BackendArray
from xarray.coders import CFTimedeltaCoder
from xarray.core import indexing

from icevirt.errors import CombineError
from icevirt.planning.equality import same_values
from icevirt.planning.times.units import duration_of
from icevirt.threads import run_in_thread

_OUTER = indexing.IndexingSupport.OUTER
_PACKING = ("dtype", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
_CODECS = ("fill_value", "filters", "serializer", "compressors")  # made for packed values
_CHUNKS = ("chunks", "preferred_chunks", "original_shape")
_MANY = 100_000  # runs of steps; the chunks of more are not listed one by one

type _Part = int | slice | NDArray[np.integer]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EraSteps:
    """Which step of which era each step of the dataset is, in runs of consecutive ones.

    Columns have a row for each run, in the order of the dataset.
    """

    start: NDArray[np.int64]  # (runs,) its first step in the dataset
    era: NDArray[np.int64]  # (runs,)
    inner: NDArray[np.int64]  # (runs,) its first step in the era
    total: int

    @classmethod
    def of(cls, era: NDArray[np.int64], inner: NDArray[np.int64]) -> EraSteps:
        """Take the era of each step, and which of its steps it is; both of shape (steps,)."""
        new = np.ones(len(era), np.bool_)
        new[1:] = (np.diff(era) != 0) | (np.diff(inner) != 1)
        start = np.flatnonzero(new)
        return cls(start=start, era=era[start], inner=inner[start], total=len(era))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each run."""
        return np.diff(self.start, append=self.total)

    def find(self, at: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the eras of some steps, and which of their steps these are."""
        run = np.searchsorted(self.start, at, side="right") - 1
        return self.era[run], self.inner[run] + at - self.start[run]


class _LazyArray(BackendArray):
    """An array that is read by an index along each of its axes."""

    __slots__ = ()
    shape: tuple[int, ...]

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, _OUTER, self._read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Do the same for xarray's ``load_async``."""
        return await run_in_thread(self.__getitem__, key)

    def _read(self, key: tuple[_Part, ...]) -> np.ndarray[Any, Any]:
        raise NotImplementedError


class EraArray(_LazyArray):
    """One variable of all eras, along the concatenated dimension.

    Args:
        parts: The decoded variable of each era, None where it has none.
        steps: Which step of which era comes where.
        axis: Of the concatenated dimension.
        dtype: Of the whole, which that of every part can be brought to.
        fill: What the steps of eras without the variable read as.
    """

    __slots__ = ("_axis", "_fill", "_parts", "_steps", "dtype", "shape")

    def __init__(
        self,
        parts: Sequence[Variable | None],
        steps: EraSteps,
        *,
        axis: int,
        dtype: np.dtype[Any],
        fill: Any,
    ) -> None:
        self._parts, self._steps, self._axis, self._fill = tuple(parts), steps, axis, fill
        self.dtype = dtype
        shape = list(next(part.shape for part in parts if part is not None))
        shape[axis] = steps.total
        self.shape = tuple(shape)

    def _read(self, key: tuple[_Part, ...]) -> np.ndarray[Any, Any]:
        along = key[self._axis]
        if isinstance(along, int | np.integer):
            at = np.array([along % self._steps.total])
            era, inner = self._steps.find(at)
            return self._of_era(int(era[0]), key, int(inner[0]))
        at = (
            np.arange(*along.indices(self._steps.total))
            if isinstance(along, slice)
            else np.asarray(along)
        )
        eras, inner = self._steps.find(np.where(at < 0, at + self._steps.total, at))
        there = np.unique(eras).tolist()
        if len(there) == 1:
            return self._of_era(there[0], key, _as_slice(inner))
        out = np.empty(self._shape_of(key, len(at)), self.dtype)
        before = sum(not isinstance(part, int | np.integer) for part in key[: self._axis])
        for era in there:
            mine = np.flatnonzero(eras == era)
            whole: list[Any] = [slice(None)] * out.ndim
            whole[before] = _as_slice(mine)
            out[tuple(whole)] = self._of_era(era, key, _as_slice(inner[mine]))
        return out

    def _of_era(self, era: int, key: tuple[_Part, ...], inner: _Part) -> np.ndarray[Any, Any]:
        """Read some steps of one era, in the dtype of the whole."""
        part = self._parts[era]
        wanted = (*key[: self._axis], inner, *key[self._axis + 1 :])
        if part is None:
            return np.full(self._shape_of(wanted, 0), self._fill, self.dtype)
        return np.asarray(part[wanted].to_numpy()).astype(self.dtype, copy=False)

    def _shape_of(self, key: tuple[_Part, ...], along: int) -> tuple[int, ...]:
        """Return the shape of what a key reads; ``along`` steps where it is meant for the whole."""
        lengths = []
        for axis, part in enumerate(key):
            if isinstance(part, int | np.integer):
                continue
            if axis == self._axis and along:
                lengths.append(along)
            elif isinstance(part, slice):
                lengths.append(len(range(*part.indices(self.shape[axis]))))
            else:
                lengths.append(len(part))
        return tuple(lengths)


class SameArray(_LazyArray):
    """A variable without the concatenated dimension: that of the first era that has it.

    Whatever is read of it is read of every era, and compared.
    """

    __slots__ = ("_group", "_name", "_names", "_parts", "dtype", "shape")

    def __init__(
        self, parts: Sequence[Variable], *, name: str, group: str, eras: Sequence[str]
    ) -> None:
        self._parts, self._name, self._group, self._names = tuple(parts), name, group, tuple(eras)
        self.dtype, self.shape = parts[0].dtype, parts[0].shape

    def _read(self, key: tuple[_Part, ...]) -> np.ndarray[Any, Any]:
        first, *others = (np.asarray(part[key].to_numpy()) for part in self._parts)
        for name, other in zip(self._names[1:], others, strict=True):
            if same_values(first, other) is not True:
                raise CombineError(
                    f"variable {self._name!r} is not the same in all eras",
                    do=f'Leave it out with drop_variables=["{self._name}"], or open the eras one by'
                    " one with group=, without eras=.",
                    variable=self._name,
                    group=self._group,
                    first=self._names[0],
                    second=name,
                )
        return first.astype(self.dtype, copy=False)


def _as_slice(at: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return indices as a slice where they are consecutive."""
    if len(at) and np.all(np.diff(at) == 1):
        return slice(int(at[0]), int(at[-1]) + 1)
    return at


def share_encoding(
    parts: Sequence[Variable | None],
    steps: EraSteps | None = None,
    *,
    axis: int = 0,
    dims: Sequence[Hashable] = (),
) -> dict[Any, Any]:
    """Return the encoding of a variable made of parts.

    Args:
        parts: The variable of each era, None where it has none.
        steps: How they are put together; None where they are all the same.
        axis: Along which.
        dims: Its dimensions.
    """
    held = [part for part in parts if part is not None]
    first = held[0].encoding
    kept = {
        name: value
        for name, value in first.items()
        if all(name in each.encoding and equal(each.encoding[name], value) for each in held[1:])
    }
    if any(name in each.encoding and name not in kept for name in _PACKING for each in held):
        kept = {name: value for name, value in kept.items() if name not in (*_PACKING, *_CODECS)}
    if steps is None:
        return kept
    kept = {name: value for name, value in kept.items() if name not in _CHUNKS}
    chunks = _choose_preferred([each.encoding for each in held], dims)
    if chunks:
        along = _along(parts, steps, dims[axis])
        kept["preferred_chunks"] = chunks | ({} if along is None else {dims[axis]: along})
    return kept


def _choose_preferred(
    encodings: Sequence[Mapping[Any, Any]], dims: Sequence[Hashable]
) -> dict[Hashable, Any]:
    """Return the chunks along each dimension, of the era whose chunks are the largest."""
    preferred = [each["preferred_chunks"] for each in encodings if "preferred_chunks" in each]
    return {
        dim: max((each[dim] for each in preferred if dim in each), key=np.max)
        for dim in dims
        if any(dim in each for each in preferred)
    }


def _along(
    parts: Sequence[Variable | None], steps: EraSteps, dim: Hashable
) -> int | tuple[int, ...] | None:
    """Return the chunks along the concatenated dimension, cut where another era begins."""
    edges = [
        None if part is None else part.encoding.get("preferred_chunks", {}).get(dim)
        for part in parts
    ]
    known = [edge for edge in edges if edge is not None]
    if not known or len(steps.start) > _MANY or not steps.total:
        return None
    cuts = [
        start + _cuts(known[0] if edges[era] is None else edges[era], inner, length) - inner
        for start, era, inner, length in zip(
            steps.start.tolist(),
            steps.era.tolist(),
            steps.inner.tolist(),
            steps.lengths.tolist(),
            strict=True,
        )
    ]
    found = np.diff(np.concatenate([*cuts, [steps.total]]))
    if (found[:-1] == found[0]).all() and found[-1] <= found[0]:
        return int(found[0])
    return tuple(found.tolist())


def _cuts(edge: int | tuple[int, ...] | None, low: int, length: int) -> NDArray[np.int64]:
    """Return where chunks begin within a run of steps, the run's own beginning included."""
    if edge is None:
        return np.array([low], np.int64)
    high = low + length
    if isinstance(edge, int):
        begins = np.arange(low - low % edge, high, edge)
    else:
        begins = np.cumsum([0, *edge])
        begins = begins[(begins < high) & (np.append(begins[1:], high) > low)]
    return np.maximum(begins, low).astype(np.int64)


def equal(one: Any, other: Any) -> bool:
    """Say whether two attributes, or two settings of an encoding, are the same."""
    if one is None or other is None:
        return one is other
    try:
        if bool(np.array_equal(one, other)):
            return True
        return bool(np.array_equal(one, other, equal_nan=True))
    except (TypeError, ValueError):
        return bool(one is other)


_OPTIONS = ("decode_cf", "decode_times", "decode_timedelta")  # whose False says what to show


def with_durations(datasets: Sequence[Dataset], decoders: Mapping[str, Any]) -> Sequence[Dataset]:
    """Return datasets in which durations of one name are decoded in all or in none.

    Args:
        datasets: Of each era.
        decoders: What the caller decodes.
    """
    if any(decoders.get(name) is False for name in _OPTIONS):
        return datasets
    found: dict[Hashable, set[str | None]] = {}  # units, "" of decoded durations, None of all else
    for dataset in datasets:
        for name, variable in dataset.variables.items():
            units = duration_of(variable.attrs) if variable.dtype.kind in "iuf" else None
            unit = "" if variable.dtype.kind == "m" else getattr(units, "unit", None)
            found.setdefault(name, set()).add(unit)
    several = [name for name, each in found.items() if len(each) > 1 and None not in each]
    if not several:
        return datasets
    coder = CFTimedeltaCoder(decode_via_units=True)
    return [
        dataset.assign(
            {
                name: coder.decode(dataset.variables[name])
                for name in several
                if name in dataset.variables
            }
        )
        for dataset in datasets
    ]
