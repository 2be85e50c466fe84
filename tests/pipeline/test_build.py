"""`icevirt.build`: what it promises when all is well, and one clear error each when it is not."""

import os
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

import icevirt
from icevirt import errors
from icevirt.api import building as build_module
from icevirt.spark import attempt, writing

from .support import (
    assert_same_dataset,
    assert_same_raw,
    expected_dataset,
    official,
    opened,
    without_spark,
    write_day,
    write_days,
)


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    without_spark(monkeypatch)


@pytest.fixture
def days(tmp_path):
    """Three days of an archive."""
    return write_days(tmp_path / "archive")


def snapshots(repo):
    """Return the messages of main's history, newest first."""
    return [each.message for each in icevirt.Repository.open(repo).ancestry(branch="main")]


# -- when all is well ----------------------------------------------------------------------------


def test_a_packed_archive_reads_as_its_files_do(days, repo_path):
    """f4 scale factors stay f4, holes stay NaN, partial time_bnds are stored."""
    report = icevirt.build(days, repo_path, concat_dim="time")
    assert_same_dataset(opened(repo_path), expected_dataset(days, "time"))
    session = icevirt.Repository.open(
        repo_path, authorize_virtual_chunk_access=report.containers
    ).readonly_session("main")
    assert_same_raw(
        session.store,
        days,
        lambda name, array: 0 if "time" in array.metadata.dimension_names else None,
    )
    counts = report.references
    assert (counts.virtual, counts.native + counts.inline) == (13, 4)
    assert counts.bytes_referenced > 0


def test_sources_are_globs_directories_paths_and_urls(days, tmp_path):
    """The same archive named in four ways is the same build."""
    folder = Path(days[0]).parent
    (folder / "notes.txt").write_text("not data")
    ways = [str(folder / "*.nc"), folder, days, [f"file://{path}" for path in days]]
    found = {
        icevirt.build(way, tmp_path / f"repo{n}", concat_dim="time").build_id
        for n, way in enumerate(ways)
    }
    assert len(found) == 1


def test_a_repository_is_named_by_path_or_url(days, tmp_path):
    """A file URL is as good as a path."""
    report = icevirt.build(days, f"file://{tmp_path}/a repo", concat_dim="time")
    assert report.repo == f"file://{tmp_path}/a%20repo"
    assert icevirt.info(tmp_path / "a repo").snapshot_id == report.snapshot_id


def test_the_same_build_again_changes_nothing(days, repo_path):
    """A build that was committed is found and reported, whatever the mode."""
    first = icevirt.build(days, repo_path, concat_dim="time")
    for mode in ("w-", "w"):
        again = icevirt.build(days, repo_path, concat_dim="time", mode=mode)
        assert again.already_built
        assert again.snapshot_id == first.snapshot_id
        assert again.references == first.references
    assert len(snapshots(repo_path)) == 2


def test_a_build_that_the_branch_no_longer_holds_is_made_again(days, repo_path):
    """Replaced by another build, or changed by a commit: mode="w" repairs it."""
    call = {"concat_dim": "time", "group": "g"}
    icevirt.build(days, repo_path, **call)
    icevirt.build(days[:1], repo_path, mode="w", allow_changes=True)
    assert not icevirt.build(days, repo_path, **call).already_built
    session = icevirt.Repository.open(repo_path).writable_session("main")
    session.delete("/g/mask")
    session.commit("lost a variable")
    again = icevirt.build(days, repo_path, mode="w", **call)
    assert not again.already_built
    assert "mask" in opened(repo_path, group="g")


@pytest.mark.parametrize("mode", ["w-", "w"])
def test_a_build_into_a_group_below_does_not_undo_the_one_above(days, repo_path, mode):
    """Running the outer build again finds it, and leaves the inner one alone."""
    icevirt.build(days, repo_path, concat_dim="time")
    icevirt.build(days[:1], repo_path, group="inner")
    assert icevirt.build(days, repo_path, concat_dim="time", mode=mode).already_built
    assert "packed" in opened(repo_path, group="inner")


def test_a_build_with_bad_files_is_no_build_without(days, repo_path):
    """What was left out is remembered, and counted against what may be."""
    truncate(days[1])
    first = icevirt.build(days, repo_path, concat_dim="time", max_bad_files=1)
    again = icevirt.build(days, repo_path, concat_dim="time", max_bad_files=1)
    assert again.already_built
    assert again.bad_files == first.bad_files
    with pytest.raises(errors.ScanError, match=r"day2\.nc"):
        icevirt.build(days, repo_path, concat_dim="time", mode="w")


def test_the_repository_is_not_among_its_own_sources(days, tmp_path):
    """A wide glob over an archive that holds the repository finds the data only."""
    folder = Path(days[0]).parent
    for _ in range(2):
        icevirt.build(str(folder / "**"), folder / "repo", concat_dim="time")
    assert len(snapshots(str(folder / "repo"))) == 2


