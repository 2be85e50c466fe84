"""`icevirt.materialize` stores variables and regions; both clients read equal values."""

import os
import shutil
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from icechunk.credentials import LocalFileSystemAccess

import icevirt
from builds.kept import Kept
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from executors import at_most
from icevirt.api import materialize
from icevirt.connect.urls import file_url
from icevirt.errors import (
    ConflictError,
    InvalidInputError,
    PlanChangedError,
    StaleReferenceError,
    UnauthorizedError,
)
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.tasks.copy_chunks import copy_chunks

pytestmark = pytest.mark.usefixtures("in_process")


class Archive:
    """A repository over three days of four steps, in chunks that the files have."""

    def __init__(self, place):
        self.folder = place / "archive"
        self.files = write_days(self.folder)
        self.repo = str(place / "repo")
        self.built = icevirt.build(self.files, self.repo, concat_dim="time").snapshot_id
        with expected_dataset(self.files, "time") as expected:
            self.expected = expected.load()
        self.raw = self.official("packed")

    def materialize(self, variable="packed", **how):
        how = {"authorize_virtual_chunk_access": [file_url(self.folder)]} | how
        return icevirt.materialize(self.repo, variable, **how)

    def official(self, variable):
        """Return the raw values that the official client reads."""
        repo = icechunk.Repository.open(
            icechunk.local_filesystem_storage(self.repo),
            authorize_virtual_chunk_access={f"{file_url(self.folder)}/": LocalFileSystemAccess},
        )
        return zarr.open_group(repo.readonly_session("main").store, mode="r")[variable][...]

    def node(self, variable="/packed"):
        return icevirt.Repository.open(self.repo).readonly_session("main").array(variable)

    def kinds(self, variable="/packed"):
        session = icevirt.Repository.open(self.repo).readonly_session("main")
        return np.sort(session.array_table(variable).kind)

    def assert_equal(self):
        np.testing.assert_array_equal(self.official("packed"), self.raw)
        with opened(self.repo) as found:
            assert_same_dataset(found, self.expected)
        assert icevirt.check(self.repo, chunks=True).ok


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), Archive)


@pytest.fixture
def archive(kept):
    return kept.lay_down()


def test_a_variable_is_stored_as_it_is(archive):
    before = archive.node()
    plan = archive.materialize(dry_run=True, authorize_virtual_chunk_access=None)
    report = archive.materialize()
    assert plan.is_plan
    assert (plan.chunks, plan.bytes_read, plan.bytes_stored, plan.tasks) == (
        report.chunks,
        report.bytes_read,
        report.bytes_stored,
        report.tasks,
    )
    assert report.chunks == len(archive.kinds()) > 0
    assert 2 not in archive.kinds()
    assert archive.node().user_data == before.user_data
    archive.assert_equal()
    assert 2 in archive.kinds("/mask") or archive.kinds("/mask").size
    shutil.rmtree(archive.folder)
    np.testing.assert_array_equal(archive.official("packed"), archive.raw)
    assert archive.materialize().snapshot_id is None


@pytest.mark.parametrize("most", [100_000, 0], ids=["listed", "too many to list"])
def test_the_log_of_the_commit_says_which_array_changed(archive, monkeypatch, most):
    """Others, who wrote chunks of it meanwhile, find conflicts by the log."""
    monkeypatch.setattr(materialize, "MAX_LISTED", most)
    report = archive.materialize()
    repo = icevirt.Repository.open(archive.repo)
    found = repo.diff(from_snapshot_id=archive.built, to_snapshot_id=report.snapshot_id)
    assert ("/packed" in found.updated_chunks) == bool(most)
    assert ("/packed" in found.updated_arrays) == (not most)


@pytest.mark.parametrize(
    ("chunks", "codec"),
    [({"time": 12}, None), ({"time": 5, "x": 4}, "zstd"), ({"time": -1}, "zstd"), (None, "zstd")],
)
def test_a_variable_gets_other_chunks_and_codecs(archive, chunks, codec):
    report = archive.materialize(chunks=chunks, codec=codec)
    assert report.is_reencoded
    assert report.snapshot_id
    assert report.bytes_read > 0
    edge = {None: report.chunk_shape[0], -1: 12}.get((chunks or {}).get("time"))
    assert report.chunk_shape[0] == (edge or chunks["time"])
    assert report.chunks == np.prod(archive.node().num_chunks)
    assert 2 not in archive.kinds()
    np.testing.assert_array_equal(archive.official("packed"), archive.raw)
    with opened(archive.repo) as found:
        np.testing.assert_array_equal(found["packed"], archive.expected["packed"])
    assert icevirt.check(archive.repo, chunks=True).ok


def test_slabs_smaller_than_the_box_give_equal_values(archive, monkeypatch):
    monkeypatch.setattr("icevirt.tasks.copy_chunks.SLAB", 64)
    archive.materialize(chunks={"time": 5, "x": 4, "y": 2})
    np.testing.assert_array_equal(archive.official("packed"), archive.raw)


