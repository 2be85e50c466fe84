"""Steps of contiguous variables stay together in chunks as long as the user chose."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from icevirt.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("in_process")

STEP = 1024  # bytes


def write(folder, lengths, *, chunks=None, first=0, form="NETCDF4"):
    """Write files of hourly steps that follow one another, contiguous unless ``chunks`` says so."""
    folder.mkdir(exist_ok=True)
    at = first
    for n in lengths:
        with netCDF4.Dataset(folder / f"at{at:05}.nc", "w", format=form) as file:
            for name, size in (("time", n), ("lat", 16), ("lon", 16)):
                file.createDimension(name, size)
                file.createVariable(name, "f8", (name,))[:] = np.arange(size) + at * (
                    name == "time"
                )
            file["time"].units = "hours since 2000-01-01"
            options = {"chunksizes": (chunks, 16, 16)} if chunks else {"contiguous": True}
            options = {} if form != "NETCDF4" else options
            v = file.createVariable("v", "f4", ("time", "lat", "lon"), **options)
            v[:] = np.arange(n * 256, dtype="f4").reshape(n, 16, 16) + at * 1000
            file.createVariable("relief", "f4", ("lat", "lon"))[:] = np.arange(256.0).reshape(
                16, 16
            )
        at += n
    return str(folder / "*.nc")


def truth(folder):
    return xr.concat(
        [xr.open_dataset(p) for p in sorted(Path(folder).glob("*.nc"))], "time", data_vars="minimal"
    )[["v"]]


def chunks_of(repo):
    session = icevirt.Repository.open(repo).readonly_session("main")
    return session.array("/v").num_chunks[0], len(session.array_table("/v"))


CASES = {
    "by default each step is a chunk": ((24, 24, 24), None, 72),
    "whole, where files have one length": ((24, 24, 24), "1MiB", 3),
    "cut into what divides the files": ((24, 24, 24), 13 * STEP, 6),
    "a step is larger than the size": ((24, 24), STEP // 2, 48),
    "a shorter end": ((24, 24, 8), "1MiB", 7),
    "lengths without a common divisor": ((31, 28, 30), "1MiB", 89),
    "NetCDF-3, what divides all lengths": ((24, 36, 24), "1MiB", 7),
}


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES)
def test_steps_stay_together_up_to_a_size(tmp_path, name, case):
    lengths, most, chunks = case
    form = "NETCDF3_64BIT_OFFSET" if "NetCDF-3" in name else "NETCDF4"
    files, repo = write(tmp_path / "in", lengths, form=form), str(tmp_path / "repo")
    options = {"split_contiguous": most}
    cost = icevirt.plan(files, combine_options=options)
    report = icevirt.build(files, repo, combine_options=options)
    assert chunks_of(repo) == (chunks, chunks)
    assert {each.path: each.expected for each in cost.arrays}["/v"] == chunks
    assert {e.path: e.references.virtual for e in report.arrays}["/v"] == chunks
    xr.testing.assert_identical(icevirt.open(repo)[["v"]].load(), truth(tmp_path / "in").load())


def test_an_append_and_an_update_keep_the_choice(tmp_path):
    files, repo = write(tmp_path / "in", (24, 24)), str(tmp_path / "repo")
    icevirt.build(files, repo, combine_options={"split_contiguous": "1MiB"})
    write(tmp_path / "in", (24,), first=48)
    icevirt.append(str(tmp_path / "in" / "at00048.nc"), repo)
    assert chunks_of(repo) == (3, 3)
    write(tmp_path / "in", (12,), first=72)
    icevirt.update(repo)
    assert chunks_of(repo) == (7, 7)  # all are cut again, as the last file is shorter
    xr.testing.assert_identical(icevirt.open(repo)[["v"]].load(), truth(tmp_path / "in").load())


def test_files_in_uncompressed_chunks_lie_beside_contiguous_ones(tmp_path):
    write(tmp_path / "in", (24,))
    files = write(tmp_path / "in", (24, 24), chunks=8, first=24)
    icevirt.build(files, tmp_path / "repo", combine_options={"split_contiguous": "1MiB"})
    assert chunks_of(str(tmp_path / "repo")) == (9, 9)


def test_a_plan_says_what_each_choice_takes(tmp_path):
    files = write(tmp_path / "in", (600, 600))
    (note,) = (each for each in icevirt.plan(files).notes if "contiguous" in each)
    assert "1,200 references to 1.0 KiB; with split_contiguous='1MiB' 2 references" in note
    chosen = icevirt.plan(files, combine_options={"split_contiguous": "1MiB"})
    assert {each.path: each.expected for each in chosen.arrays}["/v"] == 2
    assert not [each for each in chosen.notes if "contiguous" in each]


def test_a_variable_of_one_file_is_cut_along_its_first_dimension(tmp_path):
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["v"] = np.arange(1 << 20, dtype="f4").reshape(256, 4096)
    icevirt.build(
        tmp_path / "one.h5", tmp_path / "repo", combine_options={"split_contiguous": "1MiB"}
    )
    assert chunks_of(str(tmp_path / "repo")) == (4, 4)


@pytest.mark.parametrize("size", ["32MiB", 100, "much", True])
def test_a_size_beyond_what_scans_cut_is_refused(size):
    with pytest.raises(InvalidInputError, match=r"from 512 bytes to 16\.0 MiB"):
        icevirt.CombineOptions(split_contiguous=size)
