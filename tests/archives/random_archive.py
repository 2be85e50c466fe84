"""Draw archives at random, write their files, and know where each value belongs.

An archive is a value: each field that is not its default is one oddity. So a failing archive is made
smaller by resetting fields one by one. The same seed draws the same archive, file by file.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import h5netcdf.legacyapi
import netCDF4
import numpy as np

STEP = 6  # hours
UNITS = {
    "hours": 1.0,
    "days": 24.0,
    "seconds": 1 / 3600,
    "minutes": 1 / 60,
}
NETCDF3 = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")


@dataclass(frozen=True, kw_only=True)
class RandomArchive:
    """What is odd about an archive; all defaults together are two plain files along time."""

    seed: int
    lengths: tuple[int, ...] = (2, 2)  # steps of each piece along the first dimension
    along: str = "time"  # the first dimension: time, float, int, text, none (no coordinate), or
    # restart (a coordinate that counts the steps of each file from 0)
    falling: bool = False
    gap: bool = False  # a step between the first two pieces that no file holds
    second: str = ""  # lat: files hold bands; member: given by names; run: a scalar; ens: length 1
    pieces: int = 2  # along the second dimension
    missing_box: bool = False  # one file of a grid over two dimensions
    split: bool = False  # two variables in two files of each box
    variables: tuple[str, ...] = ("tas",)
    static: str = ""  # same, varies, somewhere (in one file), alone (a file of its own)
    scalar: str = ""  # same, varies
    bounds: bool = False
    auxiliary: bool = False  # coordinates of two dimensions, named by the attribute
    units: str = "hours since 2000-01-01"
    other_units: str = ""  # of some files: another unit, another reference date
    calendar: str = "standard"
    time_type: str = "f8"
    values: str = "f4"  # i2 and u1 are packed, i4 and i8 are counts
    fill: str = "some"  # of floats: none, nan, some
    holes: bool = False  # values that are missing
    format: str = "NETCDF4"
    writer: str = "netCDF4"
    chunks: str = "contiguous"  # step, file, odd
    zlib: bool = False
    endian: str = "native"
    unlimited: bool = False
    era: str = ""  # what changes in the middle of the archive
    returns: bool = False  # whether the last file is again like the first
    trouble: str = ""  # what is wrong with one file
    shuffled: bool = False  # names do not sort as the labels do
    attrs: str = "same"  # differ: history of each file
    named: bool = True  # whether the caller names the dimensions
    grouped: str = ""  # two groups with dimensions of one name: alike, other (lengths)
    index: str = ""  # numbers of steps within the file, that begin at: 0, 1
    durations: str = ""  # a variable of them, in units that are: same, mixed
    scalar_time: str = ""  # single steps whose time is a scalar: some (files of one step), all

    def oddities(self) -> dict[str, Any]:
        """Return the fields that are not as in a plain archive."""
        plain = RandomArchive(seed=self.seed)
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != getattr(plain, each.name)
        }

    def smaller(self) -> Iterator["RandomArchive"]:
        """Yield archives with one oddity less."""
        plain = RandomArchive(seed=self.seed)
        for name in self.oddities():
            yield replace(self, **{name: getattr(plain, name)})
        for at in range(len(self.lengths)):
            if len(self.lengths) > 2:
                yield replace(self, lengths=self.lengths[:at] + self.lengths[at + 1 :])

    @property
    def is_unlabelled(self) -> bool:
        """Whether nothing in files says where their steps belong, so that the caller's order does."""
        return self.along in ("none", "restart")


