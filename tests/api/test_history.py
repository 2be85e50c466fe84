"""The history of builds: what log, diff and source say in the terms of the archive."""

import json
import os
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import opened, write_days
from icevirt.api.dataset.records import digest_of, identify_files
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.listings import write_listing
from icevirt.errors import InvalidInputError
from icevirt.storage.constructors import storage_of
from icevirt.storage.protocol import Below

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def files(tmp_path, repo_path):
    """Three days; two builds, of two of them and of all."""
    files = write_days(tmp_path / "archive")
    icevirt.build(files[:2], repo_path, concat_dim="time")
    icevirt.build(files, repo_path, concat_dim="time", mode="w")
    return files


def keep(repo_path, files):
    """Keep the list of a build's files as builds keep it; return its name."""
    found = SourceFiles(files)
    name = digest_of(identify_files(found))
    write_listing(Below(storage_of(repo_path), "icevirt/"), name, found)
    return name


def test_builds_say_what_they_added(files, repo_path, run):
    newest, before, root = icevirt.log(repo_path)
    assert (newest.build.files, newest.build.files_before, newest.build.arrays) == (3, 2, 6)
    counted = icevirt.info(repo_path).arrays
    assert newest.build.references == sum(each.references.total for each in counted)
    assert (before.build.files, before.build.files_before, root.build) == (2, None, None)
    status, output, _ = run("log", repo_path, "-n", 1)
    assert status == 0
    assert "\n    3 files (+1), 6 arrays, 17 references\n" in output
    assert f"older: icevirt log {repo_path} --snapshot-id {before.snapshot_id}" in output
    status, output, _ = run("log", repo_path, "-o", "json")
    assert [each["snapshot_id"] for each in json.loads(output)["commits"]] == [
        newest.snapshot_id,
        before.snapshot_id,
        root.snapshot_id,
    ]


def test_a_diff_counts_steps_and_files_and_names_them_where_the_repository_lists_them(
    files, repo_path, run, monkeypatch
):
    diff = icevirt.diff(repo_path, "main~1")
    assert [(each.dimension, each.before, each.after) for each in diff.steps] == [("time", 8, 12)]
    (counted,) = diff.files
    assert (counted.before, counted.after) == (2, 3)
    assert counted.listed
    assert (counted.added, counted.gone, counted.changed) == ((f"file://{files[2]}",), (), ())
    chunks = {each.path: (each.change, each.chunks_written) for each in diff.nodes}
    assert chunks["/packed"] == ("rewritten", 12)
    assert diff.nodes == icevirt.diff(repo_path).nodes
    old, same, new = (
        SourceFile(url=f"file:///{n}.nc", size=1, etag="", last_modified=n) for n in (1, 2, 3)
    )
    changed = SourceFile(url=same.url, size=9, etag="", last_modified=same.last_modified)
    names = [keep(repo_path, each) for each in ((old, same), (changed, new))]
    by_count = {2: names[0], 3: names[1]}
    from icevirt.api.history import log

    recorded = log.provenance_of

    def of_lists(summary, group=None):
        record = recorded(summary, group)
        return record and {**record, "listing": by_count[record["files"]]}

    monkeypatch.setattr(log, "provenance_of", of_lists)
    (named,) = icevirt.diff(repo_path, "main~1").files
    assert named.listed
    assert (named.added, named.gone, named.changed) == ((new.url,), (old.url,), (same.url,))
    status, output, _ = run("diff", repo_path, "main~1")
    assert status == 0
    assert "  time: 8 to 12 steps (+4)\n" in output
    assert "  files: 2 to 3: 1 added, 1 gone, 1 changed\n    + file:///3.nc\n" in output
    by_count[3] = "../../../etc/passwd"
    assert not icevirt.diff(repo_path, "main~1").files[0].listed


def test_a_diff_shows_which_chunks_a_corrected_file_changed(tmp_path, run):
    files, repo = write_days(tmp_path / "archive"), str(tmp_path / "repo")
    icevirt.build(f"{tmp_path}/archive/*.nc", repo, concat_dim="time")
    with netCDF4.Dataset(files[1], "a") as file:
        file["packed"][2] = file["packed"][2] + 1
    later = Path(files[1]).stat().st_mtime + 10  # Icechunk records whole seconds
    os.utime(files[1], (later, later))
    icevirt.update(repo)
    diff = icevirt.diff(repo)
    by_path = {each.path: each for each in diff.nodes}
    packed = by_path["/packed"]
    assert (packed.chunks_changed, packed.differs_in[0]) == (4, (4, 8))  # those of the file
    assert {"/x", "/y", "/time"} <= {*diff.same}
    assert diff.files[0].changed == (f"file://{files[1]}",)
    _, output, _ = run("diff", repo)
    assert "~ /packed  time: 12, y: 5, x: 6; 4 chunks of 12 changed: time 4 to 7\n" in output
    assert "written anew, and the same: /mask, /time, " in output
    _, output, _ = run("diff", repo, "main", "-o", "json")
    assert json.loads(output)["nodes"] == []


