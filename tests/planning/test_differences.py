"""One row for each way in which files of an archive differ: the dataset is that of xarray, or none.

Three files of four steps each, of which one differs in one thing. What is built reads as xarray's
combination of the same files with pinned arguments, raw and decoded, dtypes included; what is not
is refused before anything is written, with files and difference in the message.
"""

from dataclasses import dataclass, field
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import expected_dataset, opened
from grouping import grouped
from icevirt import errors

STEPS, NY, NX = 4, 5, 6


pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def write(path, number, **spec):
    """Write a file; ``spec`` says in what it differs from what all others are."""
    output = DEFAULT | spec
    dim = output["dimension"]
    steps = output["steps"]
    first = output["first"][number] if output["first"] else sum(output["before"][:number])
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts(output["attrs"])
        for name, size in ((dim, None), ("y", NY), ("x", NX)):
            file.createDimension(name, size)
        time = file.createVariable(dim, "f8", (dim,), chunksizes=(512,))
        time.units, time.calendar = output["time_units"], output["calendar"]
        values = output["shift_time"] + np.arange(first, first + steps)
        time[:] = values[::-1] if output["falling"] else values
        for name, size in (("y", NY), ("x", NX)):
            axis = file.createVariable(name, "f8", (name,))
            axis[:] = np.linspace(0, 1, size)[:: -1 if name in output["reversed"] else 1]
            axis[:] += output["shift"].get(name, 0)
        for at, name in enumerate(output["variables"]):
            data(file, name, at, first, dim, output)
        for name, value in output["scalars"].items():
            file.createVariable(name, "i4", ())[...] = value
        for name in output["groups"]:
            group = file.createGroup(name)
            group.createVariable("inner", "i4", ("y",))[:] = np.arange(NY)
            if name == "steps":
                group.createVariable("each", "i4", (dim, "y"), chunksizes=(1, NY))[:] = first
    return str(path)


def data(file, name, at, first, dim, output):
    variable = file.createVariable(
        name,
        np.dtype({"little": "<", "big": ">"}[output["endian"]] + output["dtype"]),
        (dim, "y", "x"),
        zlib=True,
        complevel=output["level"],
        shuffle=output["shuffle"],
        endian=output["endian"],
        chunksizes=output["chunks"],
        fill_value=output["fill"],
    )
    variable.set_auto_maskandscale(False)
    variable.setncatts({"units": output["units"], **output["packing"]})
    size = output["steps"] * NY * NX
    values = (np.arange(size) + 100 * at + 7 * first) % 1000
    values[3] = -999
    variable[:] = values.reshape(output["steps"], NY, NX)


DEFAULT: dict[str, Any] = {
    "attrs": {"title": "made for tests"},
    "dimension": "time",
    "steps": STEPS,
    "before": (STEPS, STEPS, STEPS),
    "first": None,
    "falling": False,
    "time_units": "days since 2001-01-01",
    "calendar": "standard",
    "shift_time": 0,
    "reversed": (),
    "shift": {},
    "variables": ("tas",),
    "scalars": {},
    "groups": (),
    "dtype": "i2",
    "level": 4,
    "shuffle": True,
    "endian": "little",
    "chunks": (2, NY, NX),
    "fill": -999,
    "units": "K",
    "packing": {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15)},
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A difference."""

    spec: dict[str, Any]  # of the files that differ
    of: tuple[int, ...] = (1,)  # which these are
    everywhere: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)  # arguments of the build
    refused: str = ""  # a pattern of the message; "" where it is built
    names: tuple[int, ...] = ()  # files that the message names; by default a differing one
    wanted: Any = None  # from the files, where it is not simply xarray's combination
    raw: bool = True  # whether numbers before decoding are those of the files too


def concatenated(parts, combine_attrs="override"):
    """Combine by arguments that choose nothing by themselves."""
    return xr.concat(
        parts,
        "time",
        data_vars="minimal",
        coords="minimal",
        compat="equals",
        join="exact",
        combine_attrs=combine_attrs,
    )


def filled(files):
    """Combine files of which some lack variables, which are missing values there."""
    parts = [xr.open_dataset(path).load() for path in files]
    names = {name: part[name] for part in parts for name in part.data_vars}
    for part in parts:
        for name, like in names.items():
            if name not in part:
                missing = np.full((part.sizes["time"], NY, NX), np.nan, like.dtype)
                part[name] = (like.dims, missing, like.attrs)
    return concatenated(parts)


def with_scalar(files):
    kept = xr.open_dataset(files[1])["crs"].load()
    parts = [xr.open_dataset(path).load().assign(crs=kept) for path in files]
    return concatenated(parts)


def without(number):
    return lambda files: expected_dataset([f for at, f in enumerate(files) if at != number], "time")


def renamed(files):
    parts = [xr.open_dataset(path).load() for path in files]
    names = {"t": "time", "air": "tas"}
    return concatenated(
        [part.rename({old: new for old, new in names.items() if old in part}) for part in parts]
    )


def with_first_axis(files):
    first = xr.open_dataset(files[0]).load()
    parts = [xr.open_dataset(path).load().assign_coords(x=first["x"]) for path in files]
    return concatenated(parts)


def conflicts(policy):
    """Return what xarray makes of the files' own attributes."""

    def wanted(files):
        parts = [xr.open_dataset(path).load() for path in files]
        return concatenated(parts, policy)

    return wanted


