"""Read the values of the coordinate that orders files, and order files by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Labels
from icevirt.archive.kinds import occurring
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, Fix, OverlapError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.indices import are_all
from icevirt.model.strings import Strings
from icevirt.planning.axes.dates import count_times, write_labels
from icevirt.planning.remedies import fix
from icevirt.planning.times.units import missing_of, parse, units_of
from icevirt.remedy_notation import write_code, write_remedy


def decode(raw: NDArray[np.generic], attributes: Mapping[str, object]) -> NDArray[np.generic]:
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

    def directions(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Say between which values of one file they rise, where they fall, and which these are."""
        inside = np.ones(max(0, len(self.flat) - 1), np.bool_)
        begins = self.starts[1:-1]
        inside[begins[(begins > 0) & (begins < len(self.flat))] - 1] = False
        before, after = self.flat[:-1], self.flat[1:]
        return (after > before) & inside, (after < before) & inside, inside

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
            return np.argsort(np.argsort(first))[number]
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
    urls: Sequence[str] | Strings,
    keys: Keys | None,
    *,
    dimension: str,
    alone: bool = True,
    falling: bool = False,
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
        falling: Whether labels of files of one step fall, as those of other eras do.

    Raises:
        CombineError: A label is missing, the labels of a file are not sorted, or two files overlap.
    """
    if keys is None:
        reason = f"in the given order: no coordinate {dimension!r}"
        return Order(rows=np.arange(len(urls)), reason=reason)
    rows = _by_labels(urls, keys, dimension, alone=alone, turned=falling)
    return Order(rows=rows, reason=f"ordered by the values of {dimension!r}")


def _by_labels(
    urls: Sequence[str] | Strings, keys: Keys, dimension: str, *, alone: bool, turned: bool
) -> NDArray[np.int64]:
    if not turned and keys.runs.rises and not keys.missing.any():  # as nearly always
        return np.arange(len(keys.runs))
    lengths, flat = keys.runs.lengths, keys.runs.flat
    filled, empty = np.flatnonzero(lengths), np.flatnonzero(lengths == 0)
    if len(filled) < 2:  # nothing follows anything
        return np.concatenate([filled, empty])
    starts = keys.runs.starts[:-1][filled]
    ends = starts + lengths[filled] - 1

    def file_at(label: int) -> int:
        return int(np.searchsorted(starts, label, side="right")) - 1

    if keys.missing.any():
        at = int(np.argmax(keys.missing))
        raise CombineError(
            f"the coordinate of {dimension!r}, which orders files, contains NaN or its fill value",
            fixes=_as_given(dimension) if alone else [],
            do="You can also leave the file out, or repair it.",
            file=urls[int(filled[file_at(at)])],
            position=at - int(starts[file_at(at)]),
            dimension=dimension,
        )
    rises, falls, _ = keys.runs.directions()
    falling = bool((turned or falls.any()) and not rises.any())
    if falls.any() and not falling:
        at = int(np.argmax(falls if falls.sum() <= rises.sum() else rises))  # the odd one
        raise CombineError(
            f"the steps of a file along {dimension!r} are not sorted, or not in the direction of "
            "other files",
            fixes=_as_given(dimension) if alone else [],
            do="You can also repair the file, or leave it out.",
            file=urls[int(filled[file_at(at)])],
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
            do=write_remedy(
                "Choose the file for the steps that both hold with ",
                write_code('duplicates="newest"', "--duplicates newest"),
                ", or leave one of the files out.",
            ),
            first=urls[int(filled[one])],
            first_range=keys.shown(np.array([starts[one], ends[one]])),
            second=urls[int(filled[other])],
            second_range=keys.shown(np.array([starts[other], ends[other]])),
        )
    return np.concatenate([filled[order[::-1] if falling else order], empty])


def _as_given(dimension: str) -> list[Fix]:
    price = f"files follow one another in the order given, whatever {dimension} says"
    return [fix(price, combine="nested", concat_dim=[dimension])]


_NUMBERS, _TEXTS = "iufb", "US"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coordinate:
    """The coordinate of a dimension in some files."""

    path: str
    values: Runs  # (files,) as they decode, but for an offset that all files have
    missing: NDArray[np.bool_]  # (labels,) where a file has no value
    attributes: Attributes  # of the first file
    counts_alike: bool  # whether the values of all files mean the same
    shifted: bool  # whether offsets, which differ, were added

    @property
    def is_text(self) -> bool:
        """Whether the labels are texts."""
        return bool(self.values.flat.dtype.kind == "U")

    def keys(self) -> Keys:
        """Return numbers that are equal where labels are: of times, whole microseconds."""
        flat, missing = self.values.flat, self.missing
        alike = Runs(flat, self.values.starts, np.zeros(len(self.values), np.int32))
        runs = self.values
        if self.is_text:
            runs = replace(alike, flat=np.unique(flat, return_inverse=True)[1].astype(np.int64))
        elif (times := self._times()) is not None:
            runs = replace(alike, flat=times)
        elif flat.dtype.kind == "f":
            runs = replace(runs, flat=flat + 0.0)  # 0.0 and -0.0 are one label
        attrs = self.attributes.without("add_offset") if self.shifted else self.attributes
        return Keys(runs=runs, missing=missing, shown=lambda at: write_labels(flat[at], attrs))

    def _times(self) -> NDArray[np.int64] | None:
        """Return labels in microseconds; None where they are no times, or lie closer than that."""
        units, flat = units_of(self.attributes.values), self.values.flat
        if units is None or not self.counts_alike or flat.dtype.kind not in "iuf":
            return None
        if not (np.isfinite(flat) | self.missing).all():
            return None
        known = np.where(self.missing, flat.dtype.type(0), flat)
        times = count_times(known, units)
        if times is not None and flat.dtype.kind == "f":
            order = np.argsort(known, kind="stable")
            one, other = known[order[:-1]], known[order[1:]]
            apart = other - one > 4 * np.spacing(np.maximum(np.abs(one), np.abs(other)))
            if (apart & (np.diff(times[order]) == 0)).any():
                return None
        return None if times is None else np.where(self.missing, np.iinfo(np.int64).min, times)


def coordinate_of(
    facts: CatalogFacts, dimension: str, files: NDArray[np.integer]
) -> Coordinate | None:
    """Return the coordinate of the root group, else of the first group that has it.

    None where no group has labels for it in all of these files, all numbers or all texts.
    """
    held = ((path, place[files]) for path, place in _places(facts, dimension) if len(files))
    found = {
        path: mine for path, mine in held if not (mine < 0).any() and _is_of_one_kind(facts, mine)
    }
    if not found:
        return None
    path = min(found, key=lambda path: (path.count("/"), path))
    return _coordinate(facts, path, found[path])


def coordinates_of_groups(
    facts: CatalogFacts, dimension: str
) -> Iterator[tuple[Coordinate, NDArray[np.int64]]]:
    """Yield the coordinate of each group that has one, with the files that hold its labels."""
    for path, place in _places(facts, dimension):
        files = np.flatnonzero(place >= 0)
        mine = place[files]
        if _is_of_one_kind(facts, mine):
            yield _coordinate(facts, path, mine), files


def _places(facts: CatalogFacts, dimension: str) -> Iterator[tuple[str, NDArray[np.integer]]]:
    """Yield paths of coordinates and the place of each file's labels; -1 where a file has none."""
    arrays, labels = facts.arrays, facts.arrays.labels
    path_of = arrays.path.codes[labels.row]
    for code in arrays.path.find_used(path_of).tolist():
        if paths.name(arrays.path.values[code]) == dimension:
            places = np.flatnonzero(path_of == code)
            place = np.full(len(facts.files), -1, np.min_scalar_type(-len(labels.row) - 1))
            place[arrays.file[labels.row[places]]] = places
            yield arrays.path.values[code], place


