"""Write the files of a random archive: each knows where its steps belong."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cftime
import numpy as np

from archives.random_archive import NETCDF3, STEP, UNITS, RandomArchive, RandomFile, RawVariable

NAMES = {
    "time": "time",
    "float": "depth",
    "int": "level",
    "text": "station",
    "none": "obs",
    "restart": "scan",
}
NEW = ("member", "run")  # dimensions that no file has
BAND = 2  # latitudes of a file
Y, X = 2, 3
FILLS = {"f": 1e20, "i": -99, "u": 255}
_ORDERED = ("twice", "again", "overlap", "overlap-other", "nan-label", "unsorted")


def first_of(archive: RandomArchive) -> str:
    """Return the name of the first dimension."""
    return "nface" if archive.index else NAMES[archive.along]


def dimensions_of(archive: RandomArchive) -> list[str]:
    """Return the names of the concatenated dimensions, the outermost first."""
    second = second_of(archive)
    own = [first_of(archive)]
    return [second, *own] if second in NEW else [*own, *([second] if second else [])]


def second_of(archive: RandomArchive) -> str:
    """Return the second dimension, which files without coordinates cannot have."""
    return "" if archive.is_unlabelled else archive.second


def trouble_of(archive: RandomArchive) -> str:
    """Return what is wrong with a file; without coordinates no labels can be.

    xarray reads no times of other calendars where there are none, and the reference date for NaN.
    """
    if archive.trouble in ("empty", "nan-label") and archive.calendar in ("noleap", "360_day"):
        return ""
    return "" if archive.is_unlabelled and archive.trouble in _ORDERED else archive.trouble


def twin_of(archive: RandomArchive) -> RandomArchive:
    """Return what a second group of the files holds: dimensions of the same names."""
    lengths = archive.lengths if archive.grouped == "alike" else archive.lengths[::-1]
    return replace(archive, grouped="", lengths=lengths, values="f8", zlib=not archive.zlib)


def files_of(archive: RandomArchive) -> list[RandomFile]:
    """Return the files in the order of their labels."""
    if not archive.grouped:
        return _files_of(archive)
    one, other = _files_of(replace(archive, grouped="")), _files_of(twin_of(archive))
    return [
        replace(each, variables={}, attrs={}, unlimited=(), at={}, groups={"a": each, "b": twin})
        for each, twin in zip(one, other, strict=True)
    ]


def _files_of(archive: RandomArchive) -> list[RandomFile]:
    files = [
        _file(archive, piece, other, names)
        for piece, other in _boxes(archive)
        for names in _groups(archive)
    ]
    if archive.static == "alone" and second_of(archive) not in NEW:
        files.append(_fixed(archive))
    if trouble_of(archive) in ("twice", "again"):
        again = _file(archive, 1, 0, _groups(archive)[0], copy=True)
        files.append(again)
    for number, each in enumerate(files):
        each.modified = 1_600_000_000 + number
    if archive.shuffled and not archive.is_unlabelled:
        order = np.random.default_rng([archive.seed, 1]).permutation(len(files))
        for number, each in zip(order, files, strict=True):
            each.name = f"{number:02d}_{each.name}"
    return files


def _boxes(archive: RandomArchive) -> Iterator[tuple[int, int]]:
    pieces = archive.pieces if second_of(archive) else 1
    for piece, other in itertools.product(range(len(archive.lengths)), range(pieces)):
        if not (archive.missing_box and pieces > 1 and (piece, other) == (1, 1)):
            yield piece, other


def _groups(archive: RandomArchive) -> list[tuple[str, ...]]:
    if not archive.split or archive.is_unlabelled:  # files that nothing says belong together
        return [archive.variables]
    rest = archive.variables[1:] or ("pr",)
    return [archive.variables[:1], rest]


def _steps(archive: RandomArchive, piece: int) -> np.ndarray:
    """Return the positions of the steps of a piece."""
    begin = sum(archive.lengths[:piece]) + (archive.gap and piece > 0)
    steps = np.arange(begin, begin + archive.lengths[piece])
    trouble = trouble_of(archive)
    if piece == 1 and trouble.startswith("overlap"):
        return np.concatenate([[begin - 1 - archive.gap], steps])
    if piece == 1 and trouble == "empty":
        return steps[:0]
    if piece == 1 and trouble == "unsorted" and len(steps) > 1:
        return np.concatenate([steps[1:], steps[:1]])
    return steps


def _file(
    archive: RandomArchive, piece: int, other: int, names: tuple[str, ...], *, copy: bool = False
) -> RandomFile:
    second, first = second_of(archive), first_of(archive)
    odd = piece == 1 and other == 0  # the file that the trouble is in
    is_late = piece >= (len(archive.lengths) + 1) // 2
    is_late &= not (archive.returns and piece == len(archive.lengths) - 1)
    form = archive.format
    if archive.era == "format" and is_late:
        form = "NETCDF4" if form in NETCDF3 else "NETCDF3_CLASSIC"
    at = {first: _steps(archive, piece)}
    if second == "lat":
        at[second] = np.arange(other * BAND, (other + 1) * BAND)
    elif second:
        at[second] = np.array([other])
    made = RandomFile(
        name=f"{names[0]}_{piece}_m{other}{'_copy' if copy else ''}.nc",
        at=at,
        format=form,
        writer="netCDF4" if form in NETCDF3 else archive.writer,
        modified=0,
        attrs={"title": "random", "history": "" if archive.attrs == "same" else f"{piece} {other}"},
        unlimited=(first,) if archive.unlimited else (),
    )
    _coordinates(archive, made, piece, odd)
    for name in names:
        if odd and trouble_of(archive) == "no-variable" and name == names[-1] and len(names) > 1:
            continue
        value = _data(archive, made, name, is_late, odd, copy)
        made.variables[name] = value
    if odd and trouble_of(archive) == "extra":
        made.variables["extra"] = _data(archive, made, "extra", is_late, False, copy)
    _others(archive, made, piece, other)
    if archive.durations:
        made.variables["lead"] = _durations(archive, made, piece)
    if archive.index:
        made.variables["neighbor"] = _neighbors(archive, made)
    if archive.scalar_time and len(made.at[first]) == 1:
        _squeeze(made, first)
    return made


def _durations(archive: RandomArchive, made: RandomFile, piece: int) -> RawVariable:
    """Return durations as xarray writes them; they count steps of six hours."""
    first = first_of(archive)
    unit = "hours"
    if archive.durations == "mixed":
        unit = ("hours", "minutes", "days")[piece % 3]
    values = made.at[first] * STEP / UNITS[unit]
    kind = "f8" if unit == "days" else "i4"
    return RawVariable(
        dims=(first,),
        values=values.astype(kind),
        attrs={"units": unit, "dtype": "timedelta64[ns]"},
    )


def _neighbors(archive: RandomArchive, made: RandomFile) -> RawVariable:
    """Return which step of the file is next to each: numbers within the file."""
    first = first_of(archive)
    steps = np.arange(len(made.at[first]))
    return RawVariable(
        dims=(first,),
        values=(np.roll(steps, 1) + int(archive.index)).astype("i4"),
        attrs={"cf_role": "face_face_connectivity", "start_index": np.int32(archive.index)},
    )


def _squeeze(made: RandomFile, first: str) -> None:
    """Take the first dimension, of one step, out of all variables."""
    made.unlimited = ()
    made.squeezed = tuple(name for name, raw in made.variables.items() if first in raw.dims)
    for name in made.squeezed:
        raw = made.variables[name]
        axis = raw.dims.index(first)
        raw.values = raw.values.take(0, axis=axis)
        raw.dims = tuple(each for each in raw.dims if each != first)
        if chunks := raw.how.get("chunksizes"):
            raw.how["chunksizes"] = tuple(c for at, c in enumerate(chunks) if at != axis)
        if not raw.dims:  # scalars are stored whole
            raw.how = {}


def _fixed(archive: RandomArchive) -> RandomFile:
    made = RandomFile(name="fixed.nc", at={}, format=archive.format, writer="netCDF4", modified=0)
    made.variables["x"] = RawVariable(dims=("x",), values=np.arange(X) * 0.1)
    made.variables["mask"] = _mask(0)
    return made


def _coordinates(archive: RandomArchive, made: RandomFile, piece: int, odd: bool) -> None:
    first, trouble = first_of(archive), trouble_of(archive)
    x = np.arange(X) * 0.1
    if odd and trouble == "rounding":
        x = x * (1 + 1e-9)
    made.variables["x"] = RawVariable(dims=("x",), values=x, attrs={"units": "m"})
    labels = labels_of(archive, first, made.at[first], made.format, piece)
    if labels is not None:
        if (
            odd
            and trouble == "nan-label"
            and labels.values.dtype.kind == "f"
            and labels.values.size > 1  # xarray reads no times that are all missing
        ):
            labels.values[-1] = np.nan
        made.variables[first] = labels
    if archive.bounds and archive.along == "time" and labels is not None:
        width = labels.values[:, None] + np.array([0, 1], labels.values.dtype)
        made.variables["time_bnds"] = RawVariable(dims=("time", "nv"), values=width)
        labels.attrs["bounds"] = "time_bnds"
    for name in made.at:
        if name not in (first, *NEW):
            values = made.at[name] * 2.5 if name == "lat" else made.at[name].astype("i4")
            made.variables[name] = RawVariable(dims=(name,), values=values)
    if second_of(archive) == "run":
        made.variables["run"] = RawVariable(dims=(), values=np.int32(made.at["run"][0] * 3))


def labels_of(
    archive: RandomArchive, name: str, at: np.ndarray, form: str, piece: int
) -> RawVariable | None:
    """Return the coordinate of the first dimension at some steps."""
    sign = -1 if archive.falling and max(archive.lengths) > 1 else 1
    if archive.along == "none":
        return None
    if archive.along == "restart":
        return RawVariable(dims=(name,), values=np.arange(len(at), dtype="i4"))
    if archive.along == "text":
        texts = [f"s{50 + sign * each:02d}" for each in at]
        if form == "NETCDF4":
            return RawVariable(dims=(name,), values=np.array(texts, object))
        chars = np.array([list(text.encode()) for text in texts], "u1").reshape(-1, 3).view("S1")
        return RawVariable(dims=(name, "strlen"), values=chars)
    if archive.along in ("float", "int"):
        kind = "f8" if archive.along == "float" else "i4"
        values = (sign * at * (0.5 if kind == "f8" else 5)).astype(kind)
        return RawVariable(dims=(name,), values=values, attrs={"units": "m"})
    unit, _, since = archive.units.partition(" since ")
    if archive.other_units == "unit" and piece % 2:
        unit = "days" if unit == "hours" else "hours"
    elif (archive.other_units == "reference" and piece % 2) or archive.other_units == "each":
        since = f"2000-01-{1 + (piece if archive.other_units == 'each' else 1):02d}"
    units = f"{unit} since {since}"
    calendar = archive.calendar
    begin = cftime.datetime(2000, 1, 3, calendar=calendar) - cftime.num2date(0, units, calendar)
    hours = begin.total_seconds() / 3600 + sign * at * STEP
    values = hours / UNITS[unit]
    kind = archive.time_type if archive.time_type[0] == "f" or unit != "days" else "f8"
    kind = "f8" if kind == "f4" and unit in ("seconds", "minutes") else kind
    kind = "i4" if kind == "i8" and form != "NETCDF4" else kind
    return RawVariable(
        dims=(name,),
        values=np.round(values, 9).astype(kind),
        attrs={"units": units, "calendar": archive.calendar, "standard_name": "time"},
    )


def _data(
    archive: RandomArchive, made: RandomFile, name: str, is_late: bool, odd: bool, copy: bool
) -> RawVariable:
    first, trouble = first_of(archive), trouble_of(archive)
    dims = (
        *(each for each in made.at if each not in NEW),
        *(("x",) if name == "pr" else ("y", "x")),
    )
    y = Y + 1 if odd and trouble == "longer" else Y
    sizes = {each: len(steps) for each, steps in made.at.items()} | {"y": y, "x": X}
    steps = {each: made.at.get(each, np.arange(sizes[each])) for each in dims}
    grid = np.meshgrid(*steps.values(), indexing="ij")
    hidden = sum(int(made.at[each][0]) * 31 for each in made.at if each in NEW)
    weights = {first: 7, "lat": 5, "ens": 31, "y": 3, "x": 1}
    number = sum(weights[each] * part for each, part in zip(dims, grid, strict=True)) + hidden
    number = number + {"tas": 0, "pr": 1, "flag": 2, "extra": 3}[name]
    other = (trouble == "overlap-other" and odd) or (trouble == "again" and copy)
    number = number + 100 * other
    kind = archive.values if name != "flag" else "i4"
    if is_late and archive.era == "dtype":
        kind = {"f4": "f8", "f8": "f4", "i4": "i2", "i2": "i4"}.get(kind, kind)
    if odd and trouble == "other-dtype":
        kind = "f8" if kind != "f8" else "f4"
    if made.format in (*NETCDF3, "NETCDF4_CLASSIC") and kind in ("i8", "u1"):
        kind = "i2"
    attrs: dict[str, Any] = {"units": "degC" if odd and trouble == "other-units" else "K"}
    if is_late and archive.era == "attrs":
        attrs["long_name"] = "renamed later"
    if archive.auxiliary and name == "tas":
        attrs["coordinates"] = "lat2d lon2d"
    if archive.values in ("i2", "u1") and name != "flag":
        attrs["scale_factor"] = 0.02 if is_late and archive.era == "scale" else 0.01
        attrs["add_offset"] = 273.15
    values = (number % 250 if kind == "u1" else number).astype(kind)
    if kind[0] == "f":
        values = values + np.array(0.25, kind)
    fill = _fill(archive, kind, is_late)
    if archive.holes and fill is not None and values.size:
        values.reshape(-1)[:: 5 + hidden] = fill
    is_big = archive.endian == "big" or (is_late and archive.era == "endian")
    if is_big and made.format not in NETCDF3:
        values = values.astype(values.dtype.newbyteorder(">"))
    if odd and trouble == "transposed" and first in dims:
        dims, values = dims[::-1], values.T
        made.unlimited = ()
    return RawVariable(
        dims=dims,
        values=values,
        attrs=attrs,
        fill=fill,
        how=_how(archive, made, dims, values, is_late),
    )


def _fill(archive: RandomArchive, kind: str, is_late: bool) -> Any:
    if archive.fill == "none":
        return None
    value: float = FILLS[kind[0]]
    if kind[0] == "f" and archive.fill == "nan":
        value = np.nan
    if is_late and archive.era == "fill":
        value = {"f": -9999.0, "i": -98, "u": 254}[kind[0]]
    return np.dtype(kind).type(value)


def _how(
    archive: RandomArchive, made: RandomFile, dims: tuple[str, ...], values: Any, is_late: bool
) -> dict[str, Any]:
    """Return how a file stores a variable."""
    if made.format in NETCDF3 or 0 in values.shape:
        return {}
    kind = archive.chunks
    if is_late and archive.era == "chunks":
        kind = "step" if kind != "step" else "file"
    zlib = archive.zlib ^ (is_late and archive.era == "zlib")
    shape = dict(zip(dims, values.shape, strict=True))
    how: dict[str, Any] = {}
    if kind == "step":
        how["chunksizes"] = tuple(1 if each == dims[0] else shape[each] for each in dims)
    elif kind == "odd":
        how["chunksizes"] = tuple(min(2, shape[each]) for each in dims)
    elif kind == "file" or zlib or made.writer != "netCDF4":
        how["chunksizes"] = values.shape
    if zlib:
        late = is_late and archive.era
        how |= {
            "zlib": True,
            "complevel": 7 if late == "level" else 4,
            "shuffle": late != "shuffle",
        }
    return how


def _others(archive: RandomArchive, made: RandomFile, piece: int, other: int) -> None:
    if archive.auxiliary and "tas" in made.variables:
        for number, name in enumerate(("lat2d", "lon2d")):
            values = np.arange(Y * X, dtype="f8").reshape(Y, X) + number
            if "y" in made.sizes() and made.sizes()["y"] == Y:
                made.variables[name] = RawVariable(dims=("y", "x"), values=values)
    if archive.static in ("same", "varies") or (archive.static == "somewhere" and piece == 0):
        made.variables["mask"] = _mask(piece if archive.static == "varies" else 0)
    if archive.scalar:
        height = 2.0 + (10 * piece if archive.scalar == "varies" else 0)
        made.variables["height"] = RawVariable(dims=(), values=np.float64(height))
    del other


def _mask(number: int) -> RawVariable:
    return RawVariable(dims=("x",), values=np.arange(X, dtype="f4") + number)
