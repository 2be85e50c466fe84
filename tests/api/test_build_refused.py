"""What `icevirt.build` refuses: one clear error each, and nothing is left behind."""

import os
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

import icevirt
from builds.support import (
    opened,
    truncate,
    write_day,
    write_days,
)
from grouping import grouped
from icevirt import errors
from icevirt.tasks import write_manifests
from icevirt.tasks.write_manifests import run_write

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


@pytest.fixture
def days(tmp_path):
    """Three days of an archive."""
    return write_days(tmp_path / "archive")


def other_grid(path):
    """Put another grid in the place of a file."""
    write_day(path, 3, nx=7)


def other_scale(path):
    """Put another packing in the place of a file."""
    write_day(path, 3, scale=0.5)


def other_coordinate(path):
    """Shift a coordinate that all files should share."""
    with netCDF4.Dataset(path, "a") as file:
        file["x"][:] = file["x"][:] + 0.5


def without_variable(path):
    """Take a variable out of a file."""
    with h5py.File(path, "a") as file:
        del file["packed"]


SPOILT = {
    "a truncated file": (truncate, errors.ScanError, r"1 of 3 files.*day3\.nc"),
    "a text file named .nc": (
        lambda path: Path(path).write_text("hello"), errors.ScanError, r"1 of 3 files.*day3\.nc",
    ),
    "an empty file": (lambda path: Path(path).write_bytes(b""), errors.ScanError, r"day3\.nc"),
    "a web page": (
        lambda path: Path(path).write_text("<!DOCTYPE html><html>"), errors.ScanError, "(?i)html",
    ),
    "another grid": (other_grid, errors.CombineError, r"grids.*day1\.nc.*'x': 6.*day3\.nc.*'x': 7"),
    "another scale factor": (other_scale, errors.CombineError, r"packed.*scale_factor.*day3\.nc"),
    "a shifted coordinate": (other_coordinate, errors.CombineError, r"/x.*differ.*day3\.nc"),
    "a variable less": (without_variable, errors.CombineError, r"/packed.*missing.*day3\.nc"),
    "the same day twice": (
        lambda path: shutil.copy(Path(path).parent / "day1.nc", path),
        errors.CombineError, r"same step along.*day1\.nc.*day3\.nc",
    ),
    "times in units that count no time": (
        lambda path: write_day(path, 3, units="K"), errors.CombineError, "units",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "kind", "output"), SPOILT.values(), ids=SPOILT.keys())
def test_files_that_do_not_fit_leave_nothing_behind(days, repo_path, spoil, kind, output):
    """One error that names the file; no repository, no folder."""
    spoil(days[2])
    with pytest.raises(kind, match=output) as caught:
        icevirt.build(days, repo_path, concat_dim="time")
    assert caught.value.do or caught.value.fixes
    assert not Path(repo_path).exists()


def test_a_refused_build_leaves_an_existing_repository_as_it_was(days, repo_path):
    """Byte for byte."""
    icevirt.build(days[:2], repo_path, concat_dim="time")
    before = {p: p.read_bytes() for p in Path(repo_path).rglob("*") if p.is_file()}
    truncate(days[2])
    with pytest.raises(errors.ScanError):
        icevirt.build(days, repo_path, concat_dim="time", mode="w")
    assert {p: p.read_bytes() for p in Path(repo_path).rglob("*") if p.is_file()} == before


def occupied(path):
    """Put something else where the repository should go."""
    path.mkdir()
    (path / "thesis.tex").write_text("precious")


def test_what_the_repository_would_refuse_is_found_before_writing(days, repo_path):
    """An array where the group should be, and a catalog in the repository's place."""
    icevirt.build(days, repo_path, concat_dim="time")
    before = {p: p.read_bytes() for p in Path(repo_path).rglob("*") if p.is_file()}
    for group in ("mask", "mask/below"):
        with pytest.raises((errors.InvalidInputError, errors.AlreadyExistsError), match="mask"):
            icevirt.build(days[:1], repo_path, group=group)
    with pytest.raises(errors.InvalidInputError, match="the same path"):
        icevirt.build(days[:1], repo_path, group="other", catalog=repo_path)
    assert {p: p.read_bytes() for p in Path(repo_path).rglob("*") if p.is_file()} == before


