"""Gather what files declare of their times, and choose in which unit and type they become one.

The first file's reference date counts. Whole numbers become 64-bit integers, in the coarsest unit
that divides all units and all distances of reference dates; further files of the same kind change
neither. Floats become 64-bit floats in the coarsest unit in which every value is an exact float:
halves and quarters are, thirds and tenths are not. Where seconds do not suffice, they become
integers too, and so do floats whose values a plan does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Labels
from icevirt.archive.kinds import joint
from icevirt.archive.schema import (
    DURATION,
    MEASURES,
    ArraySchema,
    Recoding,
    TimeStorage,
    TimeUnits,
    UnitColumns,
)
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.planning.times.calendars import MICROSECOND, REFORM, SECOND, SINCE_REFORM
from icevirt.planning.times.instants import (
    NO_TIME,
    CountColumns,
    InexactError,
    Times,
    convert,
    decode_times,
    encode_times,
    is_lost,
)
from icevirt.planning.times.units import (
    LADDER,
    bounds_of,
    coarsest,
    finest_mark,
    measure_of,
    missing_of,
    since,
    units_to_count,
)

INTEGER, FLOAT = "int64", "float64"
_CENTURIES = 170 * 366 * 86_400_000_000  # microseconds; 64 bits count nanoseconds of 292 years


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeclaredTimes:
    """What files say of the numbers of a time: a row each."""

    first: TimeUnits  # of the first file
    files: NDArray[np.integer]  # (k,)
    counts: UnitColumns  # (k,)
    kind: NDArray[np.int32]  # (k,)
    kinds: tuple[TimeStorage, ...]  # that occur

    @property
    def data_types(self) -> set[str]:
        """The data types that occur."""
        return {str(each.schema.data_type) for each in self.kinds}

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are integers."""
        return all("int" in each for each in self.data_types)

    @property
    def counts_alike(self) -> bool:
        """Whether all files count one unit from one date."""
        return bool(self.counts.equal(self.first).all())

    @property
    def is_alike(self) -> bool:
        """Whether numbers that are equal mean the same in all files, and are of one type."""
        held = {(each.schema.data_type, repr(each.missing)) for each in self.kinds}
        return self.counts_alike and len(held) == 1

    @property
    def widens(self) -> bool:
        """Whether floats of 64 bits mean what all of these numbers do."""
        return self.first.calendar == DURATION or self.data_types <= {"float32", FLOAT}

    @property
    def is_rounded(self) -> bool:
        """Whether xarray decodes durations in 32 bits: each as exactly as others of its array."""
        is_short = [each.schema.data_type == "float32" for each in self.kinds]
        rounded = np.array(is_short)[self.kind] & (self.counts.step <= SECOND)
        return self.first.calendar == DURATION and bool(rounded.any())

    @property
    def fill(self) -> float | None:
        """What means "no time" among floats, if a file says which number does."""
        return np.nan if any(each.missing for each in self.kinds) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTarget:
    """What times count in the dataset."""

    units: TimeUnits
    data_type: str
    fill: int | float | None = None


def target_of(declared: DeclaredTimes, labels: Sequence[Times] | None) -> TimeTarget | None:
    """Return what the times of several files count together; None where nothing is the same to all.

    Args:
        declared: By files.
        labels: The times of all files, in any order; None where a plan does not know them.
    """
    calendars = {each.calendar for each in declared.kinds}
    if declared.first.calendar.startswith(MEASURES):
        return _of_measures(declared)
    if len(calendars) > 1:
        early = (each.there & (each.microseconds < REFORM) for each in labels or ())
        if not calendars <= SINCE_REFORM or any(each.any() for each in early):
            return None
    first = declared.first
    if declared.is_alike:
        return TimeTarget(units=first, data_type=next(iter(declared.data_types)))
    if declared.is_rounded:
        return None
    base = coarsest(declared.counts, first)
    if declared.is_whole:
        return integers(base, declared)
    widens = declared.counts_alike and declared.widens
    return _floats(first, declared) if widens else _of_labels(declared, labels, base)


