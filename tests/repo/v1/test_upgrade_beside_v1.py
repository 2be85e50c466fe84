"""After an upgrade that leaves the files of V1, its clients go on, and nothing of theirs is lost."""

import pytest

from icevirt.errors import ConflictError, FormatError, IcevirtError
from icevirt.repo.maintenance.check import check
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.storage.memory import MemoryStorage
from icevirt.versioning.history.timestamps import moment
from icevirt.wire import config_yaml
from repo.faults.faulty import deaths
from repo.support import array_json, sound
from repo.v1.clients import commit, in_memory, one, v1_client
from repo.v1.upgrading import history, run, written


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return written(tmp_path_factory.mktemp("v1") / "repo")


@pytest.fixture
def storage(small):
    """A V1 repository in memory."""
    return in_memory(small)


def test_v1_clients_read_on_where_their_files_stay(storage):
    report = run(storage, delete=False)
    assert report.v1_files_left
    client = v1_client(storage)
    assert [s.id for s in client.ancestry(branch="main")] == history(storage)
    assert [p.code for p in check(storage).problems] == ["v1-left"]
    assert check(storage).ok


def test_their_commits_are_reported_and_carried_over_by_the_next_upgrade(storage):
    run(storage, delete=False)
    before = history(storage)
    client = v1_client(storage)
    made = [commit(client, f"/{n}") for n in range(2)]
    client.create_tag("aside", made[0])
    assert history(storage) == before
    assert [p.code for p in check(storage).problems] == ["v1-changes"]
    report = run(storage, delete=False)
    assert (report.commits_carried_over, report.from_version) == (2, 2)
    assert history(storage) == [*made[::-1], *before]
    assert Repository.open(storage).lookup_tag("aside") == made[0]
    assert run(storage).commits_carried_over == 0
    assert sound(storage)
    with pytest.raises(IcevirtError):
        commit(client, "/late")


def test_garbage_collection_waits_until_their_commits_are_carried_over(storage):
    run(storage, delete=False)
    made = commit(v1_client(storage), "/theirs")
    repo = Repository.open(storage)
    now = moment(RepoInfoFile(storage).now())
    with pytest.raises(ConflictError, match="garbage collection would delete"):
        repo.garbage_collect(now)
    repo.upgrade(delete_unused_v1_files=False)
    repo.garbage_collect(now)
    assert repo.lookup_branch("main") == made
    assert sound(storage)


def test_commits_side_by_side_are_both_kept_and_said(storage):
    run(storage, delete=False)
    base = history(storage)
    theirs = commit(v1_client(storage), "/theirs")
    ours = commit(Repository.open(storage), "/ours")
    with pytest.raises(ConflictError, match="branches of their own") as caught:
        run(storage)
    branch = caught.value.facts["branches"]["main"]
    assert history(storage) == [ours, *base]
    assert history(storage, branch) == [theirs, *base]
    assert not list(storage.list("refs"))
    assert sound(storage)
    assert run(storage).commits_carried_over == 0


def test_what_v2_dropped_on_purpose_does_not_come_back(storage):
    run(storage, delete=False)
    repo = Repository.open(storage)
    repo.delete_branch("shared")
    repo.delete_tag("t")
    repo.config.inline_chunk_threshold_bytes = 99
    repo.save_config()
    run(storage)
    again = Repository.open(storage)
    assert again.list_branches() == {"main", "dev"}
    assert again.list_tags() == set()
    assert again.config.inline_chunk_threshold_bytes == 99


def test_a_configuration_that_v2_saved_stays_though_its_ops_log_was_trimmed(storage):
    run(storage, delete=False)
    repo = Repository.open(storage)
    repo.config.inline_chunk_threshold_bytes = 99
    repo.save_config()
    repo.set_metadata({"later": True})
    repo.trim_ops_log(moment(RepoInfoFile(storage).now()))
    assert check(storage).ok
    run(storage)
    assert Repository.open(storage).config.inline_chunk_threshold_bytes == 99


def test_a_configuration_saved_by_a_v1_client_is_carried_over(storage):
    run(storage, delete=False)
    document = config_yaml.loads(storage.get("config.yaml"))
    storage.put("config.yaml", config_yaml.dumps({**document, "inline_chunk_threshold_bytes": 5}))
    run(storage)
    assert Repository.open(storage).config.inline_chunk_threshold_bytes == 5


def test_a_commit_on_what_v2_expired_is_refused_and_kept(storage):
    run(storage, delete=False)
    client = v1_client(storage)
    client.reset_branch("dev", history(storage)[1])
    commit(client, "/theirs", branch="dev")
    repo = Repository.open(storage)
    for branch in ("dev", "shared"):
        repo.delete_branch(branch)
    repo.delete_tag("t")
    commit(repo, "/ours")
    repo.expire_snapshots(moment(RepoInfoFile(storage).now()))
    with pytest.raises(ConflictError, match="expired"):
        run(storage)
    assert list(storage.list("refs"))
    assert [p.code for p in check(storage).problems] == ["v1-left"]


@pytest.mark.ci
def test_a_repo_that_was_removed_after_the_upgrade_is_said(storage):
    """Sealed branches still name their snapshots; nothing may be committed to them."""
    session = v1_client(storage).writable_session("main")
    session.add_array("/a2", array_json(), one(1))
    for copy in deaths(run, lambda: in_memory_of(storage)):
        if any(b"upgraded" in copy.get(f.path) for f in copy.list("refs/branch.main")):
            copy.delete("repo")
            repo = Repository.open(copy)
            assert history(copy)
            with pytest.raises(FormatError, match="upgraded repository was deleted"):
                commit(repo)
            return
    raise AssertionError("never sealed")


def in_memory_of(storage):
    copy = MemoryStorage()
    for found in storage.list():
        copy.put(found.path, storage.get(found.path))
    return copy
