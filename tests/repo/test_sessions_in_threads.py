"""Threads that look at a writable session lose nothing that others write, and see whole states."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from icevirt.model.chunks import ChunkTable
from icevirt.repo.commits import change_set
from icevirt.repo.reader import ArrayReader
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import chunk_tables
from repo.support import array_json

BLOCKED = 0.2  # seconds after which a thread counts as waiting for another
LOOKS = {
    "status": lambda session: session.status(),
    "references": lambda session: session.references("/a", np.array([[0]])),
    "all references": lambda session: session.array_table("/a"),
    "a fork": lambda session: session.fork(),
}


@pytest.fixture
def session(repo):
    """A writable session on a commit of an array of four chunks, none of them written."""
    begun = repo.writable_session("main")
    begun.add_array("/a", array_json(), ChunkTable.empty(1))
    begun.commit("an array")
    return repo.writable_session("main")


def written(session, *chunks):
    """Write chunks as the store does."""
    with session.lock:
        for each in chunks:
            session.set_chunk("/a", (each,), bytes([each]) * 48)


def in_thread(act, *arguments):
    """Call in another thread, and return when it has ended or waits for this one."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(act, *arguments)
    wait([future], BLOCKED)
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_a_chunk_written_while_another_thread_looks_is_committed(repo, session, monkeypatch, look):
    written(session, 0, 1)
    writes, join = [], chunk_tables.overlay_all

    def overlaid(layers):
        joined = join(layers)
        if not writes:
            writes.append(in_thread(written, session, 2))
        return joined

    monkeypatch.setattr(chunk_tables, "overlay_all", overlaid)
    look(session)
    writes[0].result()
    session.commit("chunks")
    assert repo.readonly_session("main").chunk_coordinates("/a").tolist() == [[0], [1], [2]]


def test_what_is_read_while_the_session_is_committed_has_its_chunks(session, monkeypatch):
    written(session, 1)
    commits, table = [], ArrayReader.table

    def slow(reader, *arguments):
        if not commits:
            commits.append(None)
            in_thread(session.commit, "a chunk").result()
        return table(reader, *arguments)

    monkeypatch.setattr(ArrayReader, "table", slow)
    assert session.array_table("/a").index.tolist() == [[1]]


def test_a_read_during_the_commit_leaves_no_old_manifests_behind(session, monkeypatch):
    written(session, 1)
    commits, check = [], change_set.check_index

    def slow(node, index):
        if not commits:
            commits.append(in_thread(session.commit, "a chunk"))
        check(node, index)

    monkeypatch.setattr(change_set, "check_index", slow)
    for _ in range(2):
        assert session.references("/a", np.array([[1]])).length.tolist() == [48]


def test_a_node_added_while_another_thread_lists_is_listed(session, monkeypatch):
    changes, snapshot = [], change_set.ChangeSet.snapshot

    def add():
        with session.lock:
            session.add_array("/b", array_json(), ChunkTable.empty(1))

    def slow(staging):
        made = snapshot(staging)
        if not changes:
            changes.append(in_thread(add))
        return made

    written(session, 0)
    monkeypatch.setattr(change_set.ChangeSet, "snapshot", slow)
    assert session.snapshot.find("/a") is not None
    changes[0].result()
    assert session.snapshot.find("/b") is not None


def test_what_a_thread_reads_of_the_repo_is_not_what_another_one_read_earlier(repo, session):
    class Overtaken(RepoInfoFile):
        """Another thread, which read before a commit, remembers that after each read here."""

        older = None

        @property
        def _last(self):
            return self.older

        @_last.setter
        def _last(self, read):
            self.older = self.older or read

    file = Overtaken(repo.storage)
    file.read()
    written(session, 0)
    made = session.commit("a chunk")
    assert str(file.read().info.branches["main"]) == made


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_forked_while_another_thread_changes_the_session_reads_it(session):
    written(session, 1)
    holds, ends = threading.Event(), threading.Event()

    def hold():
        with session.lock:
            holds.set()
            ends.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(int(session.references("/a", np.array([[1]])).length[0]))
    ends.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 48


def test_a_thread_that_forks_while_it_holds_the_lock_releases_it_in_the_child(session):
    with session.lock:
        child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(in_thread(session.lock.acquire).result())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