def _is_of_one_kind(facts: CatalogFacts, places: NDArray[np.integer]) -> bool:
    """Say whether labels at some places are all numbers or all texts."""
    dtype = facts.arrays.labels.dtype
    held = {
        np.dtype(dtype.values[code]).kind for code in dtype.find_used(dtype.codes[places]).tolist()
    }
    return held <= {*_NUMBERS} or held <= {*_TEXTS}


def _coordinate(facts: CatalogFacts, path: str, places: NDArray[np.integer]) -> Coordinate:
    """Return a coordinate, given the places of the labels of some files."""
    arrays, labels = facts.arrays, facts.arrays.labels
    schemas = arrays.schema.codes[labels.row[places]]
    attributes = {
        code: ArraySchema.loads(arrays.schema.values[code]).attributes
        for code in arrays.schema.find_used(schemas).tolist()
    }
    # an offset that all files have moves all labels alike
    shifted = len({repr(each.values.get("add_offset", 0)) for each in attributes.values()}) > 1
    values, missing = _decode(labels, places, schemas, attributes, shifted=shifted)
    meant = {code: _meaning(each) for code, each in attributes.items()}
    number = {each: at for at, each in enumerate(dict.fromkeys(meant.values()))}
    if len(number) > 1:  # numbers that are equal are no equal labels
        of_schema = np.zeros(max(meant) + 1, np.int32)
        of_schema[[*meant]] = [number[each] for each in meant.values()]
        values = replace(values, kind=values.kind * len(number) + of_schema[schemas])
    return Coordinate(
        path=path,
        values=values,
        missing=missing,
        attributes=attributes[int(schemas[0])],
        counts_alike=len(number) == 1,
        shifted=shifted,
    )


