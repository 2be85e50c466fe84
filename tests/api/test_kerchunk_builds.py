"""Builds over kerchunk's references read back as the files that the references lead to."""

import json
import os

import netCDF4
import numpy as np
import pytest
import xarray as xr
from kerchunk.hdf import SingleHdf5ToZarr

import icevirt
from builds.support import write_day
from grouping import grouped
from icevirt.errors import CombineError, InvalidInputError, SourcesChangedError

KERCHUNK = "icevirt_scanners.kerchunk.scanner:KerchunkScanner"


@pytest.fixture
def archive(tmp_path, in_process):
    """Three days, and the references of each in a directory of their own."""
    for name in ("data", "refs"):
        (tmp_path / name).mkdir()
    for day in range(3):
        path = tmp_path / f"data/{day}.nc"
        write_day(path, day)
        held = SingleHdf5ToZarr(str(path), inline_threshold=100 * (day == 1)).translate()
        (tmp_path / f"refs/{day}.json").write_text(json.dumps(held))
    return tmp_path


def build(archive, **options):
    options = {
        "concat_dim": "time",
        "scanner": KERCHUNK,
        "allow_references_to": str(archive / "data"),
    } | options
    return icevirt.build(str(archive / "refs/*.json"), str(archive / "repo"), **grouped(options))


def assert_equal(archive, *, raw):
    """Compare a repository with the files; the types of attributes are lost in references."""
    settings = {"decode_cf": False} if raw else {}
    prefix = f"file://{archive}/data/"
    repo = icevirt.Repository.open(
        str(archive / "repo"), authorize_virtual_chunk_access={prefix: None}
    )
    session = repo.readonly_session("main")
    found = xr.open_dataset(session.store, engine="zarr", consolidated=False, **settings)
    days = [archive / f"data/{day}.nc" for day in range(3)]
    wanted = xr.concat(
        [xr.open_dataset(day, **settings) for day in days],
        "time",
        data_vars="minimal",
        coords="minimal",
        compat="equals",
    )
    for name in wanted.variables:
        exact = raw or wanted[name].dtype.kind == "M"
        same = np.testing.assert_array_equal if exact else np.testing.assert_allclose
        same(found[name].values, wanted[name].values, err_msg=name)
        assert found[name].dims == wanted[name].dims


def test_a_build_over_references_reads_as_the_files(archive):
    report = build(archive)
    assert report.containers == (f"file://{archive}/data/",)
    assert report.references.virtual > 0
    assert any("float32" in finding for finding in report.findings)
    assert_equal(archive, raw=True)
    assert_equal(archive, raw=False)


def test_references_in_the_repository_lead_to_the_files_with_their_times(archive):
    build(archive)
    session = icevirt.Repository.open(str(archive / "repo")).readonly_session("main")
    table = session.array_table("/packed")
    urls = {f"file://{archive}/data/{day}.nc" for day in (0, 2)}  # the other's chunks are inline
    assert set(session.all_virtual_chunk_locations()) == urls
    assert (table.locations.last_modified > 0).all()


@pytest.mark.parametrize("how", ["touched", "rewritten", "removed"])
def test_a_file_that_references_lead_to_is_looked_at_before_the_commit(archive, how):
    """The files of references are as they were; what they lead to is not."""
    target = archive / "data/2.nc"  # that of day 1 is in its references

    def change(step):
        if step.phase != "write" or not step.done:
            return
        if how == "removed":
            target.unlink(missing_ok=True)
        else:
            if how == "rewritten":
                write_day(target, 7)
            os.utime(target, (1_500_000_000, 1_500_000_000))

    with pytest.raises(SourcesChangedError, match="1 of 2 referenced files") as caught:
        build(archive, progress=change)
    assert list(caught.value.facts["files"]) == [f"file://{target}"]
    assert "catalog" in caught.value.do
    assert not (archive / "repo/repo").exists(), "nothing was committed"
    if how == "touched":
        build(archive)
        assert_equal(archive, raw=True)


def test_only_some_variables(archive):
    build(archive, variables=["time", "packed"])
    session = icevirt.Repository.open(str(archive / "repo")).readonly_session("main")
    assert {node.path for node in session.snapshot.arrays()} == {"/time", "/packed"}


def test_a_name_that_no_file_has_stops_the_build(archive):
    with pytest.raises(InvalidInputError, match="no file has this variable") as caught:
        build(archive, drop_variables=["time_bnds", "pakced"])
    assert caught.value.facts["unknown"] == ["pakced"]
    assert "/time_bnds" in caught.value.facts["there"]
    assert not (archive / "repo/repo").exists()


@pytest.mark.ci
def test_static_variables_that_differ_are_refused(archive):
    with netCDF4.Dataset(archive / "data/1.nc", "r+") as file:
        file["x"][0] = 99
    held = SingleHdf5ToZarr(str(archive / "data/1.nc"), inline_threshold=0).translate()
    (archive / "refs/1.json").write_text(json.dumps(held))
    with pytest.raises(CombineError, match="differ between files"):
        build(archive)


def test_a_build_over_one_parquet_directory(archive):
    build(archive)
    session = icevirt.Repository.open(
        str(archive / "repo"), authorize_virtual_chunk_access=[f"file://{archive}/data/"]
    ).readonly_session("main")
    icevirt.to_kerchunk(session, "/", archive / "parquet", format="parquet", record_size=7)
    again = icevirt.build(
        str(archive / "parquet"),
        str(archive / "again"),
        scan_options={"scanner": KERCHUNK, "allow_references_to": str(archive / "data")},
    )
    assert again.containers == (f"file://{archive}/data/",)
    found = icevirt.Repository.open(
        str(archive / "again"), authorize_virtual_chunk_access=[f"file://{archive}/data/"]
    ).readonly_session("main")
    settings = {"engine": "zarr", "consolidated": False, "decode_cf": False}
    wanted = xr.open_dataset(session.store, **settings)
    for name, variable in xr.open_dataset(found.store, **settings).variables.items():
        np.testing.assert_array_equal(variable.values, wanted[name].values, err_msg=name)


def test_a_build_by_a_parser_of_virtualizarr(archive, monkeypatch, tmp_path):
    (tmp_path / "parsers.py").write_text(
        "from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner\n"
        "scanner = VirtualizarrScanner('HDFParser')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    report = icevirt.build(
        str(archive / "data/*.nc"),
        str(archive / "repo"),
        concat_dim="time",
        scan_options={
            "scanner": "parsers:scanner",
            "drop_variables": "time_bnds",
        },  # by one chunk of 512 steps a file, which does not join
    )
    assert any("VirtualiZarr" in finding for finding in report.findings)
    prefix = f"file://{archive}/data/"
    session = icevirt.Repository.open(
        str(archive / "repo"), authorize_virtual_chunk_access=[prefix]
    ).readonly_session("main")
    found = xr.open_dataset(session.store, engine="zarr", consolidated=False, decode_cf=False)
    for name in ("packed", "time", "x", "mask"):
        parts = [netCDF4.Dataset(archive / f"data/{day}.nc") for day in range(3)]
        for part in parts:
            part.set_auto_maskandscale(False)
        values = [part[name][...] for part in parts]
        wanted = np.concatenate(values) if "time" in found[name].dims else values[0]
        np.testing.assert_array_equal(found[name].values, wanted, err_msg=name)
        for part in parts:
            part.close()
