"""Nodes of a store: an array that is all of it, and names with any characters."""

import shutil

import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import ScanError
from scanners.zarr.zarr_stores import arrays_in, consolidate

NAMES = [
    "a b",
    "é",
    "日本",
    "a+b",
    "50%",
    "q?x",
    "h#x",
    "x=1,2",
    "[b]",
    "a:b",
    "'q",
    "c",
    "0",
    "%41",
    "a%2Fb",
]
VALUES = np.arange(24, dtype="i4").reshape(4, 6)


def session_of(repo, folder):
    opened = icevirt.Repository.open(repo, authorize_virtual_chunk_access=[folder])
    return opened.readonly_session("main")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_stack_of_stores_that_are_arrays(zarr_format, tmp_path):
    for number in (1, 2):
        array = zarr.create_array(
            tmp_path / f"r{number}.zarr",
            shape=(4, 6),
            chunks=(2, 3),
            dtype="i4",
            zarr_format=zarr_format,
            attributes={"units": "m"},
        )
        array[...] = VALUES * number
    how = {"combine_options": {"labels": "r{run:d}.zarr"}, "executor": "in-process"}
    icevirt.build([tmp_path / "r1.zarr", tmp_path / "r2.zarr"], tmp_path / "repo", **how)
    read = zarr.open_group(session_of(tmp_path / "repo", tmp_path).store, mode="r")["data"]
    np.testing.assert_array_equal(read[...], [VALUES, VALUES * 2])
    assert read.attrs["units"] == "m"
    access = {"authorize_virtual_chunk_access": [tmp_path], "executor": "in-process"}
    assert icevirt.verify(tmp_path / "repo", values=2, seed=1, **access).ok


def test_nodes_below_an_array_are_an_error(tmp_path):
    zarr.create_array(tmp_path / "s.zarr", shape=(3,), dtype="i4")
    shutil.copytree(tmp_path / "s.zarr", tmp_path / "s.zarr/x")
    with pytest.raises(ScanError, match="nodes below an array"):
        scan_file(tmp_path / "s.zarr")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_names_with_any_characters(zarr_format, tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=zarr_format)
    for number, name in enumerate(NAMES):
        array = root.create_array(f"{name}/{name}", shape=(3,), chunks=(2,), dtype="i4")
        array[...] = np.arange(3) + number
    consolidate(tmp_path / "s.zarr")
    icevirt.build(tmp_path / "s.zarr", tmp_path / "repo", executor="in-process")
    store = session_of(tmp_path / "repo", tmp_path).store
    assert set(arrays_in(store)) == {f"{name}/{name}" for name in NAMES}
    for number, name in enumerate(NAMES):
        read = zarr.open_array(store, path=f"{name}/{name}", mode="r")[...]
        assert read.tolist() == [number, number + 1, number + 2]
