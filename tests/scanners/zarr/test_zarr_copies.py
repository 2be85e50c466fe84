"""Arrays of stores that the policies `native` and `inline` store: equal to what zarr reads."""

import json
import zipfile

import numcodecs
import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from icevirt.objects.opening import open_source
from icevirt_scanners.zarr.copies import open_array
from scanners.zarr.test_icechunk_sources import repository
from scanners.zarr.test_zarr_corpus import assert_same
from scanners.zarr.zarr_stores import month

HOW = {"executor": "in-process"}
VALUES = np.arange(35, dtype="f4").reshape(5, 7)


def stored(source, policy="native"):
    """Build with everything stored, and return what is read without the source."""
    repo = source.parent / "repo"
    icevirt.build(source, repo, scan_options={"variable_policy": policy}, **HOW)
    return zarr.open_group(icevirt.Repository.open(repo).readonly_session("main").store, mode="r")


@pytest.fixture(params=[2, 3])
def store(request, tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=request.param)
    flat = {"shape": (5, 7), "chunks": (2, 3), "fill_value": 3}
    for dtype in ("f4", ">i4", "?", "M8[s]", "U4", "c8"):
        how = flat | ({"fill_value": None} if dtype[0] in "MU?" else {})
        root.create_array(dtype, dtype=dtype, **how)[:3] = VALUES[:3].astype(dtype)
    root.create_array("text", shape=(4,), chunks=(3,), dtype="str")[:] = np.array(
        ["a", "", "c", "é"]
    )
    root.create_array("scalar", shape=(), dtype="i2")[...] = 7
    return tmp_path / "s.zarr"


@pytest.mark.parametrize("policy", ["native", "inline"])
def test_all_arrays_of_a_store_can_be_stored(policy, store):
    read = stored(store, policy)
    scanned = scan_file(store, scan_options={"variable_policy": policy})
    assert scanned.counts()["virtual"] == 0
    assert len(scanned.array("/f4").references) == (9 if policy == "native" else 1)
    for name, node in zarr.open_group(store, mode="r").members():
        assert_same(read[name][...], np.asarray(node[...]), name)


def test_what_no_reader_of_icechunk_decodes_is_stored_as_zarr_reads_it(tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    how = {"shape": (5, 7), "chunks": (2, 3), "dtype": "f4", "filters": [numcodecs.Base64()]}
    root.create_array("coded", compressors=None, **how)[...] = VALUES
    with pytest.raises(UnsupportedError, match="base64") as error:
        scan_file(tmp_path / "s.zarr")
    assert '"coded": "native"' in str(error.value)
    read = stored(tmp_path / "s.zarr", {"coded": "native"})
    np.testing.assert_array_equal(read["coded"][...], VALUES)
    plan = icevirt.plan(tmp_path / "s.zarr", scan_options={"variable_policy": "native"}, **HOW)
    assert "base64" in str(plan)


def test_pickled_objects_are_never_read(tmp_path):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    root.create_array("a", shape=(2,), chunks=(2,), dtype="f4", compressors=None)[...] = [1, 2]
    path = tmp_path / "s.zarr/a/.zarray"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"dtype": "|O", "filters": [{"id": "pickle"}]}))
    with pytest.raises(UnsupportedError, match="pickle"):
        scan_file(tmp_path / "s.zarr", scan_options={"variable_policy": "native"})


def test_what_zarr_opened_is_looked_at_for_pickles(tmp_path):
    """Another answer of a server than the one that was scanned, for one."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    root.create_array("a", shape=(2,), chunks=(2,), dtype=str)[...] = ["x", "y"]
    with open_source((tmp_path / "s.zarr/.zgroup").as_uri()) as store:
        assert open_array(store, "/a")[...].tolist() == ["x", "y"]
        path = tmp_path / "s.zarr/a/.zarray"
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"compressor": {"id": "pickle"}}))
        with pytest.raises(UnsupportedError, match="run their code"):
            open_array(store, "/a")


def test_deflated_chunks_of_an_archive_are_stored(store, tmp_path):
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in store.rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(store))
    read = stored(tmp_path / "s.zip")
    for name, node in zarr.open_group(store, mode="r").members():
        assert_same(read[name][...], np.asarray(node[...]), name)


def test_chunks_of_a_repository_are_stored(tmp_path):
    repository(tmp_path / "r")
    read = stored(tmp_path / "r")
    np.testing.assert_array_equal(read["t"][...], month(1)["t"].values)
    assert not scan_file(tmp_path / "r", scan_options={"variable_policy": "native"}).counts()[
        "virtual"
    ]
    scanned = scan_file(tmp_path / "r", scan_options={"variable_policy": "native"})
    assert "garbage" not in str(scanned.findings)


def test_what_is_too_large_is_refused(store):
    options = {"variable_policy": "native", "max_native_bytes_per_file": 100}
    with pytest.raises(UnsupportedError, match="too large to be stored"):
        scan_file(store, scan_options=options)
