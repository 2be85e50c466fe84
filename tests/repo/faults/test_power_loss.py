"""Whenever the power fails, what was acknowledged is there, and the repository opens.

Commits are recorded as operations on files (`repo.faults.power_loss`). For each moment, everything
that the disk may have kept is written out and opened: it is what the last acknowledged commit
left, or what the next one leaves.
"""

import itertools
from pathlib import Path

import pytest

from icevirt.errors import IcevirtError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from icevirt.storage import durable, local
from icevirt.storage.local import LocalStorage
from long_forms import cases
from repo.faults.power_loss import Recorder, disks
from repo.faults.test_crashes import act_amend, act_commit, chunk, commit, prepared, state
from repo.support import array_json, sound

pytestmark = pytest.mark.ci


def new_repository(storage):
    """Yield after each step that is acknowledged."""
    repo = Repository.create(storage)
    yield
    session = repo.writable_session("main")
    session.add_array("/a", array_json((120,)), ChunkTable.empty(1))
    session.add_array("/n", array_json((24,)), ChunkTable.empty(1))
    session.set_chunk("/n", [0], b"\1" * 600)
    session.commit("array")
    yield


def commits(storage):
    """Yield after two commits by one process, the first of which compares clocks."""
    repo = Repository.open(storage)
    commit(repo, "main", 5, "one")
    yield
    commit(repo, "main", 6, "two")
    yield


def amended(storage):
    repo = Repository.open(storage)
    act_amend(repo)
    yield
    act_commit(repo)
    yield


def overtaken(storage):
    """Yield after two sessions committed; the second one rebases."""
    from icevirt.versioning.merge.conflicts import ConflictDetector

    repo = Repository.open(storage)
    first, second = (repo.writable_session("main") for _ in range(2))
    first.set_chunks("/a", chunk(5, 5))
    second.set_chunks("/a", chunk(6, 6))
    first.commit("first")
    yield
    second.commit("second", rebase_with=ConflictDetector())
    yield


def refs(storage):
    repo = Repository.open(storage)
    repo.create_tag("new", repo.lookup_branch("main"))
    yield
    repo.delete_branch("dev")
    yield


ACTS = {each.__name__: each for each in (new_repository, commits, amended, overtaken, refs)}


def recorded(act, root, monkeypatch, *, unnamed=True, wait_for_disk=True):
    """Return the recorder, the states, and how many moments had passed when each was acknowledged."""
    storage = LocalStorage(root, wait_for_disk=wait_for_disk)
    root.mkdir(exist_ok=True)
    states, acknowledged = [seen(storage)], [0]
    recorder = Recorder(root)
    with monkeypatch.context() as patched:
        patched.setattr(durable, "os", recorder)
        patched.setattr(local, "os", recorder)
        if not unnamed:
            patched.setattr(durable, "_has_unnamed", lambda: False)
        for _ in act(storage):
            acknowledged.append(len(recorder.moments))
            states.append(seen(storage))
    return recorder, states, acknowledged


def seen(storage):
    """All that users see, or that there is no repository."""
    return state(storage) if Repository.exists(storage) else None


def losses(recorder, states, acknowledged, folder):
    """Yield what is wrong after each moment, by the files that a power cut leaves."""
    known, number = {}, itertools.count()
    for moment in range(len(recorder.moments) + 1):
        if moment:
            recorder.moments[moment - 1]()
        done = max(n for n, when in enumerate(acknowledged) if when <= moment)
        allowed = states[done : done + 2]
        for files in disks(recorder.root):
            key = frozenset(files.items())
            if key not in known:
                known[key] = left(files, folder / str(next(number)))
            if known[key] not in allowed:
                yield moment, known[key]


def left(files, root):
    """Return what users see of a disk."""
    for path, body in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(body)
    storage = LocalStorage(root)
    try:
        found = seen(storage)
        assert found is None or sound(storage)
    except (IcevirtError, AssertionError) as error:
        return f"damaged: {error}"
    return found


# amended commits and those of two sessions write the same kinds of files as plain ones
BOTH = ("new_repository", "commits", "refs")
EVERY = [(name, unnamed) for name in ACTS for unnamed in (True, False)]
FEW = [(name, unnamed) for name, unnamed in EVERY if unnamed or name in BOTH]


@pytest.mark.parametrize(("name", "unnamed"), cases(EVERY, *FEW))
def test_nothing_acknowledged_is_lost_and_nothing_is_damaged(name, unnamed, tmp_path, monkeypatch):
    act = ACTS[name]
    root = tmp_path / "new" if act is new_repository else prepared("local", tmp_path)._root
    found = recorded(act, Path(root), monkeypatch, unnamed=unnamed)
    assert len({*found[1]}) == len(found[1]) > 2
    assert list(losses(*found, tmp_path / "left")) == []


def weakened_names(patched):
    patched.setattr(durable.UnnamedFiles, "sync_names", lambda _: None)


def weakened_bytes(patched):
    patched.setattr(durable.UnnamedFiles, "sync", lambda _: None)


def weakened_replacement(patched):
    replace = durable.replace_by_unnamed
    patched.setattr(
        durable,
        "replace_by_unnamed",
        lambda *args, staged, sync: replace(*args, staged=staged, sync=durable.no_sync),
    )


@pytest.mark.parametrize("weaken", [weakened_names, weakened_bytes, weakened_replacement])
def test_each_of_the_three_waits_is_needed(weaken, tmp_path, monkeypatch):
    weaken(monkeypatch)
    found = recorded(refs, Path(prepared("local", tmp_path)._root), monkeypatch)
    assert any(losses(*found, tmp_path / "left"))


def test_a_commit_waits_three_times_and_a_scratch_repository_never(tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(durable, "sync", lambda fds: waits.append(len(fds)))
    for wait_for_disk in (True, False):
        storage = LocalStorage(prepared("local", tmp_path)._root, wait_for_disk=wait_for_disk)
        repo = Repository.open(storage)
        commit(repo, "main", 5, "compares clocks")
        waits.clear()
        commit(repo, "main", 6, "as usual")
        # manifest, log, snapshot, backup, `repo`; their four folders; the root
        assert waits == ([5, 4, 1] if wait_for_disk else [])


def test_a_scratch_repository_may_lose_what_it_acknowledged(tmp_path, monkeypatch):
    root = Path(prepared("local", tmp_path)._root)
    found = recorded(refs, root, monkeypatch, wait_for_disk=False)
    assert any(losses(*found, tmp_path / "left"))
