"""Thousands of nested groups and attributes are read, or refused for the true reason."""

import inspect
import sys

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from h5py import h5d, h5s, h5t

import icevirt
from builds.support import official
from icevirt.errors import UnsupportedError

DEPTH = 3000


def nested(path, depth, *, linked):
    """Write nested groups; with a soft link, libhdf5 and not the bytes is asked for them."""
    with h5py.File(path, "w") as file:
        group = file
        for _ in range(depth):
            group = group.create_group("g")
        group["x"] = 3  # a scalar is stored, so that no file is referenced
        if linked:
            file["nowhere"] = h5py.SoftLink("/is/not")


@pytest.mark.ci
def test_3000_nested_groups_are_scanned_written_and_read(tmp_path, repo_path):
    nested(tmp_path / "deep.h5", DEPTH, linked=False)
    scanned = icevirt.scan_file(tmp_path / "deep.h5")
    deepest = "/g" * DEPTH
    assert len(scanned.groups) == DEPTH + 1
    assert [array.path for array in scanned.arrays] == [f"{deepest}/x"]
    session = icevirt.Repository.create(repo_path).writable_session("main")
    scanned.write_to(session)
    session.commit("deep")
    ds = xr.open_dataset(repo_path, engine="icevirt", group=deepest)
    assert ds.x.values.tolist() == 3
    theirs = official(str(repo_path)).readonly_session("main").store
    held = zarr.open_array(theirs, path=f"{deepest}/x".strip("/"), mode="r")
    assert held[...].tolist() == 3


def test_nested_groups_that_libhdf5_is_asked_for_are_scanned(tmp_path):
    nested(tmp_path / "deep.h5", 1200, linked=True)
    scanned = icevirt.scan_file(tmp_path / "deep.h5")
    assert [array.path for array in scanned.arrays] == ["/g" * 1200 + "/x"]


@pytest.mark.ci
def test_a_type_that_is_nested_too_deeply_is_not_called_damage(tmp_path):
    kind = h5t.STD_I32LE.copy()
    for _ in range(120):
        outer = h5t.create(h5t.COMPOUND, 4)
        outer.insert(b"a", 0, kind)
        kind = outer
    with h5py.File(tmp_path / "deep.h5", "w", libver="latest") as file:
        file["x"] = np.arange(2)
        h5d.create(file.id, b"d", kind, h5s.create_simple((2,)))
    nested(tmp_path / "flat.h5", 0, linked=False)
    icevirt.scan_file(tmp_path / "flat.h5")  # imports what it needs
    most = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)  # HDF5 takes minutes to nest a type deeper
    try:
        with pytest.raises(UnsupportedError, match=r"nested deeper.*'/d'"):
            icevirt.scan_file(tmp_path / "deep.h5")
    finally:
        sys.setrecursionlimit(most)
    scanned = icevirt.scan_file(tmp_path / "deep.h5", scan_options={"drop_variables": "d"})
    assert [array.path for array in scanned.arrays] == ["/x"]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_many_attributes_are_all_there(libver, tmp_path):
    """Those of the older format stand in one header, of 64 KiB at most."""
    count = 600 if libver == "earliest" else 5000
    with h5py.File(tmp_path / "wide.h5", "w", libver=libver) as file:
        file["v"] = [1]
        for number in range(count):
            file["v"].attrs[f"a{number}"] = number
        wanted = {name: int(value) for name, value in file["v"].attrs.items()}
    array = icevirt.scan_file(tmp_path / "wide.h5").array("v")
    assert array.attributes.values == wanted
    assert len(array.attributes.dtypes) == count