CALLS = {
    "an empty glob": ({"sources": "nothing/*.nc"}, errors.InvalidInputError, "matches no file"),
    "no sources": ({"sources": []}, errors.InvalidInputError, "no sources"),
    "a file that is not there": ({"sources": "gone.nc"}, errors.NotFoundError, r"gone\.nc"),
    "a scheme nobody reads": (
        {"sources": "gopher://host/*.nc"}, errors.InvalidInputError, "gopher"
    ),
    "a missing dimension": (
        {"concat_dim": "tme"}, errors.CombineError, r"'tme'.*'time', 'x', 'y'",
    ),
    "an unknown branch": ({"branch": "nxt"}, errors.RefNotFoundError, "nxt"),
    "an unknown mode": ({"mode": "a"}, errors.InvalidInputError, "'w-'"),
    "an unknown policy": ({"combine_attrs": "best"}, errors.InvalidInputError, "drop_conflicts"),
    "a message that is no text": ({"message": 5}, errors.InvalidInputError, "message"),
    "metadata that are no mapping": ({"metadata": [1]}, errors.InvalidInputError, "metadata"),
    "metadata that are no JSON": ({"metadata": {"a": {1}}}, errors.InvalidInputError, "JSON"),
    "fewer bad files than none": ({"max_bad_files": -1}, errors.InvalidInputError, "negative"),
    "no group": ({"group": None}, errors.InvalidInputError, "group"),
    "a variable that is no name": ({"drop_variables": [5]}, errors.InvalidInputError, "names"),
    "a path through '..'": ({"group": "a/../b"}, errors.InvalidInputError, "Segments"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "output"), CALLS.values(), ids=CALLS.keys())
def test_wrong_calls_are_answered_before_anything_is_made(days, repo_path, change, kind, output):
    """The message holds what was wrong and what would be right."""
    call = {"sources": days, "concat_dim": "time", **change}
    with pytest.raises(kind, match=output) as caught:
        icevirt.build(call.pop("sources"), repo_path, **grouped(call))
    assert caught.value.do
    assert not Path(repo_path).exists()


def test_a_path_that_holds_something_else_is_not_touched(days, tmp_path):
    """Neither a directory with files nor a file becomes a repository."""
    occupied(tmp_path / "work")
    with pytest.raises(errors.AlreadyExistsError, match=r"thesis\.tex"):
        icevirt.build(days, tmp_path / "work", concat_dim="time")
    assert os.listdir(tmp_path / "work") == ["thesis.tex"]
    with pytest.raises((errors.AlreadyExistsError, errors.StorageError), match=r"thesis\.tex"):
        icevirt.build(days, tmp_path / "work" / "thesis.tex", concat_dim="time")


@pytest.mark.parametrize("place", ["/proc/icevirt-repo", "/dev/null/repo"])
def test_an_unwritable_path_is_one_clear_error(days, place):
    """It names the path, and what can be done."""
    with pytest.raises(errors.StorageError, match=place.rsplit("/", 1)[0]) as caught:
        icevirt.build(days, place, concat_dim="time")
    assert caught.value.do


def test_memory_is_no_place_for_a_build(days):
    """Spark's workers could not reach it, so nothing would be committed."""
    with pytest.raises(errors.InvalidInputError, match="directory"):
        icevirt.build(days, icevirt.in_memory_storage(), concat_dim="time")


