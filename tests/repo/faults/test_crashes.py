"""Whatever befalls a client at any call to the storage, the repository is as before or as after.

Each act runs once for each of its calls and each way that the call can go wrong (`repo.faults.faulty`).
What is left opens, passes every check, and the next writer succeeds, a client that only lost an
answer included.
"""

import functools
import itertools
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from icevirt.errors import ConflictError, StorageError
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import LostRace
from icevirt.versioning.merge.conflicts import ConflictDetector
from long_forms import cases
from repo.faults.faulty import End, endings
from repo.support import Sound, array_json, group_json, sound

pytestmark = [pytest.mark.ci, pytest.mark.slow]

LARGE = b"\1" * 600


def chunk(number: int, value: int) -> ChunkTable:
    return ChunkTable.of_inline(index=np.array([[number]]), chunks=[np.int32(value).tobytes() * 12])


def commit(repo, branch: str, number: int, message: str) -> str:
    session = repo.writable_session(branch)
    session.set_chunks("/a", chunk(number, number))
    return session.commit(message)


@functools.cache
def template() -> MemoryStorage:
    """A history that branched, with a tag and snapshots that are on no branch."""
    storage = MemoryStorage()
    repo = Repository.create(storage)
    session = repo.writable_session("main")
    session.add_array("/a", array_json((120,)), ChunkTable.empty(1))
    session.add_array("/n", array_json((24,)), ChunkTable.empty(1))
    session.set_chunk("/n", [0], LARGE)
    session.commit("array")
    second = commit(repo, "main", 0, "second")
    repo.create_branch("dev", second)
    repo.create_branch("gone", second)
    repo.create_tag("v1", second)
    commit(repo, "gone", 1, "lost")
    repo.delete_branch("gone")
    commit(repo, "dev", 2, "on dev")
    commit(repo, "main", 3, "third")
    return storage


def prepared(kind: str = "memory", folder=None):
    """A copy of the template."""
    if kind == "local":
        root = Path(tempfile.mkdtemp(dir=folder))
        for info in template().list():
            (root / info.path).parent.mkdir(exist_ok=True)
            (root / info.path).write_bytes(template().get(info.path))
        return LocalStorage(root)
    storage = MemoryStorage()
    for info in template().list():
        storage.put(info.path, template().get(info.path))
    return storage


def state(storage) -> str:
    """All that users see of a repository, without ids and times."""
    repo = Repository.open(storage)
    seen = {}
    for branch in sorted(repo.list_branches()):
        session = repo.readonly_session(branch)
        paths = [node.path for node in session.snapshot.nodes]
        table = session.array_table("/a") if "/a" in paths else None
        seen[branch] = (
            [output.message for output in repo.ancestry(branch=branch)],
            paths,
            None if table is None else table.index.ravel().tolist(),
        )
    tags = {tag: repo.lookup_snapshot(repo.lookup_tag(tag)).message for tag in repo.list_tags()}
    shown = (seen, tags, repo.config.document, repo.metadata, repo.get_status().availability.name)
    return json.dumps(shown, sort_keys=True, default=str)


def act_commit(repo):
    session = repo.writable_session("main")
    session.set_chunks("/a", chunk(5, 5))
    session.set_chunk("/n", [1], LARGE)
    session.add_group("/g", group_json())
    session.commit("committed")


def act_rebase(repo):
    """Two sessions at once; the second one rebases."""
    second = repo.writable_session("main")
    second.set_chunks("/a", chunk(6, 6))
    commit(Repository.open(getattr(repo.storage, "storage", repo.storage)), "main", 5, "first")
    second.commit("rebased", rebase_with=ConflictDetector())


def act_overtaken(repo):
    """Somebody changes another branch between this commit's reading and writing of `repo`."""
    storage = repo.storage
    their = getattr(storage, "storage", storage)  # whatever befalls us

    class Overtaken:
        url = storage.url
        left = 1

        def __getattr__(self, name):
            return getattr(storage, name)

        def put_if(self, path, body, *, was, **more):
            if path == "repo" and self.left:
                self.left -= 1
                commit(Repository.open(their), "dev", 4, "faster")
            return storage.put_if(path, body, was=was, **more)

    act_commit(Repository.open(Overtaken()))


def act_amend(repo):
    session = repo.writable_session("main")
    session.set_chunk("/n", [1], LARGE)
    session.set_chunks("/a", chunk(5, 5))
    session.amend("amended")


def act_flush(repo):
    session = repo.writable_session("main")
    session.set_chunks("/a", chunk(5, 5))
    repo.create_branch("flushed", session.flush("flushed"))


def act_move(repo):
    session = repo.rearrange_session("main")
    session.move("/a", "/b")
    session.commit("moved")


def act_config(repo):
    repo.config.set_virtual_chunk_container(
        VirtualChunkContainer("file:///data/", local_filesystem_store("/data"))
    )
    repo.save_config()


def now() -> datetime:
    time.sleep(0.001)  # so that what was just written is older
    return datetime.now(UTC)


def act_refs(repo):
    at = repo.lookup_branch("dev")
    repo.create_branch("new", at)
    repo.reset_branch("dev", repo.lookup_branch("main"), from_snapshot_id=at)
    repo.create_tag("v2", at)
    repo.delete_tag("v1")
    repo.delete_branch("new")


def act_collect(repo):
    """Collect what the lost branch left."""
    summary = repo.garbage_collect(now())
    assert summary.snapshots_deleted


def act_trim(repo):
    """Forget all but the newest entry of the ops log."""
    summary = repo.trim_ops_log(now())
    assert summary.backups_deleted > 5


