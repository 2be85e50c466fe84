"""From V1 to V2: as the official client does it, and nothing acknowledged is lost on the way.

By hand: sessions of icechunk 1.1.21 that were open during an upgrade failed to commit, and its
commits made before the branch was sealed were carried over.
"""

import shutil
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import FormatError, IcevirtError, StorageError
from icevirt.model import updates
from icevirt.model.chunks import ChunkTable
from icevirt.repo.maintenance.check import check
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.repo.v1.upgrade import upgrade
from icevirt.versioning.merge.conflicts import ConflictDetector
from icevirt.wire.repo_info import file as repo_file
from repo.faults.faulty import VERBS, Faulty, deaths
from repo.support import Sound, array_json, sound
from repo.v1 import racers
from repo.v1.clients import NAMES, commit, in_memory, official, one, unpacked, v1_client
from repo.v1.upgrading import history, run, written
from servers.racing import raced


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return written(tmp_path_factory.mktemp("v1") / "repo")


@pytest.fixture
def storage(small):
    """A V1 repository in memory."""
    return in_memory(small)


# -- what is made ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "by 2.3"])
def test_the_repo_info_is_that_of_the_official_client(name, tmp_path):
    found = []
    for who in ("ours", "theirs"):
        path = tmp_path / who
        if name == "by 2.3":
            written(path) if who == "ours" else _copied(tmp_path / "ours", path)
        else:
            unpacked(name, path)
    icechunk.upgrade_icechunk_repository(official(tmp_path / "theirs"), dry_run=False)
    Repository.open(tmp_path / "ours").upgrade()
    for who in ("ours", "theirs"):
        found.append(repo_file.decode((tmp_path / who / "repo").read_bytes()))
        assert not [p for p in (tmp_path / who).rglob("*") if p.name in ("ref.json", "config.yaml")]
    ours, theirs = found
    for name in ours._fields:
        if name not in ("latest_updates", "config"):
            assert getattr(ours, name) == getattr(theirs, name), name
    assert _set(ours.config) == _set(theirs.config)
    assert ours.latest_updates[0].kind == theirs.latest_updates[0].kind
    assert ours.latest_updates[1:] == theirs.latest_updates[1:]