PACKED = {"scale_factor": np.float32(0.02), "add_offset": np.float32(273.15)}
NATIVE = {"on_mismatch": "native"}
REFERENCED = {"variable_policy": {"tas": "reference"}}  # also where it is small and would be joined
DIFFERENT = {
    "nothing": Row(spec={}),
    # -- decoding
    "units": Row(spec={"units": "degC"}, refused=r"/tas is encoded differently.* units .*K.*degC"),
    "units of times": Row(
        spec={"time_units": "days since 2001-01-03", "shift_time": -2}, raw=False
    ),
    "calendar": Row(
        spec={"calendar": "noleap"}, refused="/time is encoded differently.*calendar .*noleap"
    ),
    "scale and offset": Row(
        spec={"packing": PACKED}, refused="/tas is encoded differently.*scale_factor"
    ),
    "fill value": Row(spec={"fill": -1}, refused="/tas is encoded differently.*_FillValue"),
    "gzip level": Row(spec={"level": 9}),
    "shuffle": Row(spec={"shuffle": False}, refused="/tas is encoded differently.*codecs"),
    "shuffle, stored": Row(spec={"shuffle": False}, how=NATIVE),
    "endianness": Row(spec={"endian": "big"}, refused="/tas is encoded differently.*codecs"),
    "endianness, stored": Row(spec={"endian": "big"}, how=NATIVE),
    "data type": Row(spec={"dtype": "i4"}, refused="/tas is encoded differently.*data type"),
    "chunk shape": Row(spec={"chunks": (4, NY, NX)}, refused="chunk shape"),
    "chunk shape, stored": Row(spec={"chunks": (4, NY, NX)}, how=NATIVE),
    # -- lengths
    "the last file shorter": Row(spec={"steps": 3}, of=(2,)),
    "the first file shorter": Row(
        spec={"steps": 3},
        of=(0,),
        everywhere={"before": (3, 4, 4)},
        how=REFERENCED | {"max_native_bytes": 200},
        refused=r"more than max_native_bytes=200; /tas: .* 2 files do not begin where a chunk",
        names=(1,),  # which begins within a chunk because of it
    ),
    "the first file shorter, stored": Row(
        spec={"steps": 3}, of=(0,), everywhere={"before": (3, 4, 4)}, how=REFERENCED
    ),
    "the first file shorter, joined": Row(
        spec={"steps": 3}, of=(0,), everywhere={"before": (3, 4, 4)}
    ),
    "a middle file shorter": Row(
        spec={"steps": 3},
        everywhere={"before": (4, 3, 4)},
        how=REFERENCED | {"max_native_bytes": 200},
        refused=r"more than max_native_bytes=200; /tas: .* 1 file does not begin where a chunk",
        names=(2,),  # which begins within a chunk because of it
    ),
    "a middle file shorter, stored": Row(
        spec={"steps": 3}, everywhere={"before": (4, 3, 4)}, how=REFERENCED
    ),
    "a middle file shorter by a chunk": Row(spec={"steps": 2}, everywhere={"before": (4, 2, 4)}),
    # -- presence
    "a variable missing": Row(
        spec={"variables": ("tas",)},
        everywhere={"variables": ("tas", "pr")},
        refused="/pr",
        wanted=filled,
    ),
    "a variable missing, reserved": Row(
        spec={"variables": ("tas",)},
        everywhere={"variables": ("tas", "pr")},
        how={"missing": "reserve"},
        wanted=filled,
        raw=False,
    ),
    "a variable more": Row(spec={"variables": ("tas", "pr")}, refused="/pr", names=()),
    "a variable more, reserved": Row(
        spec={"variables": ("tas", "pr")}, how={"missing": "reserve"}, wanted=filled, raw=False
    ),
    "a variable more, dropped": Row(
        spec={"variables": ("tas", "pr")},
        how={"drop_variables": "pr"},
        wanted=lambda files: filled(files).drop_vars("pr"),
    ),
    "a variable without dimensions": Row(spec={}, everywhere={"scalars": {"crs": 7}}),
    "a variable without dimensions in some files": Row(
        spec={"scalars": {"crs": 7}}, wanted=with_scalar
    ),
    "a variable without dimensions that differs": Row(
        spec={"scalars": {"crs": 8}},
        everywhere={"scalars": {"crs": 7}},
        refused="/crs .* its values differ",
    ),
    # -- coordinates
    "a coordinate shifted": Row(spec={"shift": {"x": 1e-7}}, refused="/x .* its values differ"),
    "a coordinate shifted within tolerance": Row(
        spec={"shift": {"x": 1e-7}}, how={"tolerance": 1e-6}, wanted=with_first_axis
    ),
    "a coordinate shifted outside of tolerance": Row(
        spec={"shift": {"x": 1e-5}},
        how={"tolerance": 1e-6},
        refused="/x differ between files: by up to 1e-05, more than the tolerance 1e-06",
    ),
    "an axis reversed": Row(spec={"reversed": ("y",)}, refused="/y .* its values differ"),
    "times falling in one file": Row(
        spec={"falling": True}, refused=r"along 'time' are not sorted", names=(1,)
    ),
    "times falling in one file, as given": Row(spec={"falling": True}, how={"combine": "nested"}),
    "a time twice": Row(
        spec={}, everywhere={"first": (0, 4, 7)}, refused="overlap along 'time'", names=(1, 2)
    ),
    "times of a file twice": Row(
        spec={}, everywhere={"first": (0, 4, 4)}, refused="same step along 'time'", names=(1, 2)
    ),
    "times of a file twice, the last counts": Row(
        spec={},
        everywhere={"first": (0, 4, 4)},
        how={"duplicates": "last"},
        wanted=without(1),
    ),
    "a gap": Row(spec={}, everywhere={"first": (0, 4, 20)}),
    "files out of order": Row(
        spec={},
        everywhere={"first": (8, 0, 4)},
        wanted=lambda files: expected_dataset([files[1], files[2], files[0]], "time"),
    ),
    # -- attributes and names
    "an attribute": Row(spec={"attrs": {"title": "another", "more": 1}}),
    "an attribute, conflicts dropped": Row(
        spec={"attrs": {"title": "another", "more": 1}},
        how={"combine_attrs": "drop_conflicts"},
        wanted=conflicts("drop_conflicts"),
    ),
    "an attribute, none wanted": Row(
        spec={"attrs": {"title": "another"}},
        how={"combine_attrs": "no_conflicts"},
        refused="title",
        names=(-1,),
    ),
    "a dimension renamed": Row(
        spec={"dimension": "t"}, refused="encoded differently.*dimension names"
    ),
    "a variable renamed, told, and stored otherwise": Row(
        spec={"variables": ("air",), "shuffle": False},
        how={"rename": {"air": "tas"}} | NATIVE,
        wanted=renamed,
        raw=False,
    ),
    "a dimension renamed, told": Row(
        spec={"dimension": "t"}, how={"rename": {"t": "time"}}, wanted=renamed
    ),
}


