"""A withdrawn file leaves the tip, the history and all records, and does not come back."""

import json
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from typer.testing import CliRunner

import icevirt
from builds.support import official, opened, write_day, write_days
from icevirt.cli.main import app
from icevirt.errors import NotFoundError, PlanChangedError
from icevirt.ids import ObjectId12
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.garbage_collection import chunks_of
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.local import LocalStorage
from repo.support import sound

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]
NATIVE = {"variable_policy": {"time_bnds": "native"}}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Three versions on two branches and under two tags; the second file is in most of them."""
    folder = tmp_path_factory.mktemp("withdraw")
    days = write_days(folder / "days", 4, nx=400)
    repo = str(folder / "repo")
    how = {"executor": "in-process", "scan_options": NATIVE}
    icevirt.append(days[:1], repo, concat_dim="time", **how)
    made = icevirt.Repository.open(repo)
    made.create_tag("before", made.lookup_branch("main"))
    icevirt.append(days[1:3], repo, **how)
    made.create_tag("with", made.lookup_branch("main"))
    made.create_branch("dev", made.lookup_branch("main"))
    icevirt.append(days[3:], repo, **how)
    return days, repo


@pytest.fixture
def repo(base, tmp_path):
    return str(shutil.copytree(base[1], tmp_path / "repo"))


def folder(days):
    return str(Path(days[0]).parent)


def withdrawn(days, repo, **options):
    return icevirt.withdraw(days[1], repo, authorize=folder(days), **options)


def traces(repo, file):
    """Return the objects in which a file still is, in whatever encoding; orphans count too."""
    storage = LocalStorage(repo)
    assets, name, found = Assets(storage), Path(file).name, []
    manifests = []
    for info in storage.list():
        kind, key = info.path.split("/")[0], info.path.rpartition("/")[2]
        text = storage.get(info.path)
        if kind == "manifests":
            manifests.append(ObjectId12.parse(key))
            tables = assets.read_manifest(manifests[-1]).arrays.values()
            text = " ".join(url for table in tables for url in table.locations.url).encode()
        elif kind == "snapshots":
            text = json.dumps(assets.snapshot(ObjectId12.parse(key)).metadata).encode()
        elif info.path.endswith(".parquet"):
            import pyarrow.parquet as pq

            text = str(pq.read_table(Path(repo) / info.path).to_pylist()).encode()
        if name.encode() in text:
            found.append(info.path)
    used = {f"chunks/{ObjectId12(key.tobytes())}" for key in chunks_of(assets, manifests)}
    info = RepoInfoFile(storage).read().info
    there = {f"snapshots/{key}" for key in info.snapshots}
    needed = {
        f"manifests/{each.id}"
        for key in info.snapshots
        for each in assets.snapshot(key).manifest_files
    }
    listed = {info.path for info in storage.list()}
    orphans = {path for path in listed if path.startswith(("chunks/", "snapshots/", "manifests/"))}
    return found, sorted(orphans - used - there - needed)


@pytest.mark.ci
def test_it_leaves_every_version_and_every_record(base, repo, tmp_path):
    days, _ = base
    before = {info.path for info in LocalStorage(repo).list()}
    plan = withdrawn(days, repo, dry_run=True)
    assert {info.path for info in LocalStorage(repo).list()} == before
    assert plan.datasets == (("dev", "/"), ("main", "/"))
    assert (plan.tags, len(plan.snapshots)) == (("with",), 2)
    assert plan.references > 0
    assert plan.chunks > 0
    done = withdrawn(days, repo)
    assert len(done.commits) == 2
    assert (done.tags, done.snapshots) == (plan.tags, plan.snapshots)
    notes = [
        f"icevirt/excluded/{path.name}" for path in (Path(repo) / "icevirt/excluded").iterdir()
    ]
    assert traces(repo, days[1]) == (notes, [])
    for branch, left in (("main", [0, 2, 3]), ("dev", [0, 2])):
        whole = tmp_path / branch
        icevirt.build([days[at] for at in left], whole, concat_dim="time", scan_options=NATIVE)
        xr.testing.assert_identical(opened(repo, branch=branch).load(), opened(str(whole)).load())
    assert opened(repo, tag="before").sizes["time"] == 4
    assert icevirt.Repository.open(repo).list_tags() == {"before"}
    theirs = official(repo)
    group = zarr.open_group(theirs.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(group["time"][:], opened(repo, decode_times=False).time.values)
    theirs.create_tag("theirs", theirs.lookup_branch("main"))
    assert sound(repo)
    assert withdrawn(days, repo).manifests == 0
    with pytest.raises(NotFoundError, match="no version of the repository holds"):
        icevirt.withdraw(f"{folder(days)}/day77.nc", repo)

    again = icevirt.append(folder(days), repo)
    assert (again.files_excluded, again.files_known, again.files_appended) == (1, 3, 0)
    assert icevirt.exclude(days[1], repo, readmit=True).changed == 1
    assert icevirt.append(folder(days), repo).files_appended == 1


def test_scans_of_other_files_stay_so_that_another_withdrawal_needs_no_file(tmp_path):
    days = write_days(tmp_path / "days", 3)
    repo = str(tmp_path / "repo")
    icevirt.build(days, repo, concat_dim="time")
    withdrawn(days, repo)
    kept = opened(repo).isel(time=slice(4)).load()
    shutil.rmtree(folder(days))
    icevirt.withdraw(days[2], repo, authorize=folder(days))
    assert traces(repo, days[2])[1] == []
    np.testing.assert_array_equal(opened(repo).time, kept.time)


@pytest.mark.ci
def test_a_second_run_finishes_what_was_killed(base, repo, monkeypatch):
    days, _ = base
    real, calls = LocalStorage.delete_many, 0
    for at in (1, 3, 4, 6):
        calls = 0

        def killed(storage, paths, at=at):
            nonlocal calls
            calls += 1
            if calls == at:
                real(storage, list(paths)[: len(paths) // 2])
                raise KeyboardInterrupt
            real(storage, paths)

        copy = str(shutil.copytree(repo, f"{repo}-{at}"))
        monkeypatch.setattr(LocalStorage, "delete_many", killed)
        try:
            withdrawn(days, copy)
        except KeyboardInterrupt:
            monkeypatch.setattr(LocalStorage, "delete_many", real)
            assert sound(copy)
            withdrawn(days, copy)
        else:
            pytest.fail("it was not killed")
        finally:
            monkeypatch.setattr(LocalStorage, "delete_many", real)
        assert [path.split("/")[1] for path in traces(copy, days[1])[0]] == ["excluded"]
        assert opened(copy).sizes["time"] == 12


def test_what_others_stored_goes_only_if_that_is_allowed(base, repo):
    days, _ = base
    where = {"y": slice(0, 0)}
    icevirt.materialize(repo, "packed", where=where, authorize_virtual_chunk_access=[folder(days)])
    with pytest.raises(PlanChangedError, match="packed"):
        withdrawn(days, repo)
    withdrawn(days, repo, allow_changes=True)
    assert traces(repo, days[1])[1] == []


@pytest.mark.parametrize("how", [{}, {"chunks": {"time": 6}}], ids=["copied", "cut"])
def test_a_stored_variable_stays_stored_without_the_file(base, repo, how):
    days, _ = base
    icevirt.materialize(repo, "packed", authorize_virtual_chunk_access=[folder(days)], **how)
    withdrawn(days, repo)
    assert traces(repo, days[1])[1] == []
    session = icevirt.Repository.open(repo).readonly_session("main")
    assert 2 not in session.array_table("/packed").kind
    assert icevirt.check(repo, chunks=True).ok


def test_commands_withdraw_exclude_and_forget(base, repo, tmp_path):
    days, _ = base

    def run(*arguments):
        return CliRunner().invoke(app, [*arguments])

    plan = run("withdraw", days[1], repo, "--authorize", folder(days))
    assert plan.exit_code == 1, plan.output
    assert "What remains" in plan.output
    assert "nothing was changed without --yes" in plan.output
    late = write_day(tmp_path / "late.nc", 9, nx=400)
    assert "1 file excluded" in run("exclude", repo, late, "--group", "/").output
    assert icevirt.append(late, repo, authorize=folder(days)).files_excluded == 1
    assert icevirt.excluded(repo).notes == (("excluded", "", "/", (f"file://{late}",)),)
    assert run("exclude", repo, f"{late}er", "--group", "/").exit_code == 0
    assert run("exclude", repo).output.count("excluded: / on all branches") == 1
    assert run("exclude", repo, f"{late}er", "--readmit").exit_code == 0
    assert run("exclude", repo, late, "--readmit").exit_code == 0
    assert icevirt.excluded(repo).count == 0

    forgotten = run("catalog", f"{repo}/icevirt/catalog", "--forget", days[1], "-o", "json")
    assert json.loads(forgotten.stdout) == {"forgotten": 1, "files": 1}
    assert run("catalog", f"{repo}/icevirt/catalog", "--forget", days[1]).exit_code == 1
    early = write_day(tmp_path / "early.nc", 0, nx=400)  # before the others: all are planned
    assert icevirt.append([early, late], repo, authorize=folder(days)).files_scanned == 3


# -- files that updates hold back ----------------------------------------------------------------


def held_names(repo):
    return [Path(each.url).name for each in icevirt.status(repo).held_files]


@pytest.fixture
def holding(tmp_path):
    """A dataset of two files, whose updates hold back others; errors quote them and name them."""
    archive = tmp_path / "archive"
    write_days(archive, 2)
    repo = str(tmp_path / "holding")
    icevirt.build(str(archive), repo, concat_dim="time")
    (archive / "broken.nc").write_bytes(b"nothing")
    (archive / "secret day.nc").write_bytes(b"PRIVATE")
    for day in range(6, 10):
        with netCDF4.Dataset(write_day(archive / f"other{day}.nc", day), "r+") as file:
            file["mask"][:] = 77
    held = {Path(each.url).name: each.error for each in icevirt.update(repo).held}
    assert len(held) == 6
    assert "PRIVATE" in held["secret%20day.nc"]
    assert "other6.nc" in held["other9.nc"]
    return archive, repo


def test_a_file_that_is_only_held_back_leaves_without_a_trace(holding):
    """Its name, and what the error quotes of it; what else is held back stays so."""
    archive, repo = holding
    before = icevirt.status(repo)
    report = icevirt.withdraw(archive / "secret day.nc", repo, authorize=str(archive))
    assert report.datasets == ()
    assert len(report.commits) == 1
    for each in (each for each in Path(repo).rglob("*") if each.is_file()):
        assert b"PRIVATE" not in each.read_bytes()
    assert [each for each in traces(repo, "secret%20day.nc")[0] if "excluded" not in each] == []
    assert len(held_names(repo)) == 5
    assert icevirt.status(repo).steps == before.steps
    report = icevirt.update(repo)
    assert (report.files_excluded, len(report.held)) == (1, 5)
    with pytest.raises(NotFoundError, match="no version of the repository holds"):
        icevirt.withdraw(archive / "never.nc", repo, authorize=str(archive))


def test_a_withdrawn_file_leaves_the_errors_of_others(holding):
    """They name the first of their kind; the next update finds them again."""
    archive, repo = holding
    icevirt.withdraw(archive / "other6.nc", repo, authorize=str(archive))
    said = "".join(each.read_text() for each in Path(repo, "icevirt", "held").iterdir())
    assert "other6" not in said
    assert sorted(held_names(repo)) == ["broken.nc", "secret%20day.nc"]
    assert len(icevirt.update(repo).held) == 5


def test_a_dataset_that_is_built_without_a_file_holds_it_back_no_more(holding):
    """Lists of older versions go too."""
    archive, repo = holding
    report = icevirt.withdraw(
        [archive / "day1.nc", archive / "secret day.nc"], repo, authorize=str(archive)
    )
    assert report.datasets == (("main", "/"),)
    assert opened(repo).sizes["time"] == 4
    assert "secret%20day.nc" not in held_names(repo)
    for name in ("day1.nc", "secret%20day.nc"):
        assert [each for each in traces(repo, name)[0] if "excluded" not in each] == []