def drawn(seed: int, *, is_one_dataset: bool = False) -> RandomArchive:
    """Draw an archive: mostly plain, with a few oddities.

    Args:
        seed: Whose archive.
        is_one_dataset: Whether all steps have labels in one group of the files.
    """
    rng = np.random.default_rng([seed, 20])

    def one(*choices: Any, often: float = 0.6) -> Any:
        """Return the first choice often, else one of the others."""
        if rng.random() < often or len(choices) == 1:
            return choices[0]
        return choices[1 + int(rng.integers(len(choices) - 1))]

    even = bool(rng.random() < 0.5)
    count = int(rng.integers(2, 5))
    lengths = tuple(
        int(each) for each in ([rng.integers(1, 5)] * count if even else rng.integers(1, 5, count))
    )
    along = one("time", "float", "int", "text", "none")
    second = one("", "lat", "member", "run", "ens", often=0.7)
    trouble = one(
        "", "twice", "again", "overlap", "overlap-other", "no-variable", "longer", "rounding",
        "nan-label", "unsorted", "transposed", "extra", "empty", "other-units", "other-dtype",
        often=0.7,
    )  # fmt: skip
    form = one("NETCDF4", "NETCDF4_CLASSIC", *NETCDF3, often=0.65)
    made = RandomArchive(
        seed=seed,
        lengths=lengths,
        along=along,
        falling=one(False, True, often=0.9),
        gap=one(False, True, often=0.85),
        second=second,
        pieces=int(rng.integers(2, 4)),
        missing_box=bool(second) and one(False, True, often=0.85),
        split=one(False, True, often=0.85),
        variables=one(("tas",), ("tas", "pr"), ("tas", "pr", "flag"), often=0.5),
        static=one("", "same", "varies", "somewhere", "alone"),
        scalar=one("", "same", "varies", often=0.8),
        bounds=one(False, True, often=0.8),
        auxiliary=one(False, True, often=0.85),
        units=one(
            "hours since 2000-01-01", "days since 1850-01-01", "seconds since 1970-01-01",
            "minutes since 1999-12-30 12:00:00",
        ),
        other_units=one("", "unit", "reference", "each", often=0.7),
        calendar=one("standard", "noleap", "360_day", "proleptic_gregorian", often=0.7),
        time_type=one("f8", "i4", "i8", "f4", often=0.7) if form not in NETCDF3 else one("f8", "i4"),
        values=one("f4", "f8", "i2", "u1", "i4", "i8", often=0.4) if form not in NETCDF3
        else one("f4", "f8", "i2", "i4", often=0.5),
        fill=one("some", "nan", "none", often=0.4),
        holes=one(False, True, often=0.7),
        format=form,
        writer=one("netCDF4", "h5netcdf", often=0.8) if form == "NETCDF4" else "netCDF4",
        chunks=one("contiguous", "step", "file", "odd", often=0.3),
        zlib=one(False, True, often=0.6),
        endian=one("native", "big", often=0.92),
        unlimited=one(False, True, often=0.6),
        era=one(
            "", "zlib", "chunks", "scale", "fill", "dtype", "endian", "format", "level", "attrs",
            "shuffle", often=0.75,
        ),
        returns=one(False, True, often=0.8),
        trouble=trouble,
        shuffled=one(False, True, often=0.7),
        attrs=one("same", "differ", often=0.7),
        named=one(True, False, often=0.5),
        durations=one("", "same", "mixed", often=0.85),
    )  # fmt: skip
    if is_one_dataset:
        return replace(made, durations="")
    return _with_scopes(made, one)


def _with_scopes(made: RandomArchive, one: Callable[..., Any]) -> RandomArchive:
    """Draw what needs more than labels in one group."""
    restarts = one(False, True, often=0.9)
    index = one("", "0", "1", often=0.6)
    grouped = one("", "alike", "other", often=0.85)
    scalar_time = one("", "some", "all", often=0.8)
    made = replace(made, along="restart") if restarts else made
    if made.along == "none":
        made = replace(made, index=index)
    if made.format == "NETCDF4" and made.era != "format":
        made = replace(made, grouped=grouped)
    if made.along == "time" and scalar_time:
        made = replace(made, scalar_time=scalar_time, second="", trouble="", unlimited=False)
        lengths = made.lengths if scalar_time == "some" else (1,) * len(made.lengths)
        made = replace(made, lengths=(1, *lengths[1:]), falling=False)
    return made


@dataclass(kw_only=True)
class RawVariable:
    """A variable as a file stores it."""

    dims: tuple[str, ...]
    values: Any
    attrs: dict[str, Any] = field(default_factory=dict)
    fill: Any = None
    how: dict[str, Any] = field(default_factory=dict)  # arguments of createVariable


@dataclass(kw_only=True)
class RandomFile:
    """A file: where its steps belong, and what it stores."""

    name: str
    at: dict[str, np.ndarray]  # the position of each step along the concatenated dimensions
    format: str
    writer: str
    modified: int
    variables: dict[str, RawVariable] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    unlimited: tuple[str, ...] = ()
    groups: dict[str, "RandomFile"] = field(default_factory=dict)  # in the place of variables
    squeezed: tuple[str, ...] = ()  # variables that lack the first dimension, whose step is single

    def write(self, folder: Path) -> None:
        """Write the file."""
        path = folder / self.name
        module = netCDF4 if self.writer == "netCDF4" else h5netcdf.legacyapi
        more = {"format": self.format} if self.writer == "netCDF4" else {}
        with module.Dataset(path, "w", **more) as file:
            self.fill(file)
            for name, inside in self.groups.items():
                inside.fill(file.createGroup(name))
        os.utime(path, (self.modified, self.modified))

    def fill(self, file: Any) -> None:
        """Write attributes, dimensions and variables into a file or a group."""
        for name, value in self.attrs.items():
            file.setncattr(name, value)
        for name, size in self.sizes().items():
            file.createDimension(name, None if name in self.unlimited else size)
        for name, raw in self.variables.items():
            kind = str if raw.values.dtype.kind == "O" else raw.values.dtype
            made = file.createVariable(
                name, kind, raw.dims, **({} if raw.fill is None else {"fill_value": raw.fill}),
                **raw.how,
            )  # fmt: skip
            for key, value in raw.attrs.items():
                made.setncattr(key, value)
            if self.writer == "netCDF4":
                made.set_auto_maskandscale(False)
            if raw.values.size:
                made[...] = raw.values

    def sizes(self) -> dict[str, int]:
        """Return the length of each dimension."""
        return {
            name: size
            for raw in self.variables.values()
            for name, size in zip(raw.dims, raw.values.shape, strict=True)
        }