def _of_measures(declared: DeclaredTimes) -> TimeTarget | None:
    """Return the finest unit of the files, of which all others are whole numbers."""
    marks = {n for each in declared.kinds for n in each.missing if n == n}  # noqa: PLR0124 - NaN
    if declared.counts_alike or len({e.calendar for e in declared.kinds}) > 1 or marks:
        return None
    if declared.is_whole:
        return TimeTarget(units=declared.first, data_type=INTEGER)
    return _floats(declared.first, declared)


def _of_labels(
    declared: DeclaredTimes, labels: Sequence[Times] | None, base: TimeUnits
) -> TimeTarget:
    """Return the coarsest unit in which all labels are exact floats, else integers."""
    first = declared.first
    if labels is None or any(each.rest.any() for each in labels):
        finest = integers(_finest(first, declared.kinds), declared)
    else:
        finest = integers(since("microseconds", first), declared)
    for name, step in LADDER if labels is not None else ():
        if SECOND <= step <= base.step:
            unit = base if step == base.step else since(name, first)
            if all(_holds(unit, each) for each in labels or ()):
                return _floats(unit, declared)
    return finest


def integers(units: TimeUnits, declared: DeclaredTimes) -> TimeTarget:
    """Return a target of whole numbers, which are floats where cftime must decode missing ones."""
    has_fill = declared.fill is not None or not declared.is_whole
    if has_fill and not units.is_fine:
        return TimeTarget(units=units, data_type=FLOAT, fill=np.nan)
    return TimeTarget(units=units, data_type=INTEGER, fill=NO_TIME if has_fill else None)


def _floats(units: TimeUnits, declared: DeclaredTimes) -> TimeTarget:
    return TimeTarget(units=units, data_type=FLOAT, fill=declared.fill)


def bounds_target(coordinate: Recoding, declared: DeclaredTimes) -> TimeTarget:
    """Return what bounds count, which have the units of their coordinate."""
    units = coordinate.target
    if declared.counts.equal(units).all() and declared.is_alike:
        return TimeTarget(units=units, data_type=next(iter(declared.data_types)))
    if declared.is_whole or (coordinate.data_type == INTEGER and units.step < SECOND):
        return integers(units, declared)
    return _floats(units, declared)


def _finest(first: TimeUnits, kinds: Sequence[TimeStorage]) -> TimeUnits:
    """Return the finest unit to which xarray decodes times since the first reference date."""
    if not first.is_fine or not all(each.is_fine for each in kinds):
        return since("microseconds", first)
    if abs(first.origin) < _CENTURIES:
        return since("nanoseconds", first)
    return since("nanoseconds", replace(first, reference="1970-01-01"))


