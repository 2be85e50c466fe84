"""Catalogs that somebody changed: a build from one is refused by name, or reads the same values.

A tampered catalog never makes a build read another file than the sources that were named, and runs
no code. Who changes references within their file, and hides it, decides which bytes are read: that
is what a catalog is for.
"""

import json
import os
import pickle
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    opened,
    write_day,
    write_days,
)
from builds.tampering import HOSTILE, tables_of, with_rows, with_type, with_value
from icevirt import errors
from icevirt.archive import catalog as layout
from icevirt.archive.blocks.packing import pack_targets
from icevirt.execution.selection import default_executor
from icevirt.model.chunks import Locations
from long_forms import crossed


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Two days in a part each, and a third that is like them and was not named."""
    folder = tmp_path_factory.mktemp("archive")
    named = write_days(folder, 2)
    write_day(folder / "decoy.nc", 1, scale=0.5)
    catalog = folder / "catalog"
    with default_executor("in-process"):
        icevirt.build(named, folder / "repo", concat_dim="time", catalog=catalog)
    return named, catalog, expected_dataset(named, "time").load()


@pytest.fixture
def tampered(archive, tmp_path, in_process):
    shutil.copytree(archive[1], tmp_path / "catalog")
    return tmp_path / "catalog"


def outcome(archive, tampered, tmp_path):
    """Build; return None where the values are those of the files, else the error, which is ours."""
    repo = str(tmp_path / "repo")
    try:
        icevirt.build(archive[0], repo, concat_dim="time", catalog=tampered)
    except errors.IcevirtError as error:
        assert not icevirt.Repository.exists(repo)
        return error
    assert_same_dataset(opened(repo), archive[2])
    held = icevirt.Repository.open(repo).readonly_session("main")
    named = {Path(path).as_uri() for path in archive[0]}
    assert {*held.all_virtual_chunk_locations()} <= named
    return None


FILES, ARRAYS, REFS = "files", "arrays", "refs"
REFUSALS = (errors.FormatError, errors.ScanError, errors.CombineError, errors.BuildError)
ALL = bool(os.environ.get("ICEVIRT_TAMPER"))


def cases():
    """Return each hostile value in each column; every 17th of them unless all are asked for."""
    found = [
        pytest.param(table, name, value, id=f"{table} {name} {number}")
        for table in (FILES, ARRAYS, REFS)
        for name, kind in getattr(layout, table.upper())
        for number, value in enumerate(HOSTILE[getattr(pa, kind)()])
    ]
    return found if ALL else found[::17]


@pytest.mark.parametrize(("table", "column", "value"), cases())
def test_a_hostile_value_is_refused_by_name_or_changes_nothing(
    table, column, value, archive, tampered, tmp_path
):
    path = tables_of(tampered, table)[0]
    with_value(path, column, value)
    refused_by_name(outcome(archive, tampered, tmp_path), path)


def refused_by_name(error, path):
    """Make sure that an error, if there is one, says which part to delete."""
    if error is None:
        return
    assert isinstance(error, REFUSALS), error
    if not isinstance(error, errors.FormatError):
        assert "variable" in error.facts or "file" in error.facts or "bad_files" in error.facts
    else:
        assert path.name in str(error)
        assert "Delete" in error.do


TYPED = [(FILES, "row"), (FILES, "size"), (ARRAYS, "schema"), (REFS, "counts")]


@pytest.mark.parametrize(
    ("place", "kind"), crossed(TYPED, [pa.string(), pa.int8(), pa.list_(pa.int64())]), ids=str
)
def test_a_column_of_another_type_is_refused(place, kind, archive, tampered, tmp_path):
    table, column = place
    path = tables_of(tampered, table)[0]
    with_type(path, column, kind)
    error = outcome(archive, tampered, tmp_path)
    assert isinstance(error, errors.FormatError)
    refused_by_name(error, path)


@pytest.mark.parametrize("rows", [[], [0, 0]], ids=["no rows", "a row twice"])
@pytest.mark.parametrize("table", [FILES, ARRAYS, REFS])
def test_rows_that_are_gone_or_repeated_are_refused(table, rows, archive, tampered, tmp_path):
    path = tables_of(tampered, table)[0]
    with_rows(path, rows)
    refused_by_name(outcome(archive, tampered, tmp_path), path)


@pytest.mark.parametrize("table", [FILES, ARRAYS, REFS])
def test_a_table_of_another_part_is_refused(table, archive, tampered, tmp_path):
    """Tables of two parts fit each other, and offsets of one file are none of the other's."""
    one, other = tables_of(tampered, table)
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    error = outcome(archive, tampered, tmp_path)
    assert isinstance(error, errors.FormatError)
    assert "another part" in str(error)
    assert one.name in str(error) or other.name in str(error)