def written(row, folder):
    files = []
    for number in range(3):
        spec = row.everywhere | (row.spec if number in row.of else {})
        files.append(write(folder / f"file{number}.nc", number, **spec))
    return files


@pytest.mark.parametrize("row", DIFFERENT.values(), ids=DIFFERENT)
def test_files_that_differ_in(row, tmp_path, repo_path):
    """Built as xarray combines them, or refused with files and difference."""
    files = written(row, tmp_path)
    if row.refused:
        with pytest.raises(errors.CombineError, match=row.refused) as refusal:
            icevirt.build(files, repo_path, concat_dim="time", **grouped(row.how))
        named = row.names or row.of
        assert all(number < 0 or f"file{number}.nc" in str(refusal.value) for number in named)
        assert not (tmp_path / repo_path).exists()
        return
    icevirt.build(files, repo_path, concat_dim="time", **grouped(row.how))
    wanted = (row.wanted or (lambda each: expected_dataset(each, "time")))(files).load()
    found = opened(repo_path)
    xr.testing.assert_identical(found.load(), wanted)
    for name in wanted.variables:
        assert found[name].dtype == wanted[name].dtype, name
    if row.raw:
        assert_raw_values_are_those_of_the_files(repo_path, files, wanted)


def assert_raw_values_are_those_of_the_files(repo_path, files, wanted):
    """Compare each step with the file that holds it, before anything is decoded."""
    raw = opened(repo_path, decode_cf=False).load()
    seen = set()
    for path in files:
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            dim = "t" if "t" in file.dimensions else "time"
            times = file[dim][:]
            if not np.isin(times, raw["time"].values).all():
                continue
            at = [int(np.flatnonzero(raw["time"].values == each)[0]) for each in times]
            held = raw["tas"].values[at]
            if np.array_equal(held, file["tas"][:]):
                assert held.dtype == file["tas"][:].dtype.newbyteorder("=")
                seen |= set(at)
    assert seen == set(range(wanted.sizes["time"]))


GROUPS = {
    "a group without steps in some files": ("still", True, ""),
    "a group with steps in some files": ("steps", False, "/steps/each"),
}


@pytest.mark.parametrize(("group", "is_built", "output"), GROUPS.values(), ids=GROUPS)
def test_a_group_that_is_only_in_some_files(group, is_built, output, tmp_path, repo_path):
    """What does not follow steps is stored once, anything else would have holes."""
    files = written(Row(spec={"groups": (group,)}), tmp_path)
    if not is_built:
        with pytest.raises(errors.CombineError, match=output) as refusal:
            icevirt.build(files, repo_path, concat_dim="time")
        assert "file0.nc" in str(refusal.value)
        return
    report = icevirt.build(files, repo_path, concat_dim="time")
    with xr.open_dataset(files[1], group=group) as wanted:
        xr.testing.assert_identical(opened(repo_path, group=group).load(), wanted.load())
    assert any("1 of 3 files" in text for text in report.findings)
