"""Nothing is wrong with sound V1 repositories, and what is damaged is found."""

import pytest

from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from repo.v1.clients import NAMES, commit, in_memory, official, unpacked


def checked(storage):
    """Codes of all problems, less the golden repositories' one: they have no container."""
    return {problem.code for problem in check(storage).problems} - {"no-container"}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_v1_repositories(name, tmp_path):
    storage = in_memory(unpacked(name, tmp_path))
    assert checked(storage) == set()
    commit(Repository.open(storage))
    assert checked(storage) == set()
    assert check(storage).snapshots == 5


def test_nothing_is_wrong_after_the_official_client_expired_v1_snapshots(tmp_path):
    """It gives a snapshot another parent and keeps its log."""
    path = unpacked(NAMES[1], tmp_path)
    theirs = official(path)
    made = [commit(Repository.open(path), f"/{n}") for n in range(3)]
    newest = next(theirs.ancestry(snapshot_id=made[-1]))
    assert theirs.expire_snapshots(newest.written_at)
    theirs.garbage_collect(newest.written_at)
    assert checked(path) == set()
    again = Repository.open(path)
    assert again.lookup_branch("main") == made[-1]
    again.upgrade()
    assert checked(path) == set()


def delete_first(folder):
    def act(storage):
        storage.delete(next(iter(storage.list(folder))).path)

    return act


def break_first(folder):
    def act(storage):
        path = next(iter(storage.list(folder))).path
        storage.put(path, storage.get(path)[:-7])

    return act


DAMAGE = {
    "manifest gone": (delete_first("manifests"), "object-not-found"),
    "manifest cut": (break_first("manifests"), "format"),
    "log cut": (break_first("transactions"), "format"),
    "snapshot cut": (break_first("snapshots"), "format"),
    "snapshot gone": (lambda s: s.delete(f"snapshots/{tip(s)}"), "dangling-ref"),
    "chunk cut": (break_first("chunks"), "chunk"),
}


def tip(storage):
    return Repository.open(storage).lookup_branch("main")


@pytest.mark.parametrize(("act", "code"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_of_v1_repositories_is_found(act, code, tmp_path):
    storage = in_memory(unpacked(NAMES[1], tmp_path))
    act(storage)
    assert code in checked(storage)
    assert not check(storage).ok
