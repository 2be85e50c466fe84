"""Describe an array apart from its shape and values, and what decides how values decode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.attributes import Attributes, is_derived, members_of
from icevirt.model.json import JSON, dump

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedGroup:
    """A group and its attributes."""

    path: str
    attributes: Attributes = field(default_factory=Attributes)

    def zarr_json(
        self, attributes: Attributes | None = None, *, variables: Sequence[str] = ()
    ) -> bytes:
        """Return the group's zarr.json, with other attributes where given.

        ``variables`` are the names of its arrays in their order.
        """
        shown = self.attributes if attributes is None else attributes
        return dump(
            {
                "zarr_format": 3,
                "node_type": "group",
                "attributes": dict(shown.values),
                **shown.extension(variables),
            }
        )


# Attributes that change decoded values, or what a decoded value means (CF 2.5, 3.1, 4.4, 8.1; NUG).
DECODING = (
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "units",
    "calendar",
    "flag_values",
    "flag_masks",
    "flag_meanings",
    "_Encoding",
    "dtype",
    "scales",  # of bands, as rioxarray has them
    "offsets",
)
_OF_STEPS = "long_name"  # a list of names says what the steps along an axis are
MEMBERS = "members of the enumeration"  # among the facts that decide decoding
_REMEMBERED = 1024  # texts of schemas
# Settings of an encoder that a decoder never looks at.
_ENCODER_ONLY = ("level", "acceleration", "clevel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySchema:
    """Everything about a scanned array that is usually alike in all files of an archive."""

    dimension_names: tuple[str | None, ...]
    chunk_shape: tuple[int, ...] | None  # None where the array is stored whole
    data_type: JSON
    codecs: tuple[JSON, ...]
    fill_value: JSON
    attributes: Attributes = field(default_factory=Attributes)
    contiguous: bool = False  # see `ScannedArray`
    lacks: tuple[int, ...] = ()  # axes that the variable has not in its file, each of length 1
    placed_by: Mapping[str, JSON] | None = None  # see `ScannedArray`

    @property
    def whole(self) -> bool:
        """Whether the values were read at scan time and can be joined at any length."""
        return self.chunk_shape is None

    def dumps(self) -> str:
        """Return the JSON that the catalog holds."""
        return json.dumps(
            {
                "dimension_names": self.dimension_names,
                "chunk_shape": self.chunk_shape,
                "data_type": self.data_type,
                "codecs": self.codecs,
                "fill_value": self.fill_value,
                "attributes": dict(self.attributes.values),
                "attribute_dtypes": dict(self.attributes.dtypes),
                "replaced_attributes": dict(self.attributes.replaced),
                **({"contiguous": True} if self.contiguous else {}),
                **({"lacks": self.lacks} if self.lacks else {}),
                **({} if self.placed_by is None else {"placed_by": dict(self.placed_by)}),
            },
            allow_nan=False,
        )

    @staticmethod
    @lru_cache(_REMEMBERED)
    def loads(text: str) -> ArraySchema:
        """Undo `dumps`; texts that repeat are parsed once."""
        raw = json.loads(text)
        edges = raw["chunk_shape"]
        return ArraySchema(
            dimension_names=tuple(raw["dimension_names"]),
            chunk_shape=None if edges is None else tuple(edges),
            data_type=raw["data_type"],
            codecs=tuple(raw["codecs"]),
            fill_value=raw["fill_value"],
            attributes=Attributes(
                values=raw["attributes"],
                dtypes=raw["attribute_dtypes"],
                replaced={k: (was, now) for k, (was, now) in raw["replaced_attributes"].items()},
            ),
            contiguous=bool(raw.get("contiguous", False)),
            lacks=tuple(raw.get("lacks", ())),
            placed_by=raw.get("placed_by"),
        )

    def decode_signature(self, *, stored: bool = True) -> dict[str, Any]:
        """Return the facts that must mean the same in files that share an array, by name.

        Settings that only an encoder uses (a compression level) are not among them. ``stored``
        False leaves out how chunks are cut and encoded, for arrays whose values were read.
        """
        facts: dict[str, Any] = {
            "dimension names": list(self.dimension_names),
            "data type": self.data_type,
        }
        if stored:
            facts["fill value"] = self.fill_value  # of chunks that were never written
            facts["chunk shape"] = list(self.chunk_shape or ())
            facts["codecs"] = [decoder_of(codec) for codec in self.codecs]
        if (members := members_of(self.attributes)) is not None:
            facts[MEMBERS] = members
        is_list = not isinstance(self.attributes.values.get(_OF_STEPS, ""), str)
        for name in (*DECODING, *([_OF_STEPS] if is_list else ())):
            if name in self.attributes.values and not is_derived(self.attributes, name):
                facts[f"attribute {name}"] = [
                    self.attributes.values[name],
                    self.attributes.dtypes.get(name),
                ]
        return facts


def decoder_of(codec: JSON) -> JSON:
    """Return a codec without the settings that only an encoder uses."""
    if not isinstance(codec, Mapping):
        return codec
    configuration = codec.get("configuration")
    if not isinstance(configuration, Mapping):
        return codec
    kept = {key: value for key, value in configuration.items() if key not in _ENCODER_ONLY}
    return {"name": codec.get("name"), "configuration": kept}


DURATION = "duration"
"""In the place of a calendar: the numbers count from nothing."""
MEASURES = "measure of "
"""Begins what stands in the place of a calendar where labels are lengths, pressures ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnits:
    """What the numbers of a time coordinate count (CF 4.4), or of a duration or a measure."""

    unit: str
    reference: str  # "" of durations and measures
    calendar: str  # "standard" where none is named
    step: int  # nanoseconds of a unit; of measures, how many of the finest unit it is
    origin: int  # microseconds from 1970-01-01 to the reference, in the calendar
    nanosecond: int = 0  # of the reference, after its microseconds
    is_fine: bool  # whether xarray decodes to nanoseconds; it decodes other times to microseconds
    is_one: bool = True  # whether xarray reads one reference date, however far the times are

    mark: str = ""  # the attribute by which xarray knows durations, like "timedelta64[ns]"

    @property
    def text(self) -> str:
        """The ``units`` attribute."""
        return f"{self.unit} since {self.reference}" if self.reference else self.unit

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes that say it, but for the calendar."""
        return {"units": self.text, **({"dtype": self.mark} if self.mark else {})}

    @property
    def meaning(self) -> tuple[int, int, int, str]:
        """What is equal for units that differ in their spelling only."""
        return self.step, self.origin, self.nanosecond, self.calendar


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitColumns:
    """What numbers count: the unit and the reference of each file, or of each number."""

    step: NDArray[np.int64]  # nanoseconds of a unit
    origin: NDArray[np.int64]  # microseconds from 1970-01-01 to the reference
    nanosecond: NDArray[np.int64]  # of the reference, after its microseconds

    @classmethod
    def of(cls, units: Sequence[TimeUnits]) -> UnitColumns:
        """Return the columns of some units."""
        step, origin, nanosecond = np.array(
            [(each.step, each.origin, each.nanosecond) for each in units], np.int64
        ).T
        return cls(step=step, origin=origin, nanosecond=nanosecond)

    def apply(self, change: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> UnitColumns:
        """Return the columns after one change of each."""
        columns = (change(each) for each in (self.step, self.origin, self.nanosecond))
        return UnitColumns(**dict(zip(("step", "origin", "nanosecond"), columns, strict=True)))

    def equal(self, other: UnitColumns | TimeUnits) -> NDArray[np.bool_]:
        """Say where numbers count the same."""
        same: NDArray[np.bool_] = (
            (self.step == other.step)
            & (self.origin == other.origin)
            & (self.nanosecond == other.nanosecond)
        )
        return same


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStorage:
    """How files hold the numbers of a time."""

    schema: ArraySchema  # their data type and codecs, and nothing else
    missing: tuple[float, ...]  # numbers that mean "no time"
    calendar: str
    is_fine: bool  # see `TimeUnits`, as the next
    is_one: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recoding:
    """An array whose files count time differently, and what it counts in the dataset."""

    target: TimeUnits
    data_type: str
    fill: int | float | None  # the number that means "no time"; None where no file has one
    counts: UnitColumns  # (files,)
    kind: NDArray[np.int32]  # (files,) which of ``kinds`` they are
    kinds: tuple[TimeStorage, ...]

    def take(self, rows: NDArray[np.integer] | slice) -> Recoding:
        """Return the recoding of some files, in their order."""
        counts = self.counts.apply(lambda column: column[rows])
        return replace(self, counts=counts, kind=self.kind[rows])

    def spread(self, place: NDArray[np.int64], size: int) -> Recoding:
        """Return the recoding of ``size`` files, among which these have places."""

        def column[T: np.generic](held: NDArray[T]) -> NDArray[T]:
            wide = np.zeros(size, held.dtype)
            wide[place] = held
            return wide

        return replace(self, counts=self.counts.apply(column), kind=column(self.kind))

    def storage(self, file: int) -> TimeStorage:
        """Return how a file holds its numbers."""
        return self.kinds[int(self.kind[file])]
