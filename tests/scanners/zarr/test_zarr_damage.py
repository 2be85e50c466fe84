"""Stores that are partly deleted, hold other files, or are written to: named, and nothing is lost."""

import json
import os
import shutil

import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.dataset import writing
from icevirt.api.scan import scan_file
from icevirt.errors import (
    IcevirtError,
    InvalidInputError,
    ScanError,
    SourcesChangedError,
    UnsupportedError,
)
from scanners.zarr.zarr_stores import consolidate


@pytest.fixture(params=[2, 3])
def store(request, tmp_path):
    """A store of two arrays of four chunks each."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=request.param)
    for name in ("a", "b"):
        how = {"shape": (4, 4), "chunks": (2, 2), "dtype": "i4", "compressors": None}
        root.create_array(name, **how)[...] = np.arange(16).reshape(4, 4)
    return tmp_path / "s.zarr"


def metadata_of(store, array="b"):
    name = "zarr.json" if (store / "zarr.json").exists() else ".zarray"
    return store / array / name


def chunk_of(store, array="b"):
    return next(
        path
        for path in sorted((store / array).rglob("*"))
        if path.is_file() and not path.name.endswith("json") and not path.name.startswith(".z")
    )


def findings(store):
    return {finding.code: finding.message for finding in scan_file(store).findings}


def test_chunks_whose_array_lost_its_metadata_are_an_error(store):
    for document in (".zarray", ".zattrs", "zarr.json"):
        (store / "b" / document).unlink(missing_ok=True)
    with pytest.raises(ScanError, match="partly deleted") as error:
        scan_file(store)
    assert error.value.facts["objects"][0].startswith("b/")
    assert [a.path for a in scan_file(store, scan_options={"drop_variables": ["/b"]}).arrays] == [
        "/a"
    ]


def test_an_array_that_is_gone_from_consolidated_metadata_is_an_error(store):
    consolidate(store)
    shutil.rmtree(store / "b")
    with pytest.raises(ScanError, match="partly deleted") as error:
        scan_file(store)
    assert error.value.facts["missing"][0].startswith("b/")


def test_consolidated_metadata_that_are_older_than_their_nodes_are_an_error(store):
    consolidate(store)
    root = zarr.open_group(store, mode="r+", use_consolidated=False)
    root["b"].resize((6, 4))
    with pytest.raises(ScanError, match="older than its nodes") as error:
        scan_file(store)
    assert error.value.facts["nodes"] == [str(metadata_of(store).relative_to(store))]
    consolidate(store)
    assert scan_file(store).array("/b").shape == (6, 4)
    root.create_array("c", shape=(2,), dtype="i4")
    with pytest.raises(ScanError, match="older than its nodes"):
        scan_file(store)


@pytest.mark.parametrize(
    "name", ["README.md", "a/notes.txt", "a/01.1", "a/c/00/1", "a/1.1.1", "b/.x"]
)
def test_other_files_are_named_and_left_out(name, store):
    before = scan_file(store).counts()
    (store / name).parent.mkdir(parents=True, exist_ok=True)
    (store / name).write_bytes(b"x")
    assert name in findings(store)["foreign-objects"]
    assert scan_file(store).counts() == before


def test_chunks_behind_the_end_of_an_array_are_named_and_left_out(store):
    document = json.loads(metadata_of(store).read_text())
    metadata_of(store).write_text(json.dumps(document | {"shape": [2, 4]}))
    assert "b/" in findings(store)["chunks-outside"]
    assert len(scan_file(store).array("/b").references) == 2


@pytest.mark.parametrize("length", [0, 3, 400])
def test_a_chunk_of_another_length_is_an_error(length, store):
    chunk_of(store).write_bytes(b"x" * length)
    with pytest.raises(ScanError, match="damaged") as error:
        scan_file(store)
    assert error.value.facts["chunk"] == str(chunk_of(store).relative_to(store))


@pytest.mark.parametrize(
    "body", ["", "{", "[]", '{"shape": 3}', '{"zarr_format": 3, "node_type": "array"}']
)
def test_damaged_metadata_are_an_error_with_their_name(body, store):
    metadata_of(store).write_text(body)
    with pytest.raises(ScanError) as error:
        scan_file(store)
    assert "b" in str(error.value)
    assert "Traceback" not in str(error.value)


def test_links_in_a_store_are_refused(store):
    chunk = chunk_of(store)
    moved = chunk.rename(store.parent / "elsewhere")
    chunk.symlink_to(moved)
    with pytest.raises(UnsupportedError, match="symbolic links"):
        scan_file(store)


def test_a_name_that_is_no_text_is_refused_by_name(store):
    (store / "a" / os.fsdecode(b"odd\xff")).touch()
    with pytest.raises(InvalidInputError, match="not UTF-8") as error:
        scan_file(store)
    assert "odd" in error.value.facts["path"]


def test_a_store_that_is_written_to_during_a_build_is_found_out(store, tmp_path, monkeypatch):
    real = writing.write_all

    def write(*given):
        chunk_of(store).write_bytes(bytes(16))
        return real(*given)

    monkeypatch.setattr("icevirt.api.dataset.transaction.write_all", write)
    with pytest.raises(SourcesChangedError):
        icevirt.build(store, tmp_path / "repo", executor="in-process")


def test_a_store_on_a_web_server_is_refused(tmp_path):
    with pytest.raises(IcevirtError, match="cannot be"):
        icevirt.build("http://127.0.0.1:1/s.zarr/", tmp_path / "repo", executor="in-process")


def test_a_folder_of_stores_is_no_source(store, tmp_path):
    with pytest.raises(IcevirtError, match=r"Name the Zarr stores in it: .*/\*\.zarr"):
        icevirt.plan(tmp_path, executor="in-process")
