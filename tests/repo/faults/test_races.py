"""Of writers that race for one repository, on every storage, nobody loses what was acknowledged."""

import os
import time
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import StorageError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.chunks import ChunkTable
from icevirt.repo import layout
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from repo.faults import racers
from repo.support import array_json, sound
from servers.racing import raced

FIRST_SNAPSHOT = layout.snapshot(INITIAL_SNAPSHOT_ID)

pytestmark = [pytest.mark.ci, pytest.mark.slow]

WRITERS = 8
COMMITS = int(os.environ.get("ICEVIRT_RACE_COMMITS", "4"))
"""By each writer. The whole race, `just races`, has 100."""


def made(place, chunks: int) -> Repository:
    """A repository with an empty array of so many chunks."""
    return grown(Repository.create(place.icevirt()), chunks)


def grown(repo: Repository, chunks: int) -> Repository:
    """The repository with that array."""
    session = repo.writable_session("main")
    shape = (chunks * racers.LENGTH,)
    session.add_array("/a", array_json(shape, (racers.LENGTH,)), ChunkTable.empty(1))
    session.commit("base")
    return repo


def nothing_is_lost(place, acknowledged: list[list[str]]) -> None:
    """Every acknowledged commit is in the history once, and its chunk in the array."""
    repo = Repository.open(place.icevirt())
    history = [output.id for output in repo.ancestry(branch="main") if output.message.isdigit()]
    expected = [snapshot for racer in acknowledged for snapshot in racer]
    assert sorted(history) == sorted(expected)
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    np.testing.assert_array_equal(values, np.repeat(np.arange(len(expected)), racers.LENGTH))
    assert sound(place.icevirt())


def test_commits(place):
    made(place, WRITERS * COMMITS)
    found = raced(racers.commit_chunks, [(place, n, COMMITS) for n in range(WRITERS)])
    nothing_is_lost(place, found)
    log = list(Repository.open(place.icevirt()).ops_log())
    assert len(log) == WRITERS * COMMITS + 2
    backups = {info.path.split("/")[1] for info in place.icevirt().list("overwritten")}
    assert backups == {update.backup_path for update in log} - {None}


def test_commits_of_both_clients(s3):
    made(s3, WRITERS * COMMITS)
    found = raced(racers.commit_chunks, [(s3, n, COMMITS, n % 2 == 1) for n in range(WRITERS)])
    nothing_is_lost(s3, found)
    output = icechunk.Repository.open(s3.official()).ancestry(branch="main")
    assert len(list(output)) == WRITERS * COMMITS + 2


def test_commits_to_a_repository_that_was_made_on_disk_and_copied(local, s3):
    made(local, WRITERS * COMMITS)
    store = s3.store()
    for info in local.icevirt().list():
        store.put(info.path, local.icevirt().get(info.path))
    found = raced(racers.commit_chunks, [(s3, n, COMMITS, n % 2 == 1) for n in range(WRITERS)])
    nothing_is_lost(s3, found)


def test_commits_to_a_copy_whose_settings_are_those_of_a_disk(local, s3):
    """By those settings the official client overwrites; icevirt does not commit beside it."""
    container = icechunk.VirtualChunkContainer("file:///x/", icechunk.local_filesystem_store("/x"))
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    icechunk.Repository.create(local.official(), config)
    for info in local.icevirt().list():
        s3.store().put(info.path, local.icevirt().get(info.path))
    repo = Repository.open(s3.icevirt())
    repo.config.inline_chunk_threshold_bytes = 1
    for act in (repo.save_config, lambda: repo.create_tag("t", repo.lookup_branch("main"))):
        with pytest.raises(StorageError, match="commits would be lost"):
            act()
    repo = repo.reopen()
    repo.config.storage = None
    repo.save_config()
    grown(repo, WRITERS * COMMITS)
    found = raced(racers.commit_chunks, [(s3, n, COMMITS, n % 2 == 1) for n in range(WRITERS)])
    nothing_is_lost(s3, found)


@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_of_writers_that_create_at_once_one_wins(place):
    both = place.kind == "s3"  # the official client takes a second to import
    won = raced(racers.create, [(place, n, both and n % 2 == 1) for n in range(WRITERS)])
    assert sum(won) == 1
    assert [
        output.message for output in Repository.open(place.icevirt()).ancestry(branch="main")
    ] == ["Repository initialized"]
    # the official client overwrites the first snapshot, with another time, before it sees that it
    # lost; nothing else may differ
    problems = check(place.icevirt()).problems
    assert both or problems == ()
    assert {(each.code, each.file) for each in problems} <= {("summary", FIRST_SNAPSHOT)}


def test_containers_that_are_added_at_once_are_all_there(place):
    made(place, 1)
    raced(racers.add_container, [(place, n) for n in range(WRITERS)])
    config = Repository.fetch_config(place.icevirt())
    assert set(config.virtual_chunk_containers) == {f"file:///archive/{n}/" for n in range(WRITERS)}


@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_commits_while_somebody_expires_and_collects_what_was_before(place):
    repo, writers, commits = made(place, 4 * COMMITS), 4, COMMITS
    garbage = repo.writable_session("main")
    garbage.set_chunk("/a", [0], b"\7" * 600)
    garbage.flush("garbage")
    before = datetime.now(UTC)
    if place.kind == "s3":
        time.sleep(1.1)  # it dates objects by the second
        before = datetime.now(UTC)
    tasks = [(place, n, commits, before if n == writers else None) for n in range(writers + 1)]
    found = raced(racers.commit_or_maintain, tasks)
    assert found.pop() >= 3
    nothing_is_lost(place, found)