def test_a_replaced_group_keeps_its_past(days, repo_path):
    """mode="w" commits a new snapshot; the old one reads as before."""
    first = icevirt.build(days[:2], repo_path, concat_dim="time")
    icevirt.build(days, repo_path, concat_dim="time", mode="w", message="a day more")
    assert_same_dataset(opened(repo_path), expected_dataset(days, "time"))
    past = opened(repo_path, snapshot_id=first.snapshot_id)
    assert_same_dataset(past, expected_dataset(days[:2], "time"))
    assert snapshots(repo_path)[0] == "a day more"


def test_a_group_that_is_not_empty_is_not_touched(days, repo_path):
    """The default mode refuses and says how to go on."""
    icevirt.build(days[:2], repo_path, concat_dim="time")
    with pytest.raises(errors.AlreadyExistsError, match='mode="w"'):
        icevirt.build(days, repo_path, concat_dim="time")
    assert len(snapshots(repo_path)) == 2


def test_groups_hold_datasets_of_their_own(days, repo_path):
    """Two archives in one repository, each read by its group."""
    other = [write_day(Path(days[0]).parent / "fine.nc", 1, nx=12)]
    icevirt.build(days, repo_path, concat_dim="time", group="coarse")
    icevirt.build(other, repo_path, group="/nested/fine")
    assert_same_dataset(opened(repo_path, group="coarse"), expected_dataset(days, "time"))
    assert_same_dataset(opened(repo_path, group="nested/fine"), expected_dataset(other, None))


def test_a_branch_is_built_without_touching_main(days, repo_path):
    """Readers of main see nothing until the branch is merged or main is reset."""
    first = icevirt.build(days[:2], repo_path, concat_dim="time")
    icevirt.Repository.open(repo_path).create_branch("next", first.snapshot_id)
    icevirt.build(days, repo_path, concat_dim="time", branch="next", mode="w")
    assert opened(repo_path).sizes["time"] == 8
    assert opened(repo_path, branch="next").sizes["time"] == 12


def test_dropped_variables_are_not_there(days, repo_path):
    """By name; everything else is."""
    icevirt.build(days, repo_path, concat_dim="time", drop_variables=["mask", "time_bnds"])
    assert set(opened(repo_path).variables) == {"packed", "time", "x", "y"}


def test_bad_files_are_left_out_when_that_is_allowed(days, repo_path):
    """The report names each with its error; the others are all there."""
    Path(days[1]).write_text("not a netCDF file")
    report = icevirt.build(days, repo_path, concat_dim="time", max_bad_files=1)
    assert [(Path(bad.url).name, bad.code) for bad in report.bad_files] == [("day2.nc", "scan")]
    assert_same_dataset(opened(repo_path), expected_dataset([days[0], days[2]], "time"))


def test_a_catalog_that_is_named_is_kept_and_used(days, tmp_path, monkeypatch):
    """A second repository over the same files scans nothing."""
    catalog = tmp_path / "catalog"
    icevirt.build(days, tmp_path / "a", concat_dim="time", catalog=catalog)
    monkeypatch.setattr(attempt, "scan", None)
    report = icevirt.build(days, tmp_path / "b", concat_dim="time", catalog=catalog)
    assert (report.files_scanned, report.files_reused) == (0, 3)
    assert_same_dataset(opened(str(tmp_path / "b")), expected_dataset(days, "time"))


def test_nothing_of_the_build_stays_in_the_repository(days, repo_path):
    """After success the root holds what the format knows, and nothing else."""
    icevirt.build(days, repo_path, concat_dim="time")
    assert set(os.listdir(repo_path)) == {
        "repo",
        "snapshots",
        "manifests",
        "transactions",
        "overwritten",
        "chunks",
    } - ({"chunks"} if not (Path(repo_path) / "chunks").exists() else set())


def test_official_writers_leave_the_other_manifests_alone(days, repo_path):
    """The windows are persisted, so one chunk's commit rewrites one manifest."""
    icevirt.build(days, repo_path, concat_dim="time")
    repo = official(repo_path)
    before = {info.id for info in repo.list_manifest_files(repo.lookup_branch("main"))}
    session = repo.writable_session("main")
    session.store.set_virtual_ref("packed/c/5/0/0", f"file://{days[0]}", offset=1, length=9)
    session.commit("one chunk")
    after = {info.id for info in repo.list_manifest_files(repo.lookup_branch("main"))}
    assert len(after - before) == 1
    index = np.array([[5, 0, 0]])
    found = icevirt.Repository.open(repo_path).readonly_session("main").references("packed", index)
    assert (int(found.offset[0]), int(found.length[0])) == (1, 9)