ACTS = {
    "commit": act_commit,
    "rebase": act_rebase,
    "overtaken": act_overtaken,
    "amend": act_amend,
    "flush": act_flush,
    "move": act_move,
    "config save": act_config,
    "metadata": lambda repo: repo.update_metadata({"by": "us"}),
    "refs": act_refs,
    "expire": lambda repo: repo.expire_snapshots(now(), delete_expired_branches=True),
    "gc": act_collect,
    "trim": act_trim,
    "rewrite": lambda repo: repo.rewrite_manifests("rewritten", branch="main"),
}


def steps(act, make) -> set[str]:
    """All states that the act goes through, by watching it after each call."""
    storage = make()
    states = {state(storage)}

    class Watched:
        url = storage.url

        def __getattr__(self, name):
            real = getattr(storage, name)

            def call(*args, **kwargs):
                done = real(*args, **kwargs)
                if name == "put_if":
                    states.add(state(storage))
                return done

            return call

    act(Repository.open(Watched()))
    return states


ON_DISK = ("commit", "amend", "gc")
IN_MEMORY = [(name, "memory") for name in ACTS]
CASES = cases([*IN_MEMORY, *((name, "local") for name in ON_DISK)], *IN_MEMORY)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_is_as_before_or_as_after(name, kind, tmp_path):
    act, held = ACTS[name], {}

    def make():
        return prepared(kind, tmp_path)

    def remembered(storage):
        held.clear()
        held["repo"] = Repository.open(storage)
        act(held["repo"])

    allowed, seen, is_sound = steps(act, make), set(), Sound(template())
    for storage, end in endings(remembered, make):
        seen.add(left := state(storage))
        assert seen <= allowed
        writer = Repository.open(storage)
        if not end.kills:
            writer = held.get("repo", writer)
        session = writer.writable_session("main")
        session.set_metadata("/n", array_json((24,), attributes={"by": "next"}))
        session.commit("next")
        if end.kills:
            writer.garbage_collect(now())
        assert is_sound(storage, left, end.kills)
    assert seen == allowed


def test_a_session_whose_commit_failed_commits_again_and_nothing_is_there_twice():
    """It may have been applied; then the second one says so instead of repeating it."""
    sessions = []

    def act(storage):
        sessions.clear()
        session = Repository.open(storage).writable_session("main")
        sessions.append(session)
        session.set_chunks("/a", chunk(5, 5))
        session.commit("committed")

    outcomes = set()
    for storage, end in endings(act, prepared):
        if end.kills or not sessions:
            continue
        applied = "committed" in state(storage)
        outcomes.add(applied)
        if sessions[0].read_only:
            assert applied
        elif applied:
            with pytest.raises(ConflictError):
                sessions[0].commit("committed", rebase_with=ConflictDetector())
        else:
            sessions[0].commit("committed", rebase_with=ConflictDetector())
        history = [output.message for output in Repository.open(storage).ancestry(branch="main")]
        assert history.count("committed") == 1
        assert sound(storage)
    assert outcomes == {True, False}


def test_a_storage_that_stays_away_changes_nothing():
    """Every call fails from some call on, until the client is gone."""
    for broken_at in itertools.count(1):
        storage = prepared()
        before = state(storage)

        class Away:
            url = storage.url
            calls = 0

            def __getattr__(self, name, storage=storage, broken_at=broken_at):
                real = getattr(storage, name)

                def call(*args, **kwargs):
                    Away.calls += 1
                    if Away.calls >= broken_at:
                        raise End.failed.exception()
                    return real(*args, **kwargs)

                return call

        try:
            act_commit(Repository.open(Away()))
        except StorageError:
            assert state(storage) == before
            assert sound(storage)
        else:
            break
    assert broken_at > 5


@pytest.mark.parametrize("limit", [1000, 1])
def test_a_commit_that_others_built_upon_before_its_answer_got_lost_is_acknowledged(limit):
    """The storage cannot tell whose write it was any more; the ops log can, however short."""
    storage = prepared()
    repo = Repository.open(storage)
    repo.config.num_updates_per_repo_info_file = limit
    repo.save_config()
    other = Repository.open(storage)

    class Overtaken:
        url = storage.url

        def __init__(self):
            self.left = 1

        def __getattr__(self, name):
            return getattr(storage, name)

        def put_if(self, path, body, *, was, **more):
            done = storage.put_if(path, body, was=was, **more)
            if path == "repo" and self.left:
                self.left -= 1
                commit(other, "main", 7, "on top")
                other.create_tag("v2", other.lookup_branch("main"))
                return LostRace(perhaps_first_written=True)
            return done

    before = len(list(repo.ops_log()))
    repo = Repository.open(Overtaken())
    made = commit(repo, "main", 5, "overtaken")
    history = list(repo.ancestry(branch="main"))
    assert [output.message for output in history][:3] == ["on top", "overtaken", "third"]
    assert history[1].id == made
    assert len(list(repo.ops_log())) == before + 3
    assert sound(storage)


def test_a_race_that_perhaps_was_won_but_was_not_is_run_again():
    storage = prepared()
    other = Repository.open(storage)

    class Beaten:
        url = storage.url

        def __init__(self):
            self.left = 1

        def __getattr__(self, name):
            return getattr(storage, name)

        def put_if(self, path, body, *, was, **more):
            if path == "repo" and self.left:
                self.left -= 1
                for each, content in more["after"].items():
                    storage.put(each, content)
                commit(other, "dev", 7, "first")
                return LostRace(perhaps_first_written=True)
            return storage.put_if(path, body, was=was, **more)

    repo = Repository.open(Beaten())
    made = commit(repo, "main", 5, "second try")
    assert repo.lookup_branch("main") == made
    backups = {info.path.split("/")[1] for info in storage.list("overwritten")}
    assert backups == {update.backup_path for update in repo.ops_log()} - {None}
    assert sound(storage)