def _holds(unit: TimeUnits, times: Times) -> bool:
    """Say whether every time is a float of a unit, and not only close to one."""
    per = unit.step // MICROSECOND
    part = per // np.gcd((times.microseconds - unit.origin) % per, per)
    is_binary = (part & (part - 1)) == 0
    if (times.rest != unit.nanosecond).any() or (times.there & ~is_binary).any():
        return False
    new = encode_times(times, unit, np.dtype(FLOAT), np.nan)
    return not is_lost(new, times, unit, np.nan).any()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelGroup:
    """Labels of files whose numbers are held alike."""

    mine: NDArray[np.int64]  # rows of `DeclaredTimes`
    raw: NDArray[Any]  # of all these files, end to end
    starts: NDArray[np.int64]  # (files + 1,)
    storage: TimeStorage
    count: CountColumns
    times: Times

    @classmethod
    def of(
        cls,
        declared: DeclaredTimes,
        mine: NDArray[np.int64],
        raw: NDArray[Any],
        starts: NDArray[Any],
    ) -> LabelGroup:
        """Decode the labels of some files, which are of one kind.

        Raises:
            InexactError: One lies further away than microseconds can count; the row of its file.
        """
        storage = declared.kinds[int(declared.kind[mine[0]])]
        sizes = np.diff(starts)
        of_each = declared.counts.apply(lambda column: np.repeat(column[mine], sizes))
        count = CountColumns.of(of_each, storage)
        try:
            times = decode_times(raw, count, missing=storage.missing, starts=starts[:-1])
        except InexactError as error:
            file = int(np.searchsorted(starts, error.at, side="right")) - 1
            raise InexactError(str(error), int(mine[file])) from error
        return cls(mine=mine, raw=raw, starts=starts, storage=storage, count=count, times=times)

    def convert(self, target: TimeTarget) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the labels as the dataset counts them, and which of them have no exact value."""
        return convert(
            self.raw,
            self.count,
            target.units,
            dtype=np.dtype(target.data_type),
            times=self.times,
            missing=self.storage.missing,
            fill=target.fill,
        )

    def file_at(self, label: int) -> int:
        """Return the row of `DeclaredTimes` whose label stands at a place."""
        return int(self.mine[int(np.searchsorted(self.starts, label, side="right")) - 1])


def group_labels(
    declared: DeclaredTimes, labels: Labels, places: NDArray[np.int64]
) -> list[LabelGroup]:
    """Return the labels that stand at some places, a row of `DeclaredTimes` each.

    Raises:
        InexactError: One lies further away than microseconds can count; the row of its file.
    """
    found = []
    dtypes = labels.dtype.codes[places].astype(np.int64)
    key = dtypes * len(declared.kinds) + declared.kind
    for each in np.unique(key).tolist():
        mine = np.flatnonzero(key == each)
        data, starts = labels.flat(places[mine])
        dtype = np.dtype(labels.dtype.values[each // len(declared.kinds)])
        found.append(LabelGroup.of(declared, mine, data.view(dtype), starts // dtype.itemsize))
    return found


def labels_in_one(
    declared: DeclaredTimes, held: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], TimeTarget | None]:
    """Return one label of each file as they count together; None for what has no common count.

    Raises:
        InexactError: A label has no exact value there; the row of its file.
    """
    groups = []
    for kind in range(len(declared.kinds)):
        mine = np.flatnonzero(declared.kind == kind)
        raw = np.concatenate([held[row] for row in mine.tolist()])
        groups.append(LabelGroup.of(declared, mine, raw, np.arange(len(mine) + 1)))
    target = target_of(declared, [each.times for each in groups])
    if target is None:
        return np.zeros(0), None
    out = np.zeros(len(held), target.data_type)
    for group in groups:
        out[group.mine], lost = group.convert(target)
        if lost.any():
            at = int(np.argmax(lost))
            raise InexactError(
                f"{group.raw[at]} has no exact value in {target.units.text}", int(group.mine[at])
            )
    return out, target


_TYPES = frozenset(
    (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
)
_UNITS = re.compile(r'"units": "(?:[^"\\]|\\.)*"')
_COUNTING = ("units", "calendar", "dtype", "scale_factor", "add_offset", "_Unsigned")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What of a schema is about times."""

    counting: Mapping[str, JSON]  # attributes
    storage: ArraySchema  # the data type and the codecs
    missing: tuple[float, ...]
    is_stored: bool  # whether the scan read plain numbers along a concatenated dimension
    bounds: tuple[str, ...]

    @property
    def held(self) -> str:
        """Text that is equal where numbers are held in one way."""
        return repr((self.storage.data_type, self.storage.codecs, self.missing))