def test_progress_is_told(days, repo_path):
    """Every long phase says how far it is."""
    told = []
    icevirt.build(days, repo_path, concat_dim="time", progress=told.append)
    steps = {(each.phase, each.done, each.total, each.unit) for each in told}
    assert {("scan", 3, 3, "files"), ("write", 2, 2, "manifests")} <= steps
    assert list(dict.fromkeys(each.phase for each in told)) == [
        *("list", "spark", "scan", "plan", "write", "commit")
    ]
    scanned = next(each for each in told if each.phase == "scan" and each.done == 3)
    assert (scanned.files, scanned.bytes) == (3, sum(Path(day).stat().st_size for day in days))
    written = next(each for each in told if each.phase == "write" and each.done == 2)
    assert written.references > 0


def test_metadata_says_what_was_built(days, repo_path):
    """A snapshot can be traced to its build."""
    report = icevirt.build(days, repo_path, concat_dim="time", metadata={"ticket": 7})
    told = icevirt.Repository.open(repo_path).lookup_snapshot(report.snapshot_id).metadata
    assert told["ticket"] == 7
    assert told["icevirt_build"]["files"] == 3
    assert told["icevirt_build"]["build_id"] == report.build_id
    assert told["icevirt_build"]["icevirt"] == icevirt.__version__
    assert told["icevirt_build"]["scanners"]["hdf5"] == icevirt.scan_file(days[0]).scanner_version


# -- when something is wrong ---------------------------------------------------------------------


def truncate(path):
    """Cut a file in the middle."""
    with Path(path).open("r+b") as file:
        file.truncate(Path(path).stat().st_size // 2)


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
        errors.CombineError, r"overlap.*day1\.nc.*day3\.nc",
    ),
    "times in units that count no time": (
        lambda path: write_day(path, 3, units="K"), errors.CombineError, "units",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "kind", "told"), SPOILT.values(), ids=SPOILT.keys())
def test_files_that_do_not_fit_leave_nothing_behind(days, repo_path, spoil, kind, told):
    """One error that names the file; no repository, no folder."""
    spoil(days[2])
    with pytest.raises(kind, match=told) as caught:
        icevirt.build(days, repo_path, concat_dim="time")
    assert caught.value.do
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
    with pytest.raises(errors.InvalidInputError, match="one path"):
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


@pytest.mark.parametrize(("change", "kind", "told"), CALLS.values(), ids=CALLS.keys())
def test_wrong_calls_are_answered_before_anything_is_made(days, repo_path, change, kind, told):
    """The message holds what was wrong and what would be right."""
    call = {"sources": days, "concat_dim": "time", **change}
    with pytest.raises(kind, match=told) as caught:
        icevirt.build(call.pop("sources"), repo_path, **call)
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
    collect = writing.window_table

    def lossy(*arguments):
        table = collect(*arguments)
        return table.take(np.arange(len(table) // 2)) if len(table) > 4 else table

    monkeypatch.setattr(writing, "window_table", lossy)
    with pytest.raises(errors.BuildError, match=r"/packed were lost.*scanned=12, written=6"):
        icevirt.build(days, repo_path, concat_dim="time")
    assert not Path(repo_path).exists()


def test_a_refused_build_takes_its_chunks_with_it_and_nobody_elses(days, repo_path, monkeypatch):
    """Native chunks and manifests that it wrote go; a commit made meanwhile stays whole."""
    monkeypatch.setattr(build_module, "refuse_losses", None)
    huge = [write_day(Path(days[0]).parent / f"huge{n}.nc", 10 + n, steps=400) for n in (0, 200)]
    with pytest.raises(TypeError):
        icevirt.build(huge, repo_path, concat_dim="time")
    assert not Path(repo_path).exists()

    def meddle(*_):
        session = icevirt.Repository.create(repo_path, check_clean_root=False)
        assert session.lookup_branch("main")
        raise errors.BuildError("stopped")

    monkeypatch.setattr(build_module, "refuse_losses", meddle)
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


def test_a_file_that_changes_before_the_commit_stops_it(days, repo_path, monkeypatch):
    """The list of changed files is in the error; nothing is committed."""
    write_all = build_module.write_all

    def meddle(*arguments):
        result = write_all(*arguments)
        write_day(days[1], 2)
        return result

    monkeypatch.setattr(build_module, "write_all", meddle)
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


def test_reading_without_authorisation_says_what_to_pass(days, repo_path):
    """The message holds the argument."""
    import xarray as xr

    report = icevirt.build(days, repo_path, concat_dim="time")
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
        icevirt.build(days, repo_path, **call)
    Path(days[1]).write_bytes(good)
    os.utime(days[1], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    report = icevirt.build(days, repo_path, **call)
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
