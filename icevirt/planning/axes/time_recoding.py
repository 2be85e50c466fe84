"""Convert times with different units and reference dates to one of each, without loss.

CF 4.4: a time coordinate counts units since a reference date in a calendar. Archives often write
"days since" the beginning of each file. Two such coordinates become one when every value, in whole
microseconds of its calendar, stays the same; microseconds are what cftime and xarray keep.

Afterwards the schemas of all files name the same units and the labels that order files use them.
Each affected array has a `Recoding` that the write stage applies. Only stored arrays take part:
arrays with a concatenated dimension whose values the scan read. Bounds follow their coordinate (CF
7.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Coded
from icevirt.archive.hybrid import Recoding, TimeUnits
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model import paths
from icevirt.model.attributes import Attributes, restore
from icevirt.planning.remedies import leave_out

_SINCE = re.compile(r"\s*(?P<unit>[A-Za-z]+)\s+since\s+(?P<reference>\S.*?)\s*")
_MICROSECONDS = {
    name: size
    for size, names in (
        (1, "microsecond microseconds microsec microsecs"),
        (1_000, "millisecond milliseconds millisec millisecs msec msecs ms"),
        (1_000_000, "second seconds sec secs s"),
        (60_000_000, "minute minutes min mins"),
        (3_600_000_000, "hour hours hr hrs h"),
        (86_400_000_000, "day days d"),
    )
    for name in names.split()
}
DURATIONS = frozenset((*_MICROSECONDS, "nanosecond", "nanoseconds", "ns"))
"""Units of plain durations, which xarray may decode."""
_STANDARD = ("standard", "gregorian", "")
_ORIGIN = "microseconds since 1970-01-01"
_LONGEST = 1 << 62  # microseconds; 146,000 years
_SCALING = ("scale_factor", "add_offset", "_Unsigned")
_MISSING = ("_FillValue", "missing_value")
BOUNDS = ("bounds", "climatology")


class InexactError(ValueError):
    """A time has no exact place in the common units; the message says which."""


def parse(units: object, calendar: object = None) -> TimeUnits | None:
    """Read a ``units`` attribute; None where it counts no time, or months, or cannot be read."""
    found = _SINCE.fullmatch(units) if isinstance(units, str) else None
    if found is None or (step := _MICROSECONDS.get(found["unit"].lower())) is None:
        return None
    name = str(calendar or "standard").lower()
    name = "standard" if name in _STANDARD else name
    origin = _origin(f"{found['unit']} since {found['reference']}", name)
    if origin is None:
        return None
    return TimeUnits(
        unit=found["unit"], reference=found["reference"], calendar=name, step=step, origin=origin
    )


def _origin(units: str, calendar: str) -> int | None:
    import cftime

    try:
        date = cftime.num2date(0, units, calendar)
        return int(cftime.date2num(date, _ORIGIN, calendar))
    except (ValueError, TypeError, OverflowError):
        return None


def common(units: Sequence[TimeUnits]) -> TimeUnits | None:
    """Return the first reference in the finest unit; None where calendars differ."""
    if len({each.calendar for each in units}) != 1:
        return None
    first, finest = units[0], min(units, key=lambda each: each.step)
    if finest.step == first.step:
        return first
    return TimeUnits(
        unit=finest.unit,
        reference=first.reference,
        calendar=first.calendar,
        step=finest.step,
        origin=first.origin,
    )


def microseconds(
    values: NDArray[Any], units: TimeUnits, *, missing: Sequence[float | int] = ()
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return times since 1970-01-01 in whole microseconds, and which are there at all.

    Raises:
        InexactError: One lies further away than microseconds can count.
    """
    there = ~np.isin(values, np.array(missing, values.dtype)) if missing else np.True_
    there = np.broadcast_to(there, values.shape).copy()
    if values.dtype.kind == "f":
        there &= np.isfinite(values)
    known = np.where(there, values, 0)
    with np.errstate(over="ignore"):  # infinity is far too
        far = np.abs(known.astype(np.float64)) * units.step + abs(units.origin)
    if (far > _LONGEST).any():
        raise InexactError(f"{known[far > _LONGEST].flat[0]} {units.text} is out of range")
    if values.dtype.kind == "f":
        # whole units and the rest apart: a product of the two would lose the last digits
        whole = np.floor(known.astype(np.float64))
        rest = np.rint((known - whole).astype(np.float64) * units.step).astype(np.int64)
        counted = whole.astype(np.int64) * units.step + rest
    else:
        counted = known.astype(np.int64) * units.step
    return counted + units.origin, there


