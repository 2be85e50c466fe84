"""Gather what the files of a catalog declare about the numbers of their times."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.kinds import joint
from icevirt.archive.schema import ArraySchema
from icevirt.archive.times import TimeStorage, TimeUnits, UnitColumns
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.planning.times.targets import DeclaredTimes
from icevirt.planning.times.units import bounds_of, counted_units, finest_mark, missing_of

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
        self._dimensions = frozenset(dimensions)
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

    def differs(self, path: str) -> bool:
        """Say whether files count or hold the numbers of a variable in several ways."""
        ways = ((repr(each.counting), each.held) for each in self._all(path))
        first = next(ways)
        return any(each != first for each in ways)

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
        found, number = self._counted(path, rows)
        counts = [units for _, units in found if units is not None]
        if len(counts) < len(found):
            return None
        storage = [(said.storage, said.missing) for said, _ in found]
        return declared(counts, storage, number, self._arrays.file[rows])

    def _counted(
        self, path: str, rows: NDArray[np.integer]
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
            found.append((said, counted_units({**inherited, **said.counting})))
        return found, number.reshape(-1)

    def _all(self, path: str) -> Iterator[_Said]:
        for code in self._schemas[path]:
            yield self._of(path, code)

    def _of(self, path: str, code: int) -> _Said:
        known = self._said.get((code, path))
        if known is None:
            rest, units = without_units(self._arrays.schema.values[code])
            alike = self._alike.get((rest, path)) if units is not None else None
            if alike is None:
                schema = ArraySchema.loads(self._arrays.schema.values[code])
                known = self._read(schema, path)
                if "units" in known.counting:
                    self._alike[rest, path] = known
            else:
                known = replace(alike, counting={**alike.counting, "units": units})
            self._said[code, path] = known
        return known

    def _read(self, schema: ArraySchema, path: str) -> _Said:
        attrs = schema.attributes
        return _Said(
            counting={name: attrs.values[name] for name in _COUNTING if name in attrs.values},
            storage=storage_of(schema),
            missing=missing_of(attrs),
            is_stored=(
                schema.whole
                and str(schema.data_type) in _TYPES
                and len(schema.codecs) == 1
                and not self._dimensions.isdisjoint(schema.dimension_names)
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


def declared(
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
    places: dict[str, int] = {}
    known: dict[Hashable, int] = {}  # by identity, because most share their schema
    kind = []
    for units, (schema, missing) in zip(counts, storage, strict=True):
        same = id(schema), missing, units.calendar, units.is_fine, units.is_one
        if same not in known:
            made = TimeStorage(
                schema=schema,
                missing=missing,
                calendar=units.calendar,
                is_fine=units.is_fine,
                is_one=units.is_one,
            )
            key = repr(made)
            kinds[key] = made
            known[same] = places.setdefault(key, len(places))
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
