"""Sessions whose changes leave nothing changed commit where the official client commits."""

import icechunk
import numpy as np
import pytest
import zarr

import icevirt.icechunk
from icevirt.repo.maintenance.check import check

WRITTEN = 1


def array(session):
    return zarr.open_array(session.store, path="a", mode="r+")


def group(session):
    return zarr.open_group(session.store, mode="a")


def resize(*lengths):
    def change(_ic, session):
        for length in lengths:
            array(session).resize((length,))

    return change


def set_attributes(*each):
    def change(_ic, session):
        for attributes in each:
            array(session).attrs.put(attributes)

    return change


def add_and_delete(*, written):
    def change(_ic, session):
        added = group(session).create_array("b", shape=(2,), dtype="i4")
        if written:
            added[:] = 3
        del group(session)["b"]

    return change


def add_group_and_delete(_ic, session):
    group(session).create_group("g")
    del group(session)["g"]


def delete_and_make_again(_ic, session):
    del group(session)["a"]
    group(session).create_array("a", data=np.ones(20, "i4"), chunks=(5,))


def merge_a_fork(change):
    def merge(ic, session):
        fork = session.fork()
        change(ic, fork)
        session.merge(fork)

    return merge


def write(session, value):
    array(session)[:5] = value


def nothing(_ic, _session):
    pass


CHANGES = {
    "nothing": nothing,
    "discarded": lambda _, s: (write(s, 4), s.discard_changes()),
    "the same values": lambda _, s: write(s, WRITTEN),
    "shrunk and grown": resize(10, 20),
    "shrunk and grown, of chunks never written": resize(40, 20),
    "the same length": resize(20),
    "attributes set and taken back": set_attributes({"k": 1}, {}),
    "the same attributes": set_attributes({}),
    "an array added and deleted": add_and_delete(written=False),
    "an array added, written and deleted": add_and_delete(written=True),
    "a group added and deleted": add_group_and_delete,
    "an array deleted and made again": delete_and_make_again,
    "chunks moved by nothing": lambda _, s: s.shift_array("/a", (0,)),
    "an empty fork merged": merge_a_fork(nothing),
    "a fork that shrank and grew": merge_a_fork(resize(10, 20)),
    "a fork that set and took back": merge_a_fork(set_attributes({"k": 1}, {})),
}


def theirs(session):
    write(session, 2)


def delete(session):
    del group(session)["a"]


def use_theirs(ic):
    return ic.BasicConflictSolver(on_chunk_conflict=ic.VersionSelection.UseTheirs)


# what another does, what we do, and the solver of the rebase
REBASED = {
    "nothing of ours": (theirs, lambda s: None, lambda ic: ic.ConflictDetector()),
    "their chunk was chosen": (theirs, lambda s: write(s, 3), use_theirs),
    "both deleted": (delete, delete, lambda ic: ic.BasicConflictSolver()),
    "shrunk and grown": (
        lambda s: group(s).create_group("g"),
        lambda s: resize(10, 20)(None, s),
        lambda ic: ic.ConflictDetector(),
    ),
    "added and deleted": (
        theirs,
        lambda s: add_and_delete(written=False)(None, s),
        lambda ic: ic.ConflictDetector(),
    ),
}


def begin(ic, path):
    repo = ic.Repository.create(ic.local_filesystem_storage(str(path)))
    session = repo.writable_session("main")
    group(session).create_array("a", data=np.full(20, WRITTEN, "i4"), chunks=(5,))
    session.commit("begin")
    return repo


def end(ic, repo, session):
    """What can be seen of a commit: whether there is one, and the values."""
    changed = session.has_uncommitted_changes
    try:
        session.commit("end")
    except ic.SessionStateError as error:
        return changed, str(error.kind)
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    values = {name: each[:].tolist() for name, each in root.arrays()}
    return changed, values, len(list(repo.ancestry(branch="main")))


def run(ic, path, change):
    repo = begin(ic, path)
    session = repo.writable_session("main")
    change(ic, session)
    return end(ic, repo, session)


def run_rebase(ic, path, case):
    others, ours, solver = REBASED[case]
    repo = begin(ic, path)
    session, other = repo.writable_session("main"), repo.writable_session("main")
    ours(session)
    others(other)
    other.commit("theirs")
    session.rebase(solver(ic))
    return end(ic, repo, session)


@pytest.mark.parametrize("case", CHANGES)
def test_changes_that_were_taken_back_commit_as_the_official_clients_do(case, tmp_path):
    expected = run(icechunk, tmp_path / "theirs", CHANGES[case])
    assert run(icevirt.icechunk, tmp_path / "ours", CHANGES[case]) == expected
    assert check(tmp_path / "ours").ok


@pytest.mark.parametrize("case", REBASED)
def test_a_rebase_that_leaves_nothing_commits_as_the_official_clients_do(case, tmp_path):
    expected = run_rebase(icechunk, tmp_path / "theirs", case)
    assert run_rebase(icevirt.icechunk, tmp_path / "ours", case) == expected
    assert check(tmp_path / "ours").ok


def test_moves_that_were_taken_back_commit(tmp_path):
    found = []
    for ic in (icechunk, icevirt.icechunk):
        repo = begin(ic, tmp_path / ic.__name__)
        session = repo.rearrange_session("main")
        session.move("/a", "/b")
        session.move("/b", "/a")
        found.append(end(ic, repo, session))
    assert found[0] == found[1]