class Declarations:
    """What files declare, by variable; a schema is parsed once."""

    def __init__(self, facts: CatalogFacts, dimensions: Sequence[str]) -> None:
        self._arrays, self._size = facts.arrays, len(facts.files)
        self.dimensions = frozenset(dimensions)
        self._said: dict[tuple[int, str], _Said] = {}
        self._alike: dict[tuple[str, str], _Said] = {}  # by schema without units
        columns = facts.arrays.path, facts.arrays.schema
        names = columns[0].values
        self._number = {name: code for code, name in enumerate(names)}
        self._rows: dict[str, NDArray[np.int64]] = {}
        pairs, _ = joint([each.codes for each in columns], [len(each.values) for each in columns])
        self._schemas: dict[str, list[int]] = {}
        for code, schema in pairs.tolist():
            self._schemas.setdefault(names[code], []).append(schema)
        self.owners: dict[str, str] = {}
        """The coordinate of each variable that holds bounds."""
        for path in self.paths:
            for said in self._all(path):
                if not said.counting.keys().isdisjoint(("units", "calendar")):
                    known = (each for each in said.bounds if each in self._schemas)
                    self.owners |= dict.fromkeys(known, path)

    @property
    def paths(self) -> list[str]:
        """The variables that files have."""
        return [*self._schemas]

    def rows(self, path: str) -> NDArray[np.int64]:
        """Return the rows of a variable, which few variables need."""
        if path not in self._rows:
            codes = self._arrays.path.codes
            self._rows[path] = np.flatnonzero(codes == self._number[path])
        return self._rows[path]

    def is_stored(self, path: str) -> bool:
        """Say whether all files hold a variable as plain numbers that the scan read."""
        return all(each.is_stored for each in self._all(path))

    def concatenated(self, path: str) -> frozenset[str]:
        """Return the concatenated dimensions that files have of a variable."""
        texts = (self._arrays.schema.values[code] for code in self._schemas[path])
        return self.dimensions & {n for e in texts for n in ArraySchema.loads(e).dimension_names}

    def differs(self, path: str) -> bool:
        """Say whether files count or hold the numbers of a variable in several ways."""
        return len({(repr(each.counting), each.held) for each in self._all(path)}) > 1

    def has_units(self, path: str) -> bool:
        """Say whether a file has units of the variable itself."""
        return any("units" in each.counting for each in self._all(path))

    def of(self, path: str) -> DeclaredTimes | None:
        """Return what files declare of a variable; None where it is no time that can be recoded.

        Bounds count what their coordinate does, unless they say otherwise (CF 7.1).
        """
        if not self.is_stored(path):
            return None
        rows = self.rows(path)
        found, number = self._count(path, rows, units_to_count)
        if None in (units for _, units in found) and self._is_label(path):
            found, number = self._count(path, rows, measure_of)
        counts = [units for _, units in found if units is not None]
        if len(counts) < len(found):
            return None
        storage = [(said.storage, said.missing) for said, _ in found]
        made = declare(counts, storage, number, self._arrays.file[rows])
        is_measure = made.first.calendar.startswith(MEASURES)
        return replace(made, first=min(counts, key=lambda e: e.step)) if is_measure else made

    def _is_label(self, path: str) -> bool:
        """Say whether a variable holds the labels of a dimension, or their bounds."""
        texts = (self._arrays.schema.values[code] for code in self._schemas[path])
        return path in self.owners or all(is_coordinate(ArraySchema.loads(e), path) for e in texts)

    def _count(
        self,
        path: str,
        rows: NDArray[np.integer],
        read: Callable[[Mapping[str, Any]], TimeUnits | None],
    ) -> tuple[list[tuple[_Said, TimeUnits | None]], NDArray[np.int64]]:
        """Return the counts that occur, and which of them each row has."""
        codes, owner = self._arrays.schema.codes, self.owners.get(path)
        theirs = np.full(self._size, -1, np.int64)
        if owner is not None:
            theirs[self._arrays.file[self.rows(owner)]] = codes[self.rows(owner)]
        count = len(self._arrays.schema.values) + 1
        pair = codes[rows].astype(np.int64) * count + theirs[self._arrays.file[rows]] + 1
        pairs, number = np.unique(pair, return_inverse=True)
        found = []
        for own, other in zip((pairs // count).tolist(), (pairs % count - 1).tolist(), strict=True):
            said = self._of(path, own)
            more = self._of(owner, other).counting if owner is not None and other >= 0 else {}
            inherited = {name: more[name] for name in ("units", "calendar") if name in more}
            found.append((said, read({**inherited, **said.counting})))
        return found, number.reshape(-1)

    def _all(self, path: str) -> Iterator[_Said]:
        return (self._of(path, code) for code in self._schemas[path])

    def _of(self, path: str, code: int) -> _Said:
        if (code, path) in self._said:
            return self._said[code, path]
        text = self._arrays.schema.values[code]
        rest, units = without_units(text)
        alike = self._alike.get((rest, path)) if units is not None else None
        if alike is None:
            known = _read_schema(ArraySchema.loads(text), path, self.dimensions)
            if "units" in known.counting:
                self._alike[rest, path] = known
        else:
            known = replace(alike, counting={**alike.counting, "units": units})
        self._said[code, path] = known
        return known


def _read_schema(schema: ArraySchema, path: str, dimensions: frozenset[str]) -> _Said:
    attrs = schema.attributes
    return _Said(
        counting={name: attrs.values[name] for name in _COUNTING if name in attrs.values},
        storage=storage_of(schema),
        missing=missing_of(attrs),
        is_stored=(
            schema.whole
            and str(schema.data_type) in _TYPES
            and len(schema.codecs) == 1
            and not dimensions.isdisjoint(schema.dimension_names)
            and "units" not in attrs.replaced
        ),
        bounds=tuple(bounds_of(path, attrs.values)),
    )


def without_units(text: str) -> tuple[str, str | None]:
    """Return the text of a schema without its units, and these; None where that is not clear.

    Files that count from their own date have schemas that differ in nothing else.
    """
    found = _UNITS.findall(text)
    if len(found) != 1:
        return text, None
    return text.replace(found[0], "", 1), json.loads(f"{{{found[0]}}}")["units"]


def declare(
    counts: Sequence[TimeUnits],
    storage: Sequence[tuple[ArraySchema, tuple[float, ...]]],
    number: NDArray[np.int64],
    files: NDArray[np.integer],
) -> DeclaredTimes:
    """Return what files declare.

    Args:
        counts: The units that occur.
        storage: For each of them, type and codecs as of `storage_of`, and what means "no time".
        number: Which of them each file has.
        files: The rows of the files.
    """
    kinds: dict[str, TimeStorage] = {}
    known: dict[Hashable, int] = {}  # by identity, because most share their schema
    kind = []
    for units, (schema, missing) in zip(counts, storage, strict=True):
        how = {name: getattr(units, name) for name in ("calendar", "is_fine", "is_one")}
        same = id(schema), missing, *how.values()
        if same not in known:
            made = TimeStorage(schema=schema, missing=missing, **how)
            kinds.setdefault(repr(made), made)
            known[same] = [*kinds].index(repr(made))
        kind.append(known[same])
    return DeclaredTimes(
        first=replace(counts[int(number[0])], mark=finest_mark(each.mark for each in counts)),
        files=files,
        counts=UnitColumns.of(counts).apply(lambda column: column[number]),
        kind=np.array(kind, np.int32)[number],
        kinds=tuple(kinds.values()),
    )


def storage_of(schema: ArraySchema) -> ArraySchema:
    """Return the data type and the codecs of a schema, and nothing else."""
    return ArraySchema(
        dimension_names=(),
        chunk_shape=None,
        data_type=schema.data_type,
        codecs=schema.codecs,
        fill_value=0,
    )


def is_coordinate(schema: ArraySchema, path: str) -> bool:
    """Say whether a variable holds the labels of a dimension."""
    return schema.dimension_names == (paths.name(path),)


def spread(column: NDArray[Any], files: NDArray[np.integer], size: int) -> NDArray[Any]:
    """Return a column of some files as one of all files."""
    wide = np.zeros(size, column.dtype)
    wide[files] = column
    return wide
