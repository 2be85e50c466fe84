"""The status of a dataset says what it holds, in few requests, and its exit status what is late."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zarr
from typer.testing import CliRunner

import icevirt
from builds.support import write_days
from icevirt.cli.main import app
from icevirt.display.render import as_text
from icevirt.storage.constructors import storage_of
from repo.faults.faulty import Faulty

pytestmark = pytest.mark.usefixtures("in_process")
LAST = datetime(2001, 1, 3, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """Two days, of which the newer one came a day late, and a file that is none."""
    folder = tmp_path_factory.mktemp("status")
    files = [*write_days(folder / "days", 2), str(folder / "days" / "day3.nc")]
    Path(files[2]).write_bytes(b"nothing that a scanner knows")
    for file in files:
        late = (LAST + timedelta(hours=24)).timestamp()
        os.utime(file, (late, late))
    repo = str(folder / "repo")
    icevirt.append(
        files,
        repo,
        concat_dim="t",
        scan_options={"max_bad_files": 1},
        combine_options={"rename": {"time": "t"}},
        executor="in-process",
    )
    return repo


def test_it_says_what_the_dataset_holds_in_few_requests(repo):
    storage = Faulty(storage_of(repo))
    storage_of(repo).put("icevirt/builds/" + "0" * 20 + "/items/0", b"")
    found = icevirt.status(storage, recorded_only=True)
    assert (found.dimension, found.steps, found.newest_step) == ("t", 8, LAST)
    assert found.lag == timedelta(hours=24)
    assert found.age > timedelta(days=365 * 20)
    assert found.files == 2
    assert [Path(url).name for url in found.bad_files] == ["day3.nc"]
    assert found.referenced_bytes > 0
    assert found.stored_bytes > 0
    assert found.source_bytes > found.referenced_bytes
    assert found.last_build == found.last_commit
    assert [each.build_id for each in found.unfinished] == ["0" * 20]
    assert storage.calls < 20, storage.names
    assert "24.0 hours behind the newest file" in as_text(found)


@pytest.mark.parametrize(
    ("options", "status"),
    [([], 0), (["--max-lag", "1D"], 0), (["--max-lag", "23h"], 5), (["--max-age", "9D"], 5)],
    ids=str,
)
def test_schedulers_are_given_by_the_exit_status(repo, options, status):
    ran = CliRunner().invoke(app, ["status", repo, "-o", "json", *options])
    assert ran.exit_code == status, ran.output
    assert json.loads(ran.stdout)["lag_seconds"] == 86400


def test_what_no_build_made_has_a_status_too(tmp_path):
    session = icevirt.Repository.create(str(tmp_path / "repo")).writable_session("main")
    zarr.create_group(session.store)
    session.commit("a group")
    found = icevirt.status(str(tmp_path / "repo"))
    assert (found.newest_step, found.files, found.last_build) == (None, None, None)
    ran = CliRunner().invoke(app, ["status", str(tmp_path / "repo"), "--max-lag", "1D"])
    assert (ran.exit_code, "lag of the dataset: unknown" in ran.stderr) == (5, True)


def test_files_that_an_update_would_take_are_named_with_the_command(tmp_path):
    files = [Path(each) for each in write_days(tmp_path / "days", 4)]
    later = tmp_path / "later.nc"
    files[3].rename(later)
    repo = str(tmp_path / "repo")
    icevirt.build(str(tmp_path / "days"), repo, concat_dim="time")
    assert icevirt.status(repo).changes == {"new": (), "changed": (), "vanished": ()}
    later.rename(files[3])
    os.utime(files[0])
    files[1].unlink()
    found = icevirt.status(repo)
    names = {what: [Path(each).name for each in urls] for what, urls in found.changes.items()}
    new, changed, vanished = files[3].name, files[0].name, files[1].name
    assert names == {"new": [new], "changed": [changed], "vanished": [vanished]}
    assert "1 new file, 1 changed file, 1 vanished file" in as_text(found)
    assert as_text(found).endswith(f"icevirt update {found.repo}")
    assert icevirt.status(repo, recorded_only=True).changes is None


def test_the_recipe_of_others_lists_nothing(tmp_path, monkeypatch):
    write_days(tmp_path / "days", 2)
    repo = str(tmp_path / "repo")
    icevirt.build(str(tmp_path / "days"), repo, concat_dim="time")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of somebody else"))
    found = icevirt.status(repo)
    assert found.changes is None
    assert "which files are new is unknown" in found.notes[0]
    assert found.steps == 8
