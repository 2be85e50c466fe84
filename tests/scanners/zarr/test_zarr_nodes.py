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


@pytest.mark.parametrize("name", [None, "a"])
def test_nodes_below_an_array_are_an_error(name, tmp_path):
    if name:
        zarr.create_group(tmp_path / "s.zarr")
    zarr.create_array(tmp_path / "s.zarr", name=name, shape=(3,), dtype="i4")
    array = tmp_path / "s.zarr" / (name or "")
    shutil.copytree(array, array / "x")
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


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_with_equal_documents_hold_their_own_chunks(zarr_format, tmp_path):
    """One is empty, one lacks a chunk, one has a chunk behind its end."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=zarr_format)
    how = {"shape": (4, 6), "chunks": (2, 3), "dtype": "i4", "compressors": None}
    written = {
        "a/0": VALUES,
        "a/1": VALUES * 2,
        "b/0": VALUES * 0,
        "b/1": VALUES * 3,
        "odd": VALUES,
    }
    for path, values in written.items():
        held = {"units": "m"} if path == "odd" else {"zero": 0}
        array = root.create_array(
            path, **how, attributes=held, config={"write_empty_chunks": False}
        )
        array[...] = values
    separator = "/c/0/" if zarr_format == 3 else "/0."
    (tmp_path / f"s.zarr/a/1{separator}1").unlink()
    shutil.copy(tmp_path / f"s.zarr/b/1{separator}1", tmp_path / f"s.zarr/b/1{separator}2")
    found = {array.path: array for array in scan_file(tmp_path / "s.zarr").arrays}
    assert {path: len(array.references) for path, array in found.items()} == {
        "/a/0": 4,
        "/a/1": 3,
        "/b/0": 0,
        "/b/1": 4,
        "/odd": 4,
    }
    assert found["/a/0"].attributes is found["/b/1"].attributes
    icevirt.build(tmp_path / "s.zarr", tmp_path / "repo", executor="in-process")
    read = zarr.open_group(session_of(tmp_path / "repo", tmp_path).store, mode="r")
    source = zarr.open_group(tmp_path / "s.zarr", mode="r")
    for path in written:
        np.testing.assert_array_equal(read[path][...], source[path][...])
        assert dict(source[path].attrs).items() <= dict(read[path].attrs).items()