def test_a_region_is_extended_to_whole_chunks(archive):
    times = archive.expected["time"].values
    report = archive.materialize(where={"time": slice(times[1], times[2])})
    edge = report.chunk_shape[0]
    assert report.region[0] == (1 // edge * edge, -(-3 // edge) * edge)
    assert report.is_widened is (report.region[0] != (1, 3))
    assert set(archive.kinds()) == {1, 2} or set(archive.kinds()) == {2, 3}
    archive.assert_equal()
    rest = archive.materialize()
    assert rest.chunks + report.chunks == len(archive.kinds())
    archive.assert_equal()


def test_times_are_named_by_text(archive):
    day = str(archive.expected["time"].values[-1])[:10]
    report = archive.materialize(where={"time": day})
    assert report.region[0][1] == 12
    assert report.region[0][0] > 0


def test_numbers_are_named_by_text_too(archive):
    label = float(archive.expected["y"].values[2])
    assert archive.materialize(where={"y": str(label)}, dry_run=True).chunks > 0


def test_a_build_does_not_undo_a_stored_region_silently(archive):
    times = archive.expected["time"].values
    archive.materialize(where={"time": slice(times[1], times[2])})
    write_days(archive.folder, days=4)
    files = sorted(map(str, archive.folder.iterdir()))
    with pytest.raises(PlanChangedError, match="packed"):
        icevirt.build(files, archive.repo, concat_dim="time", mode="w")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"chunks": {"depth": 3}}, "not a chunk length"),
        ({"chunks": {"time": 0}}, "no elements"),
        ({"where": {"depth": 3}}, "no such dimension"),
        ({"where": {"time": "1800"}}, r"label='1800', begins='2001-01-0"),
        ({"where": {"time": slice("1800", "1801")}}, r"label='1800:1801', begins='2001-01-0"),
        ({"where": {"time": "2001"}, "chunks": {"time": 12}}, "keeps the chunks"),
        ({"codec": "gzip"}, "unknown codec"),
        ({"chunks": {"time": 1 << 40}}, "too large"),
    ],
)
def test_what_makes_no_sense_is_refused(archive, how, words):
    with pytest.raises(InvalidInputError, match=words):
        archive.materialize(**how)


def test_files_have_to_be_authorized_and_unchanged(archive):
    with pytest.raises(UnauthorizedError, match="authorize_virtual_chunk_access"):
        archive.materialize(authorize_virtual_chunk_access=[])
    for path in map(Path, write_days(archive.folder, scale=0.5)):
        later = path.stat().st_mtime + 10  # Icechunk records whole seconds
        os.utime(path, (later, later))
    with pytest.raises(StaleReferenceError):
        archive.materialize()
    assert 1 not in archive.kinds()


def test_a_change_of_the_array_meanwhile_is_a_conflict(archive, in_process):
    def meanwhile():
        session = icevirt.Repository.open(archive.repo).writable_session("main")
        zarr.open_group(session.store, mode="a")["packed"].attrs["note"] = "changed"
        session.commit("a note")

    in_process.before[copy_chunks] = at_most(1, lambda _: meanwhile())
    with pytest.raises(ConflictError, match="Run the command again"):
        archive.materialize()


def test_a_kill_before_the_last_write_leaves_the_old_state(archive, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RepoInfoFile, "swap", killed)
        with pytest.raises(KeyboardInterrupt):
            archive.materialize()
    assert 1 not in archive.kinds()
    archive.assert_equal()
    assert archive.materialize().snapshot_id
    archive.assert_equal()


@pytest.mark.ci
@pytest.mark.spark
def test_spark_stores_and_relocates_as_this_process_does(archive, spark, tmp_path):
    where = {"authorize_virtual_chunk_access": [file_url(archive.folder)], "executor": spark}
    report = icevirt.materialize(archive.repo, "packed", chunks={"time": 5}, **where)
    assert report.executor == "spark"
    assert report.tasks > 1
    np.testing.assert_array_equal(archive.official("packed"), archive.raw)
    new = tmp_path / "new"
    shutil.copytree(archive.folder, new, copy_function=shutil.copyfile)
    both = [file_url(archive.folder), file_url(new)]
    moved = icevirt.relocate(
        archive.repo,
        archive.folder,
        new,
        compare="all",
        authorize_virtual_chunk_access=both,
        executor=spark,
    )
    assert moved.executor == "spark"
    assert moved.references_compared == moved.references > 0
    assert moved.files == 1  # which the mask is read from; the others hold what is stored
    shutil.rmtree(archive.folder)
    archive.folder = new
    np.testing.assert_array_equal(archive.official("packed"), archive.raw)
    with opened(archive.repo) as found:
        np.testing.assert_array_equal(found["packed"], archive.expected["packed"])


@pytest.mark.ci
def test_processes_store_as_this_process_does(archive):
    archive.materialize(executor="processes")
    archive.assert_equal()


@pytest.mark.parametrize(
    "how", [{"chunks": {"x": 2}}, {"codec": "zstd"}, {}], ids=["cut", "encoded", "copied"]
)
def test_verify_looks_at_what_arrays_refer_to(archive, how):
    """A manifest that arrays share still holds what it held of the one that left it."""
    before = {ref.object_id for ref in archive.node("/packed").manifests}
    archive.materialize("packed", **how)
    session = icevirt.Repository.open(archive.repo).readonly_session("main")
    left = {ref.object_id for node in session.snapshot.arrays() for ref in node.manifests}
    assert before & left
    assert not before & {ref.object_id for ref in archive.node("/packed").manifests}
    found = icevirt.verify(
        archive.repo, references=True, full=True, authorize_virtual_chunk_access=[archive.folder]
    )
    assert found.ok, found.checked.differences
    assert "/mask" in found.checked.compared


def test_relocate_leaves_references_that_no_array_has(archive):
    """Files are looked at for what a reader could read of them."""
    archive.materialize("packed", chunks={"x": 2})
    moved = archive.folder.with_name("moved")
    archive.folder.rename(moved)
    places = [str(archive.folder), str(moved)]
    before = icevirt.verify(
        archive.repo, references=True, authorize_virtual_chunk_access=places
    ).checked.references
    report = icevirt.relocate(archive.repo, *places, authorize_virtual_chunk_access=places)
    assert report.references == before
