"""Tasks that come too late, or twice, and garbage collectors that come too early."""

import contextlib
import datetime as dt
import errno
import os

import icechunk
import numpy as np
import pytest

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_days,
)
from executors import at_most
from icevirt.api.dataset import transaction as build_module
from icevirt.errors import BuildError, ObjectNotFoundError, StorageError
from icevirt.model.chunks import ChunkType
from icevirt.storage import durable
from icevirt.tasks import write_manifests
from icevirt.tasks.window_tables import WindowColumns
from long_forms import IS_LONG

pytestmark = pytest.mark.ci


@pytest.fixture
def days(tmp_path, in_process):
    """Four files, and stages that run in this process."""
    return write_days(tmp_path / "archive", 4)


@pytest.fixture
def tasks(in_process):
    """The tasks of the write stage, as executors got them."""
    seen = []

    def run(task):
        seen.append(task)
        return write_manifests.run_write(task)

    in_process.instead[write_manifests.run_write] = run
    return seen


def assert_sound(repo, days):
    """The repository opens with both clients, passes the check, and holds what the files hold."""
    assert icevirt.check(repo).problems == ()
    assert official(str(repo)).lookup_branch("main")
    assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))


def collect(repo, *, official_client):
    """Collect garbage: whatever is older than this moment."""
    cutoff = dt.datetime.now(dt.UTC)
    if official_client:
        storage = icechunk.local_filesystem_storage(str(repo))
        icechunk.Repository.open(storage).garbage_collect(cutoff)
    else:
        icevirt.Repository.open(repo).garbage_collect(cutoff)


def native(repo):
    """Make a new repository whose chunks are all too large to be inline."""
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=0)
    icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(repo)), config=config
    ).save_config()
    return repo


def test_an_attempt_that_ends_after_the_commit_changes_nothing(days, tmp_path, tasks):
    """A zombie writes what is there already, and its record refers to nothing that counts."""
    repo = tmp_path / "repo"
    report = icevirt.build(days, repo, concat_dim="time", catalog=tmp_path / "catalog")
    names = {path.name: path.read_bytes() for path in (repo / "manifests").iterdir()}
    for task in tasks:
        write_manifests.run_write(task)
    assert {path.name: path.read_bytes() for path in (repo / "manifests").iterdir()} == names
    assert icevirt.Repository.open(repo).lookup_branch("main") == report.snapshot_id
    assert_sound(repo, days)
    again = icevirt.build(days, repo, concat_dim="time", catalog=tmp_path / "catalog")
    assert again.already_built
    assert not (repo / "icevirt" / "builds").exists()


def test_an_attempt_whose_catalog_is_gone_fails_and_changes_nothing(days, tmp_path, tasks):
    """Where the scan lay in the build's own folder, a zombie finds nothing to write."""
    repo = tmp_path / "repo"
    icevirt.build(days, repo, concat_dim="time")
    for task in tasks:
        with pytest.raises(ObjectNotFoundError):
            write_manifests.run_write(task)
    assert_sound(repo, days)


def forget(task):
    """Remove what is recorded of a task's items."""
    for number in (number for parcel in task.parcels for number in parcel.numbers):
        task.record.delete(write_manifests.record_path(number))


def test_a_zombie_that_read_something_else_writes_something_else(
    days, tmp_path, tasks, in_process, monkeypatch
):
    """The same window twice at once, with other references: other bytes have another name."""
    repo = tmp_path / "repo"
    taken = WindowColumns.table

    def elsewhere(columns):
        table = taken(columns)
        return table.__class__(
            **{name: getattr(table, name) for name in table.__dataclass_fields__}
            | {"offset": table.offset + 8 * (table.kind == ChunkType.virtual).astype(np.uint64)}
        )

    def run(task):
        tasks.append(task)
        monkeypatch.setattr(WindowColumns, "table", elsewhere)
        write_manifests.run_write(task)  # an attempt that another one overtakes
        forget(task)
        monkeypatch.setattr(WindowColumns, "table", taken)
        results = write_manifests.run_write(task)
        monkeypatch.setattr(WindowColumns, "table", elsewhere)
        forget(task)
        write_manifests.run_write(task)  # one that comes too late, and overwrites the record
        monkeypatch.setattr(WindowColumns, "table", taken)
        return results

    in_process.instead[write_manifests.run_write] = run
    report = icevirt.build(days, repo, concat_dim="time")
    used = icevirt.Repository.open(repo).list_manifest_files(report.snapshot_id)
    assert len(list((repo / "manifests").iterdir())) > len(used)
    assert_sound(repo, days)