def test_the_source_of_a_value_holds_it(files, repo_path, run):
    with opened(repo_path) as ds:
        at = {"time": ds.time.values[5], "y": ds.y.values[2]}
        (chunk,) = ds.icevirt.source("packed", at, x=ds.x.values[1])
        assert chunk == icevirt.source(repo_path, "packed", at).chunks[0]
        later = ds.isel(time=slice(5, None)).icevirt.source("packed", at)
        assert later.chunks == (chunk,)
        with pytest.raises(InvalidInputError, match="does not say which repository"):
            xr.Dataset().icevirt.source("packed")
    assert chunk.location == f"file://{files[1]}"
    with h5py.File(files[1]) as file:
        stored = file["packed"].id.get_chunk_info(1)
    assert (chunk.offset, chunk.length) == (stored.byte_offset, stored.size)
    newest = icevirt.log(repo_path)[0]
    assert chunk.written_by.snapshot_id == newest.snapshot_id
    assert chunk.written_by.build_id == newest.build.build_id
    words = "time=2001-01-03T06:00,y=0.5"
    status, output, _ = run("source", repo_path, "packed", "--at", words, "--at", "x=0.2")
    assert status == 0
    assert f"  file        {chunk.location}\n" in output
    assert f"  bytes       {chunk.offset} to {chunk.offset + chunk.length} (" in output
    assert ", x=0.2\n" in output
    status, output, _ = run("source", repo_path, "packed", "--at", words, "-o", "json")
    assert json.loads(output)["chunks"][0]["offset"] == stored.byte_offset


def test_a_day_is_the_label_of_its_only_step(tmp_path, run):
    noon = np.datetime64("2024-01-01T12", "ns") + np.arange(3) * np.timedelta64(24, "h")
    days = xr.Dataset({"v": (("time", "x"), np.ones((3, 200)))}, {"time": noon})
    days.to_netcdf(tmp_path / "days.nc", encoding={"v": {"chunksizes": (1, 200)}})
    icevirt.build(tmp_path / "days.nc", tmp_path / "repo")
    _, output, _ = run("source", str(tmp_path / "repo"), "v", "--at", "time=2024-01-02")
    assert "  at     time=2024-01-02T12:00\n  index  time=1\n" in output
    _, _, error = run("source", str(tmp_path / "repo"), "v", "--at", "time=2024-01")
    assert "3 places along 'time' have the label '2024-01'" in error


def test_a_label_that_is_not_there_names_its_neighbors(files, repo_path, run):
    status, _, error = run("source", repo_path, "packed", "--at", "time=2001-01-03T07:00")
    assert status == 1
    assert "2001-01-03T06:00" in error
    assert "2001-01-03T12:00" in error
    assert "--nearest" in error
    nearest = icevirt.source(
        repo_path, "packed", {"time": "2001-01-03T07:00", "y": "0.6"}, nearest=True
    )
    assert nearest.at == {"time": "2001-01-03T06:00", "y": 0.5}
    assert nearest.index == {"time": 5, "y": 2}
    for labels, words in (
        ({"time": "2001-01-03"}, "4 places"),
        ({"y": "north"}, "holds numbers"),
        ({"z": 1}, "no dimension 'z'"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            icevirt.source(repo_path, "packed", labels)
    (inline,) = icevirt.source(repo_path, "time", {})
    assert inline.kind == "inline"
    assert "in a manifest of the repository" in inline.place


def test_an_era_is_found_by_its_labels(tmp_path, repo_path):
    files = write_days(tmp_path / "archive", 2)
    with h5py.File(files[1], "a") as file:
        values, attributes = file["packed"][:], dict(file["packed"].attrs)
        del file["packed"]
        made = file.create_dataset("packed", data=values, chunks=values.shape, compression="gzip")
        for name in ("scale_factor", "add_offset", "_FillValue", "units"):
            if name in attributes:
                made.attrs[name] = attributes[name]
        for axis, name in enumerate(("time", "y", "x")):
            made.dims[axis].attach_scale(file[name])
    icevirt.build(files, repo_path, concat_dim="time", combine_options={"on_mismatch": "eras"})
    with opened(repo_path, eras="concat") as ds:
        times = ds.time.values
        for day, at in ((0, 1), (1, 6)):
            found = ds.icevirt.source("packed", time=times[at])
            assert {each.location for each in found} == {f"file://{files[day]}"}
    assert icevirt.source(repo_path, "packed", {"time": times[6]}).index == {
        "time": int(np.flatnonzero(times[4:] == times[6])[0])
    }