def _meaning(attributes: Attributes) -> tuple[Any, ...]:
    """Return what labels count, equal where numbers that are equal mean the same."""
    attrs = attributes.values
    units = parse(attrs.get("units"), attrs.get("calendar"))
    if units is not None:
        return units.meaning
    return (repr(attrs.get("units")), repr(attrs.get("calendar")))


def _decode(
    labels: Labels,
    places: NDArray[np.integer],
    schemas: NDArray[np.integer],
    attributes: Mapping[int, Attributes],
    *,
    shifted: bool,
) -> tuple[Runs, NDArray[np.bool_]]:
    """Return the labels at some places as they decode, and which of them are missing.

    Those that are stored alike are looked at together.
    """
    ways = {code: decoding(each.values) for code, each in attributes.items()}
    number = {way: at for at, way in enumerate(dict.fromkeys(ways.values()))}
    kinds = len(labels.dtype.values) * len(number)
    way_of = np.zeros(max(ways) + 1, np.min_scalar_type(kinds))
    for code, way in ways.items():
        way_of[code] = number[way]
    kind = way_of[schemas]
    kind += labels.dtype.codes[places].astype(kind.dtype) * kind.dtype.type(len(number))
    pieces, gone = [], []
    for each in occurring(kind, kinds).tolist():
        mine = np.flatnonzero(kind == each)
        data, starts = labels.flat(places if len(mine) == len(places) else places[mine])
        dtype = np.dtype(labels.dtype.values[each // len(number)])
        raw = data.view(dtype)
        attrs = attributes[int(schemas[mine[0]])]
        starts = starts // dtype.itemsize
        meant = np.char.decode(raw, "utf-8", "replace") if dtype.kind == "S" else raw
        meant = decode(meant, attrs.values)
        shift = attrs.values.get("add_offset")
        if shifted and isinstance(shift, int | float) and meant.dtype.kind in "iuf":
            meant = meant.astype(np.float64) + shift
        pieces.append((mine, meant, starts))
        gone.append((mine, _missing(raw, attrs), starts))
    count = len(places)
    values, missing = (Runs.spread(each, count) for each in (pieces, gone))
    if values.flat.dtype.kind == "U":  # of any width
        values = Runs(values.flat, values.starts, np.zeros(count, np.int32))
    return values, missing.flat


def _missing(raw: NDArray[Any], attributes: Attributes) -> NDArray[np.bool_]:
    """Say which labels are NaN, or a number that means "no value"."""
    gone = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(len(raw), np.bool_)
    if raw.dtype.kind in "iuf" and (meaning := missing_of(attributes)):
        unsigned = {name: value for name, value in attributes.values.items() if name == "_Unsigned"}
        # what means "missing" may be spelled with a sign where the numbers have none, or without
        for numbers in (raw, decode(raw, unsigned)):
            gone |= np.isin(numbers, np.array(meaning))
    return gone