@pytest.mark.ci
@pytest.mark.parametrize("table", [FILES, ARRAYS, REFS])
def test_bits_that_flip_and_ends_that_are_cut_are_noticed(table, archive, tampered, tmp_path):
    """Pages carry checksums; what is outside them is read, or is no Parquet."""
    path = tables_of(tampered, table)[0]
    raw = path.read_bytes()
    places = range(0, len(raw), 7 if ALL else len(raw) // 5)
    for number, at in enumerate(places):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << number % 8)]) + raw[at + 1 :])
        folder = tmp_path / f"flip{number}"
        refused_by_name(outcome(archive, tampered, folder), path)
    path.write_bytes(raw[: len(raw) // 2])
    refused_by_name(outcome(archive, tampered, tmp_path), path)


@pytest.fixture
def decoy(archive):
    return Path(archive[0][0]).with_name("decoy.nc").as_uri()


def test_references_that_lead_to_another_file_are_refused(decoy, archive, tampered, tmp_path):
    """The part does not say that its file refers to others, so it refers to itself."""
    path = tables_of(tampered, REFS)[0]
    at = pq.read_table(path)["path"].to_pylist().index("/packed")
    with_value(path, "targets", pack_targets(Locations.one(decoy)), row=at)
    with_value(path, "sources", struct.pack("<4I", 1, 1, 1, 1), row=at)
    error = outcome(archive, tampered, tmp_path)
    assert isinstance(error, errors.FormatError)
    refused_by_name(error, path)


@pytest.mark.parametrize("place", ["file:///etc/", "s3://elsewhere/", "file:///"])
def test_a_part_that_lets_its_references_out_is_refused(place, archive, tampered, tmp_path):
    with_value(tables_of(tampered, FILES)[0], "places", json.dumps([place]))
    error = outcome(archive, tampered, tmp_path)
    assert isinstance(error, errors.FormatError)
    assert place in str(error)


def test_a_part_of_another_file_is_no_part_of_this_one(decoy, archive, tampered, tmp_path):
    path = tables_of(tampered, FILES)[0]
    with_value(path, "url", decoy)
    error = outcome(archive, tampered, tmp_path)
    assert isinstance(error, errors.FormatError)
    refused_by_name(error, path)


def test_references_behind_the_end_of_a_file_are_refused(archive, tampered, tmp_path):
    path = tables_of(tampered, REFS)[0]
    at = pq.read_table(path)["path"].to_pylist().index("/packed")
    raw = pq.read_table(path)["lengths"].to_pylist()[at]
    with_value(path, "lengths", raw[:16] + b"\x01" * (len(raw) - 16), row=at)
    error = outcome(archive, tampered, tmp_path)
    assert isinstance(error, errors.FormatError)
    refused_by_name(error, path)


def planned(sources, catalog):
    """Return what an error says, None where there was none."""
    try:
        icevirt.plan(sources, concat_dim="time", catalog=catalog)
    except errors.IcevirtError as error:
        return str(error)
    return None


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


NOTES = {
    "a pickle": pickle.dumps(Bomb()),
    "not JSON": b"\xff{",
    "deep JSON": b"[" * 100_000,
    "another list": b"[[1], 2]",
    "another object": b'{"options": 1}',
    "nothing": b"",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_notes_of_a_catalog_run_no_code(note, archive, tampered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scan = next(Path(tampered, "scans").iterdir())
    forgotten = Path(tampered, "forgotten")
    forgotten.mkdir()
    for path in (scan, forgotten / "x.json", Path(tampered, "opening/x.parquet")):
        path.parent.mkdir(exist_ok=True)
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(note)
        for sources in (archive[0], None):
            output = planned(sources, tampered)
            assert output is None or path.name in output or "has no scan with" in output
        path.unlink() if before is None else path.write_bytes(before)
    assert not Path("exploded").exists()


def test_a_catalog_of_an_earlier_version_has_no_marks_and_is_read(archive, tampered, tmp_path):
    for table in (FILES, ARRAYS, REFS):
        for path in tables_of(tampered, table):
            bare = pq.read_table(path).replace_schema_metadata(None)
            how = {"write_statistics": ["path"]} if table == REFS else {}
            pq.write_table(bare, path, compression="zstd", **how)
    assert outcome(archive, tampered, tmp_path) is None
