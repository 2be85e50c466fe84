"""Hold facts per file and per array of a closed catalog, in columns on the driver.

Strings that repeat (paths, schemas, shapes, digests) are dictionary-encoded, and whole numbers take
as few bytes as the largest needs. What repeats from file to file is held once, by kind of array, so
that a file costs a few bytes for each of its arrays. References are not here; they never reach the
driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.kinds import (
    KindColumn,
    Kinds,
    NumberColumn,
    RunColumn,
    count_codes,
    joint,
    occurring,
    spread,
)
from icevirt.archive.schema import ArraySchema, ScannedGroup
from icevirt.model.indices import are_all
from icevirt.model.strings import Strings, gather

_BLOCK = 1 << 16  # rows that are looked at together


def by_first_appearance(codes: Kinds, count: int) -> NDArray[np.int64]:
    """Return which of ``count`` codes occur; in the order of their first rows."""
    found = [np.zeros(0, np.int64)]
    seen = np.zeros(count, np.bool_)
    for low in range(0, len(codes), _BLOCK):
        if seen.all():
            break
        block = codes[low : low + _BLOCK]
        new, first = np.unique(block[~seen[block]], return_index=True)
        found.append(new[np.argsort(first)].astype(np.int64))
        seen[new] = True
    return np.concatenate(found)


class Taken:
    """Rows of several columns: what these share is looked up once, and shared again."""

    def __init__(self, rows: NDArray[np.integer]) -> None:
        self.rows = rows
        self._kinds: dict[int, tuple[NDArray[np.int64], NDArray[np.integer]]] = {}

    def of(self, column: NumberColumn) -> NumberColumn:
        """Return the rows of a column, of the kinds that occur in them."""
        if not isinstance(column, KindColumn):
            taken: NDArray[np.integer] = column[self.rows]
            return taken
        held = column.kind
        if id(held) not in self._kinds:
            self._kinds[id(held)] = renumber(held[self.rows], len(column.of_kind))
        used, kind = self._kinds[id(held)]
        return KindColumn(kind, column.of_kind[used])


def renumber(
    codes: NDArray[np.integer], count: int
) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
    """Return which of ``count`` codes occur, ascending, and which of these each row has."""
    used = occurring(codes, count)
    if len(used) == count:
        return used, codes
    number = np.zeros(count, np.min_scalar_type(len(used)))
    number[used] = np.arange(len(used))
    return used, spread(number, codes)


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A dictionary-encoded column of strings."""

    codes: NumberColumn  # (n,) in as few bytes as there are values for
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        narrow = np.min_scalar_type(len(self.values))
        codes: NumberColumn
        if isinstance(self.codes, KindColumn):
            codes = KindColumn(self.codes.kind, self.codes.of_kind.astype(narrow, copy=False))
        else:
            codes = self.codes.astype(narrow, copy=False)
        object.__setattr__(self, "codes", codes)

    @classmethod
    def of(cls, column: Sequence[str]) -> Coded:
        """Encode Python strings, numbering values by first appearance."""
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in column]
        return cls(np.array(codes, np.int32), tuple(numbers))

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: NDArray[np.integer]) -> Coded:
        """Return the given rows, with only the values that occur in them."""
        return self.take_with(Taken(rows))

    def take_with(self, rows: Taken) -> Coded:
        """Return some rows of this column and of others, as `take` does."""
        codes = rows.of(self.codes)
        of = codes.of_kind if isinstance(codes, KindColumn) else codes
        used, number = renumber(of, len(self.values))
        made = KindColumn(codes.kind, number) if isinstance(codes, KindColumn) else number
        return Coded(made, tuple(self.values[code] for code in used.tolist()))

    def compact(self) -> Coded:
        """Return the column with only the values that occur in it."""
        codes = self.codes
        held = codes.of_kind[codes.kinds()] if isinstance(codes, KindColumn) else codes
        used = occurring(held, len(self.values))
        if len(used) == len(self.values):
            return self
        number = np.zeros(len(self.values), np.min_scalar_type(len(used)))
        number[used] = np.arange(len(used))
        values = tuple(self.values[code] for code in used.tolist())
        if isinstance(codes, KindColumn):
            return Coded(KindColumn(codes.kind, number[codes.of_kind]), values)
        return Coded(spread(number, codes), values)

    def renumber(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
        """Return which codes some rows have, ascending, and which of these each row has."""
        return renumber(self.codes[rows], len(self.values))

    def counts(self) -> NDArray[np.int64]:
        """Return how many rows have each of the values."""
        codes = self.codes
        if isinstance(codes, KindColumn):
            found = np.zeros(len(self.values), np.int64)
            np.add.at(found, codes.of_kind, count_codes(codes.kind, len(codes.of_kind)))
            return found
        return count_codes(codes, len(self.values))

    def find_used(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return which codes are among those given, ascending; nothing is sorted for it."""
        return occurring(codes, len(self.values))


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A column of whole numbers that is held narrow and read wide, so that sums do not wrap."""

    held: NumberColumn  # (n,)

    def __getitem__(self, rows: NDArray[np.integer] | slice) -> NDArray[np.int64]:
        wide: NDArray[np.int64] = self.held[rows].astype(np.int64)
        return wide

    def sum(self, rows: NDArray[np.integer]) -> int:
        """Return the sum of some rows."""
        total = 0
        for low in range(0, len(rows), _BLOCK):
            total += int(self.held[rows[low : low + _BLOCK]].sum(dtype=np.int64))
        return total

    def take_with(self, rows: Taken) -> Counts:
        """Return some rows of this column and of others."""
        return Counts(rows.of(self.held))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """Values that were kept of some rows of the arrays; values that repeat may be held once."""

    row: NDArray[np.int64]  # (k,) of the arrays, ascending
    value: NDArray[np.integer]  # (k,) which of the values
    data: NDArray[np.uint8]  # bytes of all values, end to end
    starts: NDArray[np.int64]  # (values + 1,)
    dtype: Coded  # (k,) numpy typestr

    def places(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return where rows of the arrays stand in this column; -1 where nothing was kept."""
        at = np.searchsorted(self.row, rows)
        at[at == len(self.row)] = 0
        there = self.row[at] == rows if len(self.row) else np.zeros(len(rows), np.bool_)
        places: NDArray[np.int64] = np.where(there, at, -1)
        return places

    def get(self, row: int) -> NDArray[Any] | None:
        """Return the values of one row of the arrays, None where nothing was kept."""
        at = int(self.places(np.array([row]))[0])
        return None if at < 0 else self.at(at)

    def at(self, place: int) -> NDArray[Any]:
        """Return the values at a place of this column."""
        value = int(self.value[place])
        raw = self.data[self.starts[value] : self.starts[value + 1]]
        return np.frombuffer(raw.tobytes(), np.dtype(self.dtype[place]))

    def flat(self, places: NDArray[np.integer]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the bytes of values end to end, and where each begins, and the last ends."""
        value = self.value[places].astype(np.int64)
        if len(value) and (value[1:] - value[:-1] == 1).all():  # nothing is copied
            starts = self.starts[value[0] : value[-1] + 2]
            return self.data[starts[0] : starts[-1]], starts - starts[0]
        start = self.starts[value]
        return gather(self.data, start, self.starts[value + 1] - start)

    def with_values(
        self, places: NDArray[np.integer], values: NDArray[Any], starts: NDArray[np.int64]
    ) -> Labels:
        """Return the column with other values at some places.

        Args:
            places: In this column.
            values: The new ones, end to end.
            starts: Where those of each place begin, and the last end.
        """
        value = self.value.astype(np.int64)
        value[places] = len(self.starts) - 1 + np.arange(len(places))
        number = {text: code for code, text in enumerate(self.dtype.values)}
        codes = self.dtype.codes.astype(np.int64)
        codes[places] = number.setdefault(values.dtype.str, len(number))
        ends = self.starts[-1] + (starts[1:] - starts[0]) * values.itemsize
        return replace(
            self,
            value=value,
            data=np.concatenate([self.data, np.frombuffer(values.tobytes(), np.uint8)]),
            starts=np.concatenate([self.starts, ends]),
            dtype=Coded(codes, tuple(number)),
        )

    def of_rows(self, rows: NDArray[np.integer], count: int) -> Labels:
        """Return what was kept of some of ``count`` rows, numbered anew in the order given."""
        new = np.full(count, -1, np.int64)
        new[rows] = np.arange(len(rows))
        row = new[self.row]
        kept = np.flatnonzero(row >= 0)
        places = kept[np.argsort(row[kept], kind="stable")]
        return Labels(
            row=row[places],
            value=self.value[places],
            data=self.data,
            starts=self.starts,
            dtype=self.dtype.take(places),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileColumns:
    """Source files, a row each."""

    parts: tuple[str, ...]  # names of catalog parts
    part: NDArray[np.int32]  # (n,) index into ``parts``
    row: NDArray[np.int32]  # (n,) row of the file in its part
    url: Strings  # (n,)
    etag: Strings  # (n,)
    size: NDArray[np.int64]  # (n,) bytes
    last_modified: NDArray[np.int64]  # (n,) nanoseconds since 1970

    def __len__(self) -> int:
        return len(self.part)

    def take(self, rows: NDArray[np.integer]) -> FileColumns:
        """Return the given rows, in their order, with only the parts they need."""
        if are_all(rows, len(self)):
            return self
        used, part = np.unique(self.part[rows], return_inverse=True)
        return FileColumns(
            parts=tuple(self.parts[int(number)] for number in used),
            part=part.astype(np.int32),
            row=self.row[rows],
            url=self.url[rows],
            etag=self.etag[rows],
            size=self.size[rows],
            last_modified=self.last_modified[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayColumns:
    """Arrays of the files, a row each."""

    file: RunColumn  # (n,) row in the file columns
    path: Coded
    schema: Coded  # JSON of `ArraySchema`
    shape: Coded  # JSON lists
    digest: Coded
    labels: Labels  # where the array orders files, or was asked for
    virtual: Counts  # (n,) references
    inline: Counts  # (n,)
    virtual_bytes: Counts  # (n,)
    inline_bytes: Counts  # (n,)
    own_path: Coded | None = None  # in the files, where arrays were renamed
    form: NumberColumn | None = None  # (n,) of `Form`; None: as the catalog holds them

    @property
    def in_files(self) -> Coded:
        """The paths in the files."""
        return self.path if self.own_path is None else self.own_path

    def of_files(self, files: NDArray[np.int64], count: int) -> ArrayColumns:
        """Return the arrays of some files, which are numbered anew in the order given."""
        place = np.full(count, -1, np.int32)
        place[files] = np.arange(len(files))
        rows = np.flatnonzero(spread(place >= 0, self.file))
        return replace(self.take(rows), file=place[self.file[rows]])

    def take(self, rows: NDArray[np.int64]) -> ArrayColumns:
        """Return some of the arrays, in the order given."""
        some = Taken(rows)
        return ArrayColumns(
            file=self.file[rows],
            path=self.path.take_with(some),
            schema=self.schema.take_with(some),
            shape=self.shape.take_with(some),
            digest=self.digest.take_with(some),
            labels=self.labels.of_rows(rows, len(self.file)),
            virtual=self.virtual.take_with(some),
            inline=self.inline.take_with(some),
            virtual_bytes=self.virtual_bytes.take_with(some),
            inline_bytes=self.inline_bytes.take_with(some),
            own_path=None if self.own_path is None else self.own_path.take_with(some),
            form=None if self.form is None else some.of(self.form),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BesideColumns:
    """Facts that some ways of combining need, a row for what was found of an array at one time."""

    file: NDArray[np.int32]  # (n,) row in the file columns
    path: Coded
    asked: NDArray[np.uint8]  # (n,) of `Fact`: what was looked for
    digest: Coded
    schema: Coded  # JSON of `ArraySchema` of the values, "" where there are none
    nbytes: Counts  # (n,) of the values
    labels: Labels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepCuts:
    """Which steps count of files that overlap in part; a file with two such runs has two rows."""

    source: NDArray[np.int64]  # (files,) equal for rows of one file
    skip: Mapping[str, NDArray[np.int64]]  # (files,) by dimension: steps before the first
    held: Mapping[str, NDArray[np.int64]]  # (files,) by dimension: steps of the whole file

    def take(self, rows: NDArray[np.integer]) -> StepCuts:
        """Return the given rows."""
        return StepCuts(
            source=self.source[rows],
            skip={name: column[rows] for name, column in self.skip.items()},
            held={name: column[rows] for name, column in self.held.items()},
        )


type Compare = Callable[[tuple[str, str], tuple[str, str]], Mapping[str, Any] | None]
"""Given URL and path of a variable in two files: the first difference as facts of an error."""


type ReadValues = Callable[[str, str], NDArray[Any] | None]
"""Given URL and path of a variable in a file: its values; None where they cannot be read."""


class GroupsOf(Protocol):
    """Reads the groups of a file; nothing of one whose groups lack the attribute asked for."""

    def __call__(self, row: int, *, saying: str = "") -> tuple[ScannedGroup, ...]:
        """Return the groups of a file row; they may be none where none has ``saying``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogFacts:
    """A closed catalog, as far as a plan needs it."""

    files: FileColumns
    arrays: ArrayColumns
    groups_of: GroupsOf  # read on demand
    places: Strings  # (m,) URLs of files, or of directories, that references lead to
    compare: Compare | None = None  # reads values of two files, to tell where they differ
    values: ReadValues | None = None  # reads values of a file, to tell how far they differ
    cuts: StepCuts | None = None  # (files,) where files overlap in part
    alike: frozenset[str] = frozenset()  # arrays that mean the same in all files, however stored

    def url_of(self, row: int | np.integer) -> str:
        """Return the URL of the file of an array, given the row of the array."""
        return self.files.url[int(self.arrays.file[row])]

    def place_of(self, row: int | np.integer) -> tuple[str, str]:
        """Return the URL of the file of an array, and the path of the array there."""
        return self.url_of(row), self.arrays.in_files[int(row)]

    def only(self, rows: NDArray[np.int64]) -> CatalogFacts:
        """Return the facts of some files, in the order given."""
        groups_of = self.groups_of
        return CatalogFacts(
            files=self.files.take(rows),
            arrays=self.arrays.of_files(rows, len(self.files)),
            groups_of=lambda row, *, saying="": groups_of(int(rows[row]), saying=saying),
            places=self.places,
            compare=self.compare,
            values=self.values,
            cuts=None if self.cuts is None else self.cuts.take(rows),
            alike=self.alike,
        )


def distinct(columns: Sequence[Coded]) -> list[NDArray[np.int64]]:
    """Return the combinations of codes that occur in some columns, each once."""
    found, _ = joint([e.codes for e in columns], [max(1, len(e.values)) for e in columns])
    return [*found.T]


def variables_of(facts: CatalogFacts) -> Iterator[tuple[str, ArraySchema]]:
    """Yield each path with each schema that files have it in, once."""
    arrays = facts.arrays
    pairs = (each.tolist() for each in distinct((arrays.path, arrays.schema)))
    for path, code in zip(*pairs, strict=True):
        yield arrays.path.values[path], ArraySchema.loads(arrays.schema.values[code])


def describe_variables(
    facts: CatalogFacts,
) -> Iterator[tuple[str, tuple[str | None, ...], Mapping[str, Any]]]:
    """Yield path, dimensions and attributes of all variables; a path may come several times."""
    return ((path, s.dimension_names, s.attributes.values) for path, s in variables_of(facts))


def listing_groups(facts: CatalogFacts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and attributes of groups that list coordinates, equal lists once."""
    found = {
        (group.path, text): group.attributes.values
        for row in range(len(facts.files))
        for group in facts.groups_of(row, saying="coordinates")
        if isinstance(text := group.attributes.values.get("coordinates"), str)
    }
    return ((path, values) for (path, _), values in found.items())


_ROWS = 1 << 20  # that are sorted at a time


def by_path(facts: CatalogFacts) -> Iterator[tuple[str, NDArray[np.integer]]]:
    """Yield the rows of each array, in their order."""
    path = facts.arrays.path
    narrow = np.int32 if len(path) <= np.iinfo(np.int32).max else np.int64
    first = path.codes[: len(path.values)]
    if _repeats(path.codes, first):  # all files hold the same arrays in the same order
        for code, name in enumerate(path.values):
            at = int(np.flatnonzero(first == code)[0])
            yield name, np.arange(at, len(path), len(first), dtype=narrow)
        return
    counts = path.counts()
    ends = np.cumsum(counts)
    order: NDArray[np.integer] = np.empty(len(path), narrow)
    free = ends - counts
    for low in range(0, len(order), _ROWS):
        codes = path.codes[low : low + _ROWS]
        rows = np.argsort(codes, kind="stable")
        taken = np.bincount(codes, minlength=len(counts))
        before = np.cumsum(taken) - taken
        order[np.arange(len(codes)) + np.repeat(free - before, taken)] = rows + low
        free += taken
    for name, count, end in zip(path.values, counts.tolist(), ends.tolist(), strict=True):
        yield name, order[end - count : end]


def _repeats(codes: NumberColumn, first: NDArray[np.integer]) -> bool:
    """Say whether a column is nothing but repetitions of some different codes."""
    if not len(first) or len(codes) % len(first) or len(np.unique(first)) < len(first):
        return False
    rows = max(1, _ROWS // len(first)) * len(first)
    return all(
        bool((codes[low : low + rows].reshape(-1, len(first)) == first).all())
        for low in range(0, len(codes), rows)
    )
