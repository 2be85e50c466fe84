"""Gather what the files of a catalog declare about the numbers of their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.archive.times import TimeStorage, TimeUnits
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.planning.times.targets import DeclaredTimes
from icevirt.planning.times.units import bounds_of, missing_of, units_of

_TYPES = frozenset(
    (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
)
_COUNTING = ("units", "calendar", "scale_factor", "add_offset", "_Unsigned")


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
        self.rows = {
            path: np.flatnonzero(facts.arrays.path.codes == code)
            for code, path in enumerate(facts.arrays.path.values)
        }
        self.owners: dict[str, str] = {}
        """The coordinate of each variable that holds bounds."""
        for path in self.rows:
            for said in self._all(path):
                if not said.counting.keys().isdisjoint(("units", "calendar")):
                    known = (each for each in said.bounds if each in self.rows)
                    self.owners |= dict.fromkeys(known, path)

    def is_stored(self, path: str) -> bool:
        """Say whether all files hold a variable as plain numbers that the scan read."""
        return all(each.is_stored for each in self._all(path))

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
        rows = self.rows[path]
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
            theirs[self._arrays.file[self.rows[owner]]] = codes[self.rows[owner]]
        pair = np.stack([codes[rows], theirs[self._arrays.file[rows]]], axis=1)
        pairs, number = np.unique(pair.astype(np.int64), axis=0, return_inverse=True)
        found = []
        for own, other in pairs.tolist():
            said = self._of(path, own)
            more = self._of(owner, other).counting if owner is not None and other >= 0 else {}
            inherited = {name: more[name] for name in ("units", "calendar") if name in more}
            found.append((said, units_of({**inherited, **said.counting})))
        return found, number.reshape(-1)

    def _all(self, path: str) -> Iterator[_Said]:
        for code in np.unique(self._arrays.schema.codes[self.rows[path]]).tolist():
            yield self._of(path, code)

    def _of(self, path: str, code: int) -> _Said:
        known = self._said.get((code, path))
        if known is None:
            schema = ArraySchema.loads(self._arrays.schema.values[code])
            known = self._said[code, path] = self._read(schema, path)
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
    kind = []
    for units, (schema, missing) in zip(counts, storage, strict=True):
        made = TimeStorage(
            schema=schema, missing=missing, calendar=units.calendar, is_fine=units.is_fine
        )
        key = repr(made)
        kinds[key] = made
        kind.append(places.setdefault(key, len(places)))
    return DeclaredTimes(
        first=counts[int(number[0])],
        files=files,
        step=np.array([each.step for each in counts], np.int64)[number],
        origin=np.array([each.origin for each in counts], np.int64)[number],
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
