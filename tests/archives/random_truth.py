"""Say what a random archive holds: each file's values, where the generator placed them.

xarray reads the single files; it is not asked how they combine.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from archives.archive import DECODED
from archives.random_archive import RandomArchive, RandomFile
from archives.random_files import NEW, dimensions_of, first_of

_COORDINATES = ("coordinates", "bounds", "climatology", "grid_mapping")


@dataclass(kw_only=True)
class TrueVariable:
    """What a variable holds, and where files disagree or hold nothing."""

    dims: tuple[str, ...]
    values: np.ndarray
    along: tuple[str, ...] = ()  # concatenated dimensions
    held: np.ndarray  # where a file has a value
    disputed: np.ndarray  # where files have several
    others: list[tuple[Any, np.ndarray]] = field(default_factory=list)
    dtypes: set[str] = field(default_factory=set)


def read(
    archive: RandomArchive, files: list[RandomFile], folder: Path, *, group: str | None = None
) -> list[xr.Dataset]:
    """Read each file by itself; a single step gets its dimension, as `expand_dims` gives it."""
    found = []
    for each in files:
        with xr.open_dataset(
            folder / each.name,
            decode_times=DECODED,
            decode_coords="all",
            engine="netcdf4",
            group=group,
        ) as opened:
            found.append(_expand(opened.load(), each, first_of(archive)))
    return found


def _expand(opened: xr.Dataset, file: RandomFile, first: str) -> xr.Dataset:
    if not file.squeezed:
        return opened
    new = {name: opened.variables[name].expand_dims(first) for name in file.squeezed}
    coordinates = {name: each for name, each in new.items() if name in (first, *opened.coords)}
    rest = opened.drop_vars(file.squeezed).assign_coords(coordinates)
    return rest.assign({name: each for name, each in new.items() if name not in coordinates})


def truth(
    archive: RandomArchive,
    files: list[RandomFile],
    opened: list[xr.Dataset],
    *,
    given: Mapping[str, Collection[str]],
    without: Collection[str] = (),
) -> dict[str, TrueVariable]:
    """Return what the files hold together.

    Args:
        archive: The archive.
        files: Its files.
        opened: What xarray reads of each.
        given: Dimensions that variables get beside their own, by option; "*" is all data
            variables, "new" the same where nobody asked for it.
        without: Variables that are left out.
    """
    dims = dimensions_of(archive)
    places = {dim: _places(dim, files) for dim in dims}
    found: dict[str, TrueVariable] = {}
    rest = [each.drop_vars(without, errors="ignore") for each in opened]
    # what only a variable that is left out calls a coordinate is data
    gone = _named(opened) - _named(rest) - {str(dim) for each in rest for dim in each.dims}
    opened, coordinates = rest, _coordinates(rest) - gone
    names = dict.fromkeys(str(name) for each in opened for name in each.variables)
    for name in [each for each in names if each not in without]:
        parts = [(f, d[name].variable) for f, d in zip(files, opened, strict=True) if name in d]
        is_fixed = len(parts) == 1 < len(files) and {*parts[0][1].dims}.isdisjoint(dims)
        named = {key: held for key, held in given.items() if key != "new" or not is_fixed}
        more = [dim for dim in dims if _gets(name, dim, coordinates, named)]
        found[name] = _together(parts, more, places)
        if name == "neighbor":  # it numbers the steps of its file, and then those of all
            for file in files:
                steps = [places[dims[0]][int(at)] for at in file.at.get(dims[0], ())]
                found[name].values[steps] += min(steps, default=0)
    for dim in dims:
        if dim in NEW:
            labels = np.array([at * (3 if dim == "run" else 1) for at in places[dim]])
            yes = np.ones(len(labels), bool)
            found[dim] = TrueVariable(dims=(dim,), values=labels, held=yes, disputed=~yes)
    return found


def _places(dim: str, files: list[RandomFile]) -> dict[int, int]:
    """Return where the steps of a dimension lie; it falls where files of several steps do."""
    steps = [each.at.get(dim, np.zeros(0, int)) for each in files]
    signs = [np.diff(each) < 0 for each in steps if len(each) > 1]
    falls = bool(signs) and all(bool(each.all()) for each in signs)
    order = sorted({int(at) for each in steps for at in each}, reverse=falls)
    return {at: number for number, at in enumerate(order)}


def _gets(name: str, dim: str, coordinates: set[str], given: Mapping[str, Collection[str]]) -> bool:
    if dim in given.get(name, ()):
        return True
    is_given = any(dim in given.get(key, ()) for key in ("*", "new"))
    return name not in coordinates and (dim in NEW or is_given)


def _coordinates(opened: list[xr.Dataset]) -> set[str]:
    """Return the names of what xarray makes coordinates with ``decode_coords="all"``."""
    return _named(opened) | {str(name) for each in opened for name in (*each.dims, *each.coords)}


def _named(opened: list[xr.Dataset]) -> set[str]:
    """Return what attributes of variables call coordinates."""
    said = [
        {**held.encoding, **held.attrs}.get(key, "")
        for each in opened
        for held in each.variables.values()
        for key in _COORDINATES
    ]
    return {name for each in said for name in str(each).split()}


def _together(
    parts: list[tuple[RandomFile, xr.Variable]],
    more: list[str],
    places: Mapping[str, Mapping[int, int]],
) -> TrueVariable:
    own = [str(dim) for dim in parts[0][1].dims]
    dims = (*(each for each in more if each not in own), *own)
    sizes = [
        len(places[dim]) if dim in places else max(variable.sizes[dim] for _, variable in parts)
        for dim in dims
    ]
    kinds = {variable.dtype for _, variable in parts}
    is_object = any(each.kind in "OSUT" for each in kinds)
    dtype = np.dtype(object) if is_object else np.result_type(*kinds)
    made = TrueVariable(
        dims=dims, values=np.zeros(sizes, dtype), held=np.zeros(sizes, bool),
        disputed=np.zeros(sizes, bool), along=tuple(dim for dim in dims if dim in places), dtypes={str(each) for each in kinds},
    )  # fmt: skip
    for file, variable in parts:
        values = _texts(variable.transpose(*own).values).astype(dtype)
        where = []
        for dim in dims:
            if dim in places and dim in file.at:
                where.append(np.array([places[dim][int(at)] for at in file.at[dim]], int))
            else:
                where.append(np.arange(variable.sizes[dim] if dim in own else len(places[dim])))
        target = np.ix_(*where)
        values = np.broadcast_to(values, [len(each) for each in where])
        if values.size:
            differs = made.held[target] & ~equal(made.values[target], values)
            made.disputed[target] |= differs
            if differs.any():
                made.others.append((target, values))
                values = np.where(differs, made.values[target], values)
            made.values[target] = values
            made.held[target] = True
    return made


def _texts(values: np.ndarray) -> np.ndarray:
    """Return characters as text, which another format stores."""
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def equal(mine: np.ndarray, their: np.ndarray) -> np.ndarray:
    """Return where two arrays agree; missing values do."""
    mine, their = np.asarray(mine), np.asarray(their)
    same = np.asarray(mine == their)
    return same | (_missing(mine) & _missing(their))


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "fcmM":
        return np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values)
    return np.zeros(values.shape, bool)


def wrong(
    ours: xr.Dataset, expected: Mapping[str, TrueVariable], options: Mapping[str, Any]
) -> list[str]:
    """Return how a dataset differs from the truth, given the options that chose."""
    odd = set(map(str, ours.variables)) ^ set(expected)
    output = {
        name: _wrong(ours[name].variable, true, options)
        for name, true in expected.items()
        if name in ours.variables
    }
    found = [f"variables of one alone: {sorted(odd)}"] if odd else []
    return found + [f"{name}: {each}" for name, each in output.items() if each]


def _wrong(mine: xr.Variable, true: TrueVariable, options: Mapping[str, Any]) -> str:
    if set(mine.dims) != set(true.dims):
        return f"dimensions {mine.dims}, true {true.dims}"
    mine = mine.transpose(*true.dims)
    if mine.shape != true.values.shape:
        return f"shape {mine.shape}, true {true.values.shape}"
    is_text = true.values.dtype.kind == "O"
    values = _texts(mine.values).astype(object) if is_text else mine.values
    ok = equal(values, true.values)
    chooses = options.get("duplicates", "refuse") != "refuse" or "tolerance" in options
    if true.disputed.any():
        if not chooses:
            return f"files disagree on {int(true.disputed.sum())} values, and one was taken"
        is_newest = options.get("duplicates") == "newest" and bool(true.along)
        for target, others in true.others:  # in the order in which files were written
            same = equal(values[target], others)
            ok[target] = same if is_newest else ok[target] | same
    if not true.held.all():
        is_eras = options.get("on_mismatch") == "eras"  # of which one may lack a variable
        if not is_eras and options.get("missing") != "reserve" and not options.get("pad"):
            return f"{int((~true.held).sum())} values are in no file"
        ok = np.where(true.held, ok, _missing(values))
    if not ok.all():
        return f"values {values!r}, true {true.values!r}"
    if (
        len(true.dtypes) == 1
        and true.held.all()
        and not is_text
        and not options.get("attrs")  # a missing value makes floats of integers
        # xarray makes floats where an era lacks a variable, even if that has no steps
        and not (options.get("on_mismatch") == "eras" and mine.dtype == "f8")
        and mine.dtype.kind not in "mM"  # xarray decodes each unit in a resolution of its own
        and str(mine.dtype) not in true.dtypes
    ):
        return f"data type {mine.dtype}, true {true.dtypes}"
    return ""


def wrong_eras(
    eras: list[xr.Dataset], expected: Mapping[str, TrueVariable], first: str
) -> list[str]:
    """Return how groups differ from the truth where their labels lie, and what none of them holds.

    Args:
        eras: The groups.
        expected: What the files hold together.
        first: The first dimension; where it has no labels, values of a variable tell its steps.
    """
    found = []
    seen = {name: np.zeros(true.values.shape, bool) for name, true in expected.items()}
    for number, each in enumerate(eras):
        steps = _find_steps(each, first, expected)
        for name, variable in each.variables.items():
            true = expected[str(name)]
            if set(variable.dims) != set(true.dims):
                found.append(
                    f"{name} in era {number}: dimensions {variable.dims}, true {true.dims}"
                )
                continue
            mine = _texts(variable.transpose(*true.dims).values).astype(true.values.dtype)
            if name == "neighbor" and steps is not None:  # it numbers the steps of its era
                begin = int(each[name].attrs.get("start_index", 0))
                mine = steps[mine.astype(int) - begin] + begin
            where = [
                steps
                if dim == first and steps is not None
                else _found(each, dim, expected, mine, true.values, at)
                for at, dim in enumerate(true.dims)
            ]
            target = np.ix_(*where)
            ok = equal(mine, true.values[target]) | true.disputed[target]
            ok = np.where(true.held[target], ok, _missing(mine))
            seen[str(name)][target] = True
            if not ok.all():
                found.append(f"{name} in era {number}: {mine!r}, true {true.values[target]!r}")
    found += [
        f"no era holds all of {name}"
        for name, true in expected.items()
        if (true.held & ~seen[name]).any()
    ]
    return found


def _find_steps(
    era: xr.Dataset, first: str, expected: Mapping[str, TrueVariable]
) -> np.ndarray | None:
    """Return which steps of all a group has, where the first dimension has no labels.

    The values of a variable tell them if no two steps have the same.
    """
    for name, variable in era.variables.items():
        true = expected[str(name)]
        is_like = {*true.dims} == {*variable.dims} and first in true.dims
        if first in era.variables or not is_like:
            continue
        axis = true.dims.index(first)
        rows = np.moveaxis(variable.transpose(*true.dims).values, axis, 0)
        all_rows = np.moveaxis(true.values, axis, 0)
        if rows.shape[1:] != all_rows.shape[1:]:
            continue
        at = [[n for n, each in enumerate(all_rows) if equal(row, each).all()] for row in rows]
        if str(name) != "neighbor" and all(len(each) == 1 for each in at):
            return np.array([each[0] for each in at], int)
    return None


def _found(
    era: xr.Dataset,
    dim: str,
    expected: Mapping[str, TrueVariable],
    mine: np.ndarray,
    true: np.ndarray,
    axis: int,
) -> np.ndarray:
    """Return where the steps of a group are among all: by labels, or else by their values."""
    if mine.shape[axis] == true.shape[axis]:
        return np.arange(mine.shape[axis])
    if dim in era.variables:
        mine, true, axis = _texts(era[dim].values), expected[dim].values, 0
    rows, all_rows = np.moveaxis(mine, axis, 0), np.moveaxis(true, axis, 0)
    if rows.shape[1:] != all_rows.shape[1:]:
        return np.arange(len(rows))
    found = [[at for at, each in enumerate(all_rows) if equal(row, each).all()] for row in rows]
    return np.array([each[0] if each else 0 for each in found], int)