def test_references_that_get_lost_on_the_way_stop_the_build(days, repo_path, monkeypatch):
    """What was scanned is what is committed, array by array."""
    collect = write_manifests.window_table

    def lossy(*arguments):
        table, dropped = collect(*arguments)
        return (table.take(np.arange(len(table) // 2)) if len(table) > 4 else table), dropped

    monkeypatch.setattr(write_manifests, "window_table", lossy)
    with pytest.raises(errors.BuildError, match=r"/packed were lost.*scanned=12, written=6"):
        icevirt.build(days, repo_path, concat_dim="time")
    assert not Path(repo_path).exists()


def test_a_refused_build_takes_its_chunks_with_it_and_nobody_elses(days, repo_path, in_process):
    """Native chunks and manifests that it wrote go; a commit made meanwhile stays whole."""

    def fail():
        assert Path(repo_path, "manifests").exists()
        raise TypeError

    in_process.after[run_write] = fail
    huge = [write_day(Path(days[0]).parent / f"huge{n}.nc", 10 + n, steps=400) for n in (0, 200)]
    with pytest.raises(TypeError):
        icevirt.build(huge, repo_path, concat_dim="time")
    assert not Path(repo_path).exists()

    def meddle():
        session = icevirt.Repository.create(repo_path, check_clean_root=False)
        assert session.lookup_branch("main")
        raise errors.BuildError("stopped")

    in_process.after[run_write] = meddle
    with pytest.raises(errors.BuildError, match="stopped"):
        icevirt.build(huge, repo_path, concat_dim="time")
    assert icevirt.check(repo_path).ok


def test_sparse_arrays_lose_nothing_between_their_windows(tmp_path, repo_path):
    """A large grid with three chunks, cut into several windows of few references each."""
    with h5py.File(tmp_path / "sparse.h5", "w") as file:
        sparse = file.create_dataset("v", (2000, 2000), "i4", chunks=(2, 2), fillvalue=-1)
        sparse[0, 0], sparse[5, 5], sparse[1999, 1999] = 7, 8, 9
    report = icevirt.build(tmp_path / "sparse.h5", repo_path)
    assert report.references.virtual == 3
    found = opened(repo_path, decode_cf=False)["v"]
    assert [int(found[at, at].values) for at in (0, 5, 1999, 7)] == [7, 8, 9, -1]


def test_axes_without_elements_are_built(tmp_path, repo_path):
    """An axis of length 0 that is not the growing one."""
    files = []
    for number in (1, 2):
        files.append(str(tmp_path / f"f{number}.nc"))
        with netCDF4.Dataset(files[-1], "w") as file:
            file.createDimension("t", 2)
            file.createDimension("e", 0)
            file.createVariable("z", "f4", ("t", "e"))
            file.createVariable("d", "f4", ("t",))[:] = number
    icevirt.build(files, repo_path, concat_dim="t")
    found = opened(repo_path)
    assert found["z"].shape[0] == 4
    assert found["d"].values.tolist() == [1, 1, 2, 2]


def test_a_file_that_changes_before_the_commit_stops_it(days, repo_path, in_process):
    """The list of changed files is in the error; nothing is committed."""
    in_process.after[run_write] = lambda: write_day(days[1], 2)
    with pytest.raises(errors.BuildError, match=r"1 of 3 files changed.*day2\.nc"):
        icevirt.build(days, repo_path, concat_dim="time")
    assert not Path(repo_path, "repo").exists()


def test_a_file_that_changes_after_the_build_is_an_error_on_reading(days, repo_path):
    """No stale value is ever shown."""
    icevirt.build(days, repo_path, concat_dim="time")
    dataset = opened(repo_path)
    write_day(days[1], 2)
    later = Path(days[1]).stat().st_mtime + 10
    os.utime(days[1], (later, later))
    with pytest.raises(errors.StaleReferenceError, match=r"day2\.nc"):
        dataset.packed.load()


def test_reading_without_authorisation_says_what_to_pass(days, repo_path, tmp_path, monkeypatch):
    """The message holds the argument, for everybody but who built it."""
    import xarray as xr

    report = icevirt.build(days, repo_path, concat_dim="time")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of somebody else"))
    with pytest.raises(errors.UnauthorizedError) as caught:
        xr.open_dataset(repo_path, engine="icevirt").packed.load()
    assert f'authorize_virtual_chunk_access=["{report.containers[0]}"]' in str(caught.value)


def test_a_repaired_file_is_scanned_again(days, repo_path, tmp_path):
    """A bad file costs no second scan of the good ones, and is not remembered as bad."""
    good = Path(days[1]).read_bytes()
    facts = os.stat(days[1])
    Path(days[1]).write_bytes(b"x" * len(good))
    os.utime(days[1], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    call = {"concat_dim": "time", "catalog": tmp_path / "catalog"}
    with pytest.raises(errors.ScanError):
        icevirt.build(days, repo_path, **grouped(call))
    Path(days[1]).write_bytes(good)
    os.utime(days[1], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    report = icevirt.build(days, repo_path, **grouped(call))
    assert (report.files_scanned, report.files_reused) == (1, 2)


def test_a_plan_says_what_a_build_would_make(days, tmp_path):
    """Same arrays, same counts; nothing is written but the catalog that was named."""
    catalog = tmp_path / "catalog"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    plan = icevirt.plan(days, concat_dim="time", catalog=catalog)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert {path for path in after if catalog not in (path, *path.parents)} == set(before)
    assert {path: after[path] for path in before} == before
    report = icevirt.build(days, tmp_path / "repo", concat_dim="time", catalog=catalog)
    assert report.files_scanned == 0
    assert [(a.path, a.shape, a.chunk_shape) for a in plan.arrays] == [
        (a.path, a.shape, a.chunk_shape) for a in report.arrays
    ]
    assert sum(a.references.virtual for a in plan.arrays) == report.references.virtual
    assert plan.containers[0].url_prefix == report.containers[0]


def test_a_plan_is_refused_as_the_build_would_be(days):
    """The same error, before there is a repository."""
    other_scale(days[2])
    with pytest.raises(errors.CombineError, match="scale_factor"):
        icevirt.plan(days, concat_dim="time")