def recoded(
    values: NDArray[Any],
    source: TimeUnits,
    target: TimeUnits,
    *,
    missing: Sequence[float | int] = (),
) -> NDArray[Any]:
    """Return the same times in the units of ``target``, in the dtype they had.

    Args:
        values: Raw times in the units of ``source``, any shape.
        source: Their units.
        target: Other units of the same calendar.
        missing: Values that say "no time"; they and NaN stay as they are.

    Raises:
        InexactError: A time has no exact value there: it is between two numbers, or too large.
    """
    if source == target or (source.step, source.origin) == (target.step, target.origin):
        return values
    times, there = microseconds(values, source, missing=missing)
    counted = times - target.origin
    if values.dtype.kind == "f":
        whole, rest = np.divmod(counted, target.step)
        new = (whole + rest / target.step).astype(values.dtype)
    else:
        new = (counted // target.step).astype(values.dtype)
    new = np.where(there, new, values).astype(values.dtype)
    back, still = microseconds(new, target, missing=missing)
    wrong = there & ((back != times) | ~still)
    if wrong.any():
        raise InexactError(
            f"{values[wrong].flat[0]} {source.text} has no exact value in {target.text}"
        )
    return new


def units_of(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return what an array counts; None where that is no time, or the numbers are scaled."""
    if any(name in attributes for name in _SCALING):
        return None
    return parse(attributes.get("units"), attributes.get("calendar"))


def missing_of(attributes: Attributes) -> tuple[float, ...]:
    """Return the numbers that mean "no time"."""
    attrs = restore(attributes.values, attributes.dtypes)
    found = [np.asarray(attrs[name]).reshape(-1) for name in _MISSING if name in attrs]
    return tuple(n for each in found if each.dtype.kind in "iuf" for n in each.tolist())


def bounds_of(path: str, attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the variables that hold the bounds of a coordinate."""
    for name in BOUNDS:
        if isinstance(target := attributes.get(name), str) and target:
            yield target if target.startswith("/") else paths.join(paths.parent(path), target)


def counting_array(arrays: Iterable[ScannedArray], path: str) -> ScannedArray | None:
    """Return the array whose units a variable's numbers have: itself, or what it bounds."""
    known = {each.path: each for each in arrays}
    if path in known and "units" in known[path].attributes.values:
        return known[path]
    bounded = (
        each for each in known.values() if path in bounds_of(each.path, each.attributes.values)
    )
    return next(bounded, None)


def recode_times(
    facts: CatalogFacts, dimensions: Sequence[str]
) -> tuple[CatalogFacts, dict[str, Recoding]]:
    """Return the facts with equal units, and what the write stage does for each array, by path.

    Arrays that cannot be brought to one count stay as they are; the plan refuses them.

    Raises:
        CombineError: The bounds of a coordinate would have to be recoded and cannot be.
    """
    if not dimensions or len(facts.files) < 2:
        return facts, {}
    return _Pass(facts, dimensions).run()


class _Pass:
    """One look at all arrays; schemas are parsed once."""

    def __init__(self, facts: CatalogFacts, dimensions: Sequence[str]) -> None:
        self._facts = facts
        self._dimensions = frozenset(dimensions)
        self._schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
        self._rows = {
            path: np.flatnonzero(facts.arrays.path.codes == code)
            for code, path in enumerate(facts.arrays.path.values)
        }
        self._calendars = self._of_bounds()
        self._texts = list(facts.arrays.schema.values)
        self._codes = facts.arrays.schema.codes.astype(np.int32)
        self._labels = facts.arrays.labels

    def run(self) -> tuple[CatalogFacts, dict[str, Recoding]]:
        done: dict[str, Recoding] = {}
        for path, rows in self._rows.items():
            recoding = self._recoding(path, rows)
            if recoding is None:
                continue
            done[path] = recoding
            self._rename(rows, recoding)
            self._relabel(rows, recoding)
            attributes = self._schemas[self._facts.arrays.schema.codes[rows[0]]].attributes
            for bounds in bounds_of(path, attributes.values):
                if (inherited := self._inherited(path, bounds, recoding)) is not None:
                    done[bounds] = inherited
        if not done:
            return self._facts, {}
        arrays = replace(
            self._facts.arrays,
            schema=Coded.of(self._texts).take(self._codes),
            labels=self._labels,
        )
        return replace(self._facts, arrays=arrays), done

    def _of_bounds(self) -> dict[str, dict[str, Any]]:
        """Return the calendar of each coordinate, by the path of its bounds, which inherit it."""
        found: dict[str, dict[str, Any]] = {}
        for path, rows in self._rows.items():
            for code in np.unique(self._facts.arrays.schema.codes[rows]).tolist():
                attrs = self._schemas[code].attributes.values
                if "calendar" in attrs:
                    for bounds in bounds_of(path, attrs):
                        found[bounds] = {"calendar": attrs["calendar"]}
        return found

    # -- what counts differently -------------------------------------------------------------

    def _recoding(self, path: str, rows: NDArray[np.int64]) -> Recoding | None:
        codes = self._facts.arrays.schema.codes[rows]
        schemas = {code: self._schemas[code] for code in np.unique(codes).tolist()}
        counted = (
            json.dumps([each.attributes.values.get(name) for name in ("units", "calendar")])
            for each in schemas.values()
        )
        if len({*counted}) < 2:
            return None
        if not all(self._takes_part(each) for each in schemas.values()):
            return None
        calendar = self._calendars.get(path, {})
        units = {
            code: units_of({**calendar, **each.attributes.values}) for code, each in schemas.items()
        }
        ordered = [units[code] for code in dict.fromkeys(codes.tolist())]
        known = [each for each in ordered if each is not None]
        target = common(known) if len(known) == len(ordered) else None
        if target is None:
            return None
        return self._made(rows, target, [units[code] or target for code in codes.tolist()])

    def _takes_part(self, schema: ArraySchema) -> bool:
        return (
            schema.whole
            and not self._dimensions.isdisjoint(schema.dimension_names)
            and "units" not in schema.attributes.replaced
        )

    def _made(
        self, rows: NDArray[np.int64], target: TimeUnits, counted: Sequence[TimeUnits]
    ) -> Recoding:
        sources = tuple(dict.fromkeys(counted))
        source = np.zeros(len(self._facts.files), np.int32)
        number = {each: at for at, each in enumerate(sources)}
        source[self._facts.arrays.file[rows]] = [number[each] for each in counted]
        attributes = self._schemas[self._facts.arrays.schema.codes[rows[0]]].attributes
        return Recoding(
            target=target, sources=sources, source=source, missing=missing_of(attributes)
        )

    def _inherited(self, path: str, bounds: str, recoding: Recoding) -> Recoding | None:
        rows = self._rows.get(bounds)
        if rows is None:
            return None
        schemas = [self._schemas[c] for c in np.unique(self._facts.arrays.schema.codes[rows])]
        if any("units" in each.attributes.values for each in schemas):
            return None  # they count for themselves
        if not all(self._takes_part(each) for each in schemas):
            raise CombineError(
                f"the times of {path} have different reference dates, and its bounds {bounds} "
                "cannot be recoded because they are referenced, not stored",
                do=f"Leave the bounds out with {leave_out(bounds)}, or build the files of"
                " each reference date into a group of its own.",
                variable=bounds,
                units=sorted({each.text for each in recoding.sources})[:5],
            )
        return replace(recoding, missing=missing_of(schemas[0].attributes))

    # -- made alike --------------------------------------------------------------------------

    def _rename(self, rows: NDArray[np.int64], recoding: Recoding) -> None:
        codes = self._facts.arrays.schema.codes[rows]
        first = self._schemas[codes[0]].attributes
        for code in np.unique(codes).tolist():
            schema = self._schemas[code]
            attributes = _counting_as(schema.attributes, recoding.target, first)
            self._texts.append(replace(schema, attributes=attributes).dumps())
            self._codes[rows[codes == code]] = len(self._texts) - 1

    def _relabel(self, rows: NDArray[np.int64], recoding: Recoding) -> None:
        arrays, labels = self._facts.arrays, self._labels
        places = labels.places(rows)
        places = places[places >= 0]
        made = []
        for place in places.tolist():
            row = int(labels.row[place])
            path, file = arrays.path[row], int(arrays.file[row])
            url = self._facts.files.url[file]
            made.append(recoded_values(labels.at(place), recoding, file, path=path, url=url))
        self._labels = labels.replaced(places, made)


def recoded_values(
    values: NDArray[Any], recoding: Recoding, file: int, *, path: str, url: str
) -> NDArray[Any]:
    """Return the times of one file in the units of the dataset.

    Raises:
        CombineError: One has no exact value there.
    """
    try:
        return recoded(values, recoding.of(file), recoding.target, missing=recoding.missing)
    except InexactError as error:
        raise CombineError(
            f"a time of {path} cannot be converted to the units of the other files: {error}",
            do="Build the files of each reference date into a group of its own.",
            variable=path,
            file=url,
        ) from error


def _counting_as(attributes: Attributes, target: TimeUnits, first: Attributes) -> Attributes:
    """Return attributes with other units, and with the calendar as the first file spells it."""
    values = {name: value for name, value in attributes.values.items() if name != "calendar"}
    values["units"] = target.text
    if "calendar" in first.values:
        values["calendar"] = first.values["calendar"]
    return replace(attributes, values=values)


def describe_recodings(recodings: Mapping[str, Recoding]) -> Iterable[str]:
    """Yield a line for each array that is recoded."""
    for path, recoding in recodings.items():
        if len(recoding.sources) > 1:
            yield (
                f"{path}: {len(recoding.sources)} time units converted to "
                f"{recoding.target.text!r}, every value exactly"
            )