def _copied(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def _set(config):
    """Return what a configuration sets."""
    return {key: value for key, value in (config or {}).items() if value is not None}


@pytest.mark.parametrize("name", NAMES)
def test_both_clients_go_on_with_it(name, repo_path):
    unpacked(name, repo_path)
    repo = Repository.open(repo_path)
    values = zarr.open_group(repo.readonly_session("main").store, mode="r")["inline"][:]
    before = {f.path: repo.storage.get(f.path) for f in repo.storage.list()}
    report = repo.upgrade()
    assert (report.from_version, report.v1_files_left, repo.spec_version) == (1, False, 2)
    left = {f.path: repo.storage.get(f.path) for f in repo.storage.list()}
    assert left.keys() - before.keys() == {"repo"}
    assert all(left[path] == body for path, body in before.items() if path in left)
    assert all(path.startswith("refs/") for path in before.keys() - left.keys())
    made = commit(repo, "/ours")
    theirs = official(repo_path)
    session = theirs.writable_session("main")
    zarr.create_group(session.store, path="theirs")
    last = session.commit("theirs")
    assert [s.id for s in repo.ancestry(branch="main")][:2] == [last, made]
    read = zarr.open_group(theirs.readonly_session("main").store, mode="r")["inline"]
    assert np.array_equal(read[:], values)
    session = repo.writable_session("main")
    session.add_array("/amended", array_json(), one(1))
    session.amend("amended")
    moved = repo.rearrange_session("main")
    moved.move("/ours", "/moved")
    moved.commit("moved")
    assert {type(u.kind).__name__ for u in official(repo_path).ops_log()} >= {"RepoMigrated"}


def test_a_dry_run_changes_nothing(storage):
    before = {f.path: storage.get(f.path) for f in storage.list()}
    report = run(storage, dry_run=True)
    assert (report.dry_run, report.from_version) == (True, 1)
    assert (report.snapshots, report.branches, report.tags) == (4, 3, 1)
    assert {f.path: storage.get(f.path) for f in storage.list()} == before


def test_upgrading_again_changes_nothing(storage):
    run(storage)
    before = storage.get("repo")
    report = run(storage)
    assert (report.from_version, report.commits_carried_over) == (2, 0)
    assert storage.get("repo") == before


def test_differences_and_rebases_reach_over_the_upgrade(storage):
    session = Repository.open(storage).writable_session("main")
    session.set_chunks("/a", _chunk(3))
    old = history(storage)
    run(storage)
    repo = Repository.open(storage)
    other = repo.writable_session("main")
    other.set_chunks("/a", _chunk(2))
    other.commit("other")
    made = session.commit("begun in V1", rebase_with=ConflictDetector())
    diff = repo.diff(from_snapshot_id=old[-1], to_snapshot_id=made)
    assert set(diff.new_arrays) == {"/a"}
    assert sound(storage)


def _chunk(at):
    return ChunkTable.of_inline(index=np.array([[at]]), chunks=[np.zeros(2, "<i4").tobytes()])


def test_a_snapshot_that_is_missing_is_said_before_anything_is_changed(storage):
    tip = Repository.open(storage).lookup_branch("dev")
    storage.delete(f"snapshots/{tip}")
    before = {f.path for f in storage.list()}
    for dry_run in (True, False):
        with pytest.raises(FormatError, match="missing") as caught:
            run(storage, dry_run=dry_run)
        assert caught.value.facts["snapshot"] == tip
    assert {f.path for f in storage.list()} == before


def test_a_snapshot_of_the_future_is_said_before_anything_is_changed(storage):
    with pytest.raises(StorageError, match="future"):
        upgrade(RepoInfoFile(storage, lambda: 1), dry_run=False, delete_unused_v1_files=True)
    assert Repository.fetch_spec_version(storage) == 1


# -- interrupted ----------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.slow
def test_killed_at_any_call_it_is_v1_or_v2_and_goes_on(small):
    plain = in_memory(small)
    before, checked, is_sound = history(plain), set(), Sound(plain)
    for storage in deaths(run, lambda: in_memory(small)):
        repo = Repository.open(storage)
        assert history(storage) == before
        if (names := frozenset(each.path for each in storage.list())) not in checked:
            checked.add(names)
            assert check(storage).ok
        made = commit(repo, "/between")
        run(storage)
        again = Repository.open(storage)
        assert again.spec_version == 2
        assert history(storage) == [made, *before]
        assert again.list_branches() == {"main", "dev", "shared"}
        assert (again.list_tags(), again.config.inline_chunk_threshold_bytes) == ({"t"}, 16)
        assert not list(storage.list("refs"))
        assert is_sound(storage, repo.spec_version)


class Interrupted(Faulty):
    """Does something before the ``at``-th call, or after it."""

    def __init__(self, storage, at=0, act=None):
        super().__init__(storage)
        self.moment, self.act = at, act

    def __getattr__(self, name):
        call = super().__getattr__(name)
        if name not in VERBS:
            return call

        def interrupted(*args, **kwargs):
            if self.calls + 1 == self.moment:
                self.act()
            return call(*args, **kwargs)

        return interrupted


def everywhere(small, make_act, finish=run):
    """Upgrade with something done before each call in turn; yield what is left, and what it did."""
    probe = Interrupted(in_memory(small))
    finish(probe)
    for at in range(1, probe.calls + 1):
        storage = in_memory(small)
        act, output = make_act(storage)
        finish(Interrupted(storage, at, act))
        yield storage, output


@pytest.mark.ci
def test_what_v1_clients_do_at_any_moment_is_carried_over_or_fails(small):
    """Their sessions were begun before the upgrade; they never look for `repo`."""
    once = []  # the history after the first upgrade

    def make(storage):
        client = v1_client(storage)
        session = client.writable_session("main")
        session.add_array("/theirs", array_json(), one(7))
        tip, output = client.lookup_branch("dev"), []

        def act():
            for do in (
                lambda: session.commit("by V1"),
                lambda: client.create_branch("late", tip),
                lambda: client.create_tag("late", tip),
                lambda: client.delete_tag("t"),
            ):
                try:
                    output.append(do() or True)
                except IcevirtError:
                    output.append(False)

        return act, output

    def finish(storage):
        run(storage)
        once[:] = history(storage.storage)
        run(storage)  # a branch made when all was over, without a look at what is there

    before, is_sound = history(in_memory(small)), Sound(in_memory(small))
    outcomes = set()
    for storage, output in everywhere(small, make, finish):
        made, created, tagged, deleted = output
        outcomes.add(bool(made))
        assert history(storage) == once == ([made, *before] if made else before)
        repo = Repository.open(storage)
        assert ("late" in repo.list_branches()) == created
        assert ("late" in repo.list_tags()) == tagged
        assert ("t" not in repo.list_tags()) == deleted
        assert not list(storage.list("refs"))
        assert is_sound(storage, *map(bool, output))
    assert outcomes == {True, False}


@pytest.mark.ci
def test_a_commit_of_a_client_that_knows_both_succeeds_at_any_moment(small):
    """Begun on V1 and committed before each call: to V1 and carried over, or to V2."""

    def make(storage):
        session = Repository.open(storage).writable_session("main")
        session.add_array("/ours", array_json(), one(7))
        output = []
        return (lambda: output.append(session.commit("ours"))), output

    before, is_sound = history(in_memory(small)), Sound(in_memory(small))
    for storage, output in everywhere(small, make):
        assert history(storage) == [*output, *before]
        order = [type(update.kind).__name__ for update in Repository.open(storage).ops_log()]
        assert is_sound(storage, *order)


@pytest.mark.ci
def test_two_upgrades_at_once_make_one(small):
    def make(storage):
        output = []
        return (lambda: output.append(run(storage))), output

    before, is_sound = history(in_memory(small)), Sound(in_memory(small))
    for storage, _ in everywhere(small, make):
        assert history(storage) == before
        assert not list(storage.list("refs"))
        log = [type(u.kind).__name__ for u in Repository.open(storage).ops_log()]
        assert log.count("RepoMigrated") == 1
        assert is_sound(storage, *log)


# -- the official client --------------------------------------------------------------------------


@pytest.mark.parametrize("delete", [True, False])
def test_an_open_session_of_the_official_client_fails_or_is_carried_over(delete, tmp_path):
    """On local disk, one at a time: nobody races here."""
    path = written(tmp_path / "repo")
    session = official(path).writable_session("main")
    zarr.open_group(session.store)["a"][3] = 77
    Repository.open(path).upgrade(delete_unused_v1_files=delete)
    if delete:
        with pytest.raises(icechunk.IcechunkError):
            session.commit("late")
    else:
        made = session.commit("late")
        assert Repository.open(path).upgrade().commits_carried_over == 1
        assert Repository.open(path).lookup_branch("main") == made
        assert (
            zarr.open_group(official(path).readonly_session("main").store, mode="r")["a"][3] == 77
        )


def test_an_unfinished_upgrade_of_the_official_client_is_continued(tmp_path):
    path = written(tmp_path / "repo")
    icechunk.upgrade_icechunk_repository(
        official(path), dry_run=False, delete_unused_v1_files=False
    )
    report = Repository.open(path).upgrade()
    assert (report.from_version, report.commits_carried_over, report.v1_files_left) == (2, 0, False)
    assert official(path).list_branches() == {"main", "dev", "shared"}
    kinds = [type(u.kind) for u in official(path).ops_log()]
    assert kinds.count(icechunk.UpdateType.RepoMigrated) == 1


def test_the_ops_log_tells_of_the_upgrade(storage):
    run(storage)
    entry = next(iter(Repository.open(storage).ops_log()))
    assert (entry.kind.from_version, entry.kind.to_version) == (1, 2)
    assert isinstance(
        RepoInfoFile(storage).read().info.latest_updates[0].kind, updates.RepoMigrated
    )


@pytest.mark.servers
@pytest.mark.parametrize("both", [False, True], ids=["official writers", "both clients' writers"])
def test_nothing_is_lost_of_v1_writers_that_race_with_an_upgrade(both, s3):
    """Official writers opened V1 and end when they are refused; icevirt's go on in V2.

    Of these a V1 writer may have been between: both are kept, and the upgrade says so.
    """
    writers = 4
    repo = icechunk.Repository.create(s3.official(), spec_version=1)
    session = repo.writable_session("main")
    shape = (writers * racers.MOST * 12,)
    zarr.create_group(session.store).create_array("a", shape=shape, chunks=(12,), dtype="i4")
    session.commit("base")
    through, officially = racers.commit_through, racers.commit_officially
    acts = [(through if both and n % 2 else officially, s3, n, writers) for n in range(writers)]
    *found, aside = raced(racers.call, [*acts, (racers.upgrade, s3, writers)])
    acknowledged = [key for made in found for key in made]
    after, theirs = Repository.open(s3.icevirt()), icechunk.Repository.open(s3.official())
    assert (after.spec_version, after.list_branches()) == (2, {"main", *aside})
    assert both or not aside
    made = set()
    for name in after.list_branches():
        line = [output.id for output in after.ancestry(branch=name)]
        assert [output.id for output in theirs.ancestry(branch=name)] == line
        made.update(line[:-2])
    assert sorted(made) == sorted(acknowledged)
    assert after.list_tags() == {f"opened-{n}" for n in range(writers)}
    assert sound(s3.icevirt())


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    written(tmp_path / "repo")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.split("\n")[:3] == ["1", "4 snapshots", "2"]
