"""Read the values of the coordinate that orders files, per file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Labels
from icevirt.archive.kinds import occurring
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.dates import written
from icevirt.planning.axes.file_order import Keys, Runs, decoded, decoding
from icevirt.planning.times.instants import InexactError, microseconds
from icevirt.planning.times.units import missing_of, parse, units_of

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
        return Keys(runs=runs, missing=missing, shown=lambda at: written(flat[at], attrs))

    def _times(self) -> NDArray[np.int64] | None:
        """Return labels in microseconds; None where they are no times, or lie closer than that."""
        units, flat = units_of(self.attributes.values), self.values.flat
        if units is None or not self.counts_alike or flat.dtype.kind not in "iuf":
            return None
        if not (np.isfinite(flat) | self.missing).all():
            return None
        known = np.where(self.missing, flat.dtype.type(0), flat)
        try:
            times, _ = microseconds(known, units)
        except InexactError:
            return None
        if flat.dtype.kind == "f":
            order = np.argsort(known, kind="stable")
            one, other = known[order[:-1]], known[order[1:]]
            apart = other - one > 4 * np.spacing(np.maximum(np.abs(one), np.abs(other)))
            if (apart & (np.diff(times[order]) == 0)).any():
                return None
        return np.where(self.missing, np.iinfo(np.int64).min, times)


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
    for code in arrays.path.used(path_of).tolist():
        if paths.name(arrays.path.values[code]) == dimension:
            places = np.flatnonzero(path_of == code)
            place = np.full(len(facts.files), -1, np.min_scalar_type(-len(labels.row) - 1))
            place[arrays.file[labels.row[places]]] = places
            yield arrays.path.values[code], place


def _is_of_one_kind(facts: CatalogFacts, places: NDArray[np.integer]) -> bool:
    """Say whether labels at some places are all numbers or all texts."""
    dtype = facts.arrays.labels.dtype
    held = {np.dtype(dtype.values[code]).kind for code in dtype.used(dtype.codes[places]).tolist()}
    return held <= {*_NUMBERS} or held <= {*_TEXTS}


def _coordinate(facts: CatalogFacts, path: str, places: NDArray[np.integer]) -> Coordinate:
    """Return a coordinate, given the places of the labels of some files."""
    arrays, labels = facts.arrays, facts.arrays.labels
    schemas = arrays.schema.codes[labels.row[places]]
    attributes = {
        code: ArraySchema.loads(arrays.schema.values[code]).attributes
        for code in arrays.schema.used(schemas).tolist()
    }
    # an offset that all files have moves all labels alike
    shifted = len({repr(each.values.get("add_offset", 0)) for each in attributes.values()}) > 1
    values, missing = _decoded(labels, places, schemas, attributes, shifted=shifted)
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


def _decoded(
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
        meant = decoded(meant, attrs.values)
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
    gone = np.zeros(len(raw), np.bool_)
    if raw.dtype.kind not in "iuf":
        return gone
    if meaning := missing_of(attributes):
        unsigned = {name: value for name, value in attributes.values.items() if name == "_Unsigned"}
        # what means "missing" may be spelled with a sign where the numbers have none, or without
        for numbers in (raw, decoded(raw, unsigned)):
            gone |= np.isin(numbers, np.array(meaning))
    return gone | np.isnan(raw) if raw.dtype.kind == "f" else gone