@pytest.mark.parametrize("official_client", [False, True], ids=["icevirt", "official"])
@pytest.mark.parametrize("moment", ["after the write", "while sources are looked at"])
def test_garbage_collected_before_the_commit_is_written_again(
    days, tmp_path, monkeypatch, in_process, official_client, moment
):
    """Nothing refers to what a build wrote before its commit; a collector may take it."""
    repo, collected = native(tmp_path / "repo"), []

    def meddle(_):
        collected.append(list((repo / "manifests").iterdir()) and list((repo / "chunks").iterdir()))
        collect(repo, official_client=official_client)
        assert not list((repo / "manifests").glob("*"))

    once = at_most(1, meddle)
    if moment == "after the write":
        in_process.after[write_manifests.run_write] = once
    else:
        look = build_module.refuse_changed
        monkeypatch.setattr(build_module, "refuse_changed", lambda files: (look(files), once()))
    icevirt.build(days, repo, concat_dim="time")
    assert collected[0]
    assert_sound(repo, days)


def test_a_chunk_object_alone_is_missed_too(days, tmp_path, in_process):
    """A manifest that stayed refers to a chunk that did not."""
    repo, losses = native(tmp_path / "repo"), []

    def lose(_):
        losses.append(next((repo / "chunks").iterdir()))
        losses[0].unlink()

    in_process.after[write_manifests.run_write] = at_most(1, lose)
    icevirt.build(days, repo, concat_dim="time")
    assert losses
    assert_sound(repo, days)


def test_a_collector_that_never_stops_is_named(days, tmp_path, in_process):
    """The build gives up, loudly, and nothing was committed."""
    repo = native(tmp_path / "repo")
    before = icevirt.Repository.open(repo).lookup_branch("main")
    in_process.after[write_manifests.run_write] = lambda: collect(repo, official_client=True)
    with pytest.raises(BuildError, match="that were just written have disappeared"):
        icevirt.build(days, repo, concat_dim="time")
    assert icevirt.Repository.open(repo).lookup_branch("main") == before


@pytest.mark.parametrize("existing", [False, True], ids=["new repository", "existing repository"])
def test_a_disk_that_fills_up_is_one_clear_error_and_the_build_goes_on_later(
    days, tmp_path, monkeypatch, existing
):
    """Full at every write (in CI, every third) in turn: nothing is lost, and the next run finishes."""
    writes, full = durable._write_all, []

    def write(fd, body):
        full.append(len(body))
        if len(full) == limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        writes(fd, body)

    monkeypatch.setattr(durable, "_write_all", write)
    limit, refused = 0, 0
    while True:
        limit, repo = limit + (1 if IS_LONG else 3), tmp_path / f"repo{limit}"
        if existing:
            full[:] = [0] * 10_000  # the disk is not full yet
            icevirt.Repository.create(repo)
        full.clear()
        with contextlib.suppress(StorageError):
            icevirt.build(days, repo, concat_dim="time")
            break  # nothing was left to fail
        refused += 1
        assert icevirt.Repository.exists(repo) == existing
        icevirt.build(days, repo, concat_dim="time")
        if refused % 7 == 1:
            assert_sound(repo, days)
    assert refused > 5
    limit = 0
    assert_sound(repo, days)
