"""A repository behaves like a few dictionaries, whoever of the two clients makes each step.

icevirt and the official client take turns on one root, on local disk or on S3, one at a time, with
sessions that stay open meanwhile. After each step refs, histories and values agree with the model; in
the end every invariant of the files holds.
"""

import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

import icechunk
import pytest
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from icevirt.errors import AlreadyExistsError, ConflictError, IcevirtError, SnapshotNotFoundError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from icevirt.versioning.merge.conflicts import BasicConflictSolver
from servers.places import LocalPlace, S3Place

ROOT = str(INITIAL_SNAPSHOT_ID)
PLACES = ("a", "b", "g/a", "g/b")
LENGTH = 4

type Contents = dict[str, list[int]]


@dataclass
class Version:
    """A snapshot as it should be."""

    parent: str | None
    message: str
    written_at: datetime
    contents: Contents
    moved: bool = False


@dataclass
class Model:
    """The repository as it should be."""

    versions: dict[str, Version] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    used_tags: set[str] = field(default_factory=set)
    metadata: dict[str, int] = field(default_factory=dict)

    def history(self, tip: str | None) -> list[str]:
        found = []
        while tip is not None:
            found.append(tip)
            tip = self.versions[tip].parent
        return found

    def expire(self, limit: datetime) -> set[str]:
        tips = {ROOT, *self.branches.values(), *self.tags.values()}
        gone = {key for key, v in self.versions.items() if v.written_at < limit} - tips
        for version in self.versions.values():
            if version.parent in gone:
                version.parent = ROOT
        self.versions = {key: v for key, v in self.versions.items() if key not in gone}
        return gone

    def collect(self) -> set[str]:
        tips = (*self.branches.values(), *self.tags.values())
        kept = {key for tip in tips for key in self.history(tip)}
        gone = self.versions.keys() - kept
        self.versions = {key: v for key, v in self.versions.items() if key in kept}
        return gone


writes = st.tuples(
    st.just("write"), st.sampled_from(PLACES), st.integers(0, LENGTH - 1), st.integers(0, 9)
)
deletes = st.tuples(st.just("delete"), st.sampled_from(PLACES))
changes = st.lists(st.one_of(writes, writes, deletes), min_size=1, max_size=4)
clients = st.booleans()
branch_names = st.sampled_from(["main", "dev", "x y", "é"])
tag_names = st.sampled_from(["v1", "v2", "v3"])


def group_of(session) -> zarr.Group:
    return zarr.open_group(session.store, mode="r" if session.read_only else "a")


def change(session, contents: Contents, what) -> Contents:
    """Make changes in a session and in a copy of the contents."""
    contents = {path: list(values) for path, values in contents.items()}
    group = group_of(session)
    for verb, path, *rest in what:
        if verb == "delete":
            if contents.pop(path, None) is not None:
                del group[path]
        else:
            at, value = rest
            if path not in contents:
                contents[path] = [0] * LENGTH
                group.create_array(path, shape=(LENGTH,), chunks=(1,), dtype="i4", fill_value=0)
            group[path][at] = contents[path][at] = value
    return contents


def seen(session) -> Contents:
    members = group_of(session).members(max_depth=None)
    return {path: node[:].tolist() for path, node in members if isinstance(node, zarr.Array)}


class RepositoryMachine(RuleBasedStateMachine):
    """Steps by either client; the model says what should come of them."""

    def __init__(self, place) -> None:
        super().__init__()
        icechunk.set_logs_filter("error")  # it warns of local disks, each time
        self.place = place
        self.model = Model()
        self.steps = 0
        self.open: list[tuple[object, Contents]] = []  # sessions, and what they saw at first

    def teardown(self) -> None:
        try:
            if self.model.versions:
                report = check(self.place.icevirt())
                assert report.ok, report.problems
        finally:
            if self.place.kind == "local":
                shutil.rmtree(self.place.path)

    def ours(self) -> Repository:
        """The repository as a new icevirt process opens it."""
        return Repository.open(self.place.icevirt())

    def client(self, official):
        if official:
            return icechunk.Repository.open(self.place.official())
        return self.repo

    def tip(self, branch) -> Version:
        return self.model.versions[self.model.branches[branch]]

    def record(self, made, parent, message, contents, **more) -> str:
        output = self.ours().lookup_snapshot(made)
        assert (output.parent_id, output.message) == (parent, message)
        version = Version(parent, message, output.written_at, contents, **more)
        self.model.versions[made] = version
        return made

    def any_version(self, data) -> str:
        # by age: ids are random, and hypothesis repeats what it drew
        return list(self.model.versions)[data.draw(st.integers(0, 99)) % len(self.model.versions)]

    def branch(self, data) -> str:
        return data.draw(st.sampled_from(sorted(self.model.branches)), "branch")

    # -- steps -------------------------------------------------------------------------------

    @initialize(official=clients, old=st.booleans(), upgrader=clients)
    def create(self, official, old, upgrader) -> None:
        """Make a repository, some of the V1 format, which is upgraded after its first commit."""
        if official or old:
            version = 1 if old else 2
            made = icechunk.Repository.create(self.place.official(), spec_version=version)
        else:
            made = Repository.create(self.place.icevirt())
        output = next(iter(made.ancestry(branch="main")))
        self.model.versions[ROOT] = Version(None, output.message, output.written_at, {})
        self.model.branches["main"] = ROOT
        self.repo = self.ours()
        session = self.client(official).writable_session("main")
        group_of(session).create_group("g")
        self.model.branches["main"] = self.record(session.commit("g"), ROOT, "g", {})
        if old and upgrader:
            icechunk.upgrade_icechunk_repository(self.client(official=True), dry_run=False)
        elif old:
            self.repo.upgrade()

    @rule(official=clients, data=st.data(), what=changes)
    def commit(self, official, data, what) -> None:
        name = self.branch(data)
        if self.model.branches[name] == ROOT:
            return  # the group that moves go into is not there
        self.steps += 1
        session = self.client(official).writable_session(name)
        contents = change(session, self.tip(name).contents, what)
        message = f"step {self.steps}"
        made = session.commit(message, allow_empty=True)
        parent = self.model.branches[name]
        self.model.branches[name] = self.record(made, parent, message, contents)

    @rule(official=clients, first=clients, data=st.data(), value=st.integers(1, 9))
    def race(self, official, first, data, value) -> None:
        """Two sessions write different chunks of one array; the second rebases."""
        name = self.branch(data)
        places = sorted(self.tip(name).contents)
        if not places:
            return
        place, self.steps = data.draw(st.sampled_from(places), "place"), self.steps + 1
        late, early = (self.client(who).writable_session(name) for who in (official, first))
        change(late, self.tip(name).contents, [("write", place, 0, value)])
        contents = change(early, self.tip(name).contents, [("write", place, 1, value)])
        message = f"early {self.steps}"
        parent = self.model.branches[name]
        self.model.branches[name] = self.record(early.commit(message), parent, message, contents)
        solver = icechunk.BasicConflictSolver() if official else BasicConflictSolver()
        contents = {**contents, place: [value, *contents[place][1:]]}
        made = late.commit(f"late {self.steps}", rebase_with=solver)
        parent = self.model.branches[name]
        made = self.record(made, parent, f"late {self.steps}", contents)
        self.model.branches[name] = made

    @rule(official=clients, data=st.data(), what=changes)
    def amend(self, official, data, what) -> None:
        name = self.branch(data)
        tip = self.tip(name)
        if tip.parent is None or tip.message == "g" or (official and tip.moved):
            return
        self.steps += 1
        session = self.client(official).writable_session(name)
        contents = change(session, tip.contents, what)
        message = f"amended {self.steps}"
        made = session.amend(message, allow_empty=True)
        made = self.record(made, tip.parent, message, contents, moved=tip.moved)
        self.model.branches[name] = made

    @rule(official=clients, data=st.data(), what=changes)
    def flush(self, official, data, what) -> None:
        name = self.branch(data)
        if self.model.branches[name] == ROOT:
            return
        self.steps += 1
        session = self.client(official).writable_session(name)
        contents = change(session, self.tip(name).contents, what)
        message = f"flushed {self.steps}"
        self.record(session.flush(message), self.model.branches[name], message, contents)

    @rule(official=clients, data=st.data(), place=st.sampled_from(PLACES))
    def move(self, official, data, place) -> None:
        name = self.branch(data)
        contents = dict(self.tip(name).contents)
        if not contents or place in contents:
            return
        source = data.draw(st.sampled_from(sorted(contents)), "source")
        self.steps += 1
        session = self.client(official).rearrange_session(name)
        session.move(f"/{source}", f"/{place}")
        contents[place] = contents.pop(source)
        message = f"moved {self.steps}"
        made = session.commit(message)
        parent = self.model.branches[name]
        self.model.branches[name] = self.record(made, parent, message, contents, moved=True)

    @rule(official=clients, name=branch_names, data=st.data())
    def create_branch(self, official, name, data) -> None:
        at = self.any_version(data)
        if name in self.model.branches:
            with pytest.raises((AlreadyExistsError, icechunk.IcechunkError)):
                self.client(official).create_branch(name, at)
        else:
            self.client(official).create_branch(name, at)
            self.model.branches[name] = at

    @rule(official=clients, data=st.data())
    def delete_branch(self, official, data) -> None:
        name = self.branch(data)
        if name == "main":
            with pytest.raises((IcevirtError, icechunk.IcechunkError)):
                self.client(official).delete_branch(name)
        else:
            self.client(official).delete_branch(name)
            del self.model.branches[name]

    @rule(official=clients, data=st.data())
    def reset_branch(self, official, data) -> None:
        name, at = self.branch(data), self.any_version(data)
        other = self.any_version(data)
        if other != self.model.branches[name]:
            with pytest.raises((ConflictError, icechunk.IcechunkError)):
                self.client(official).reset_branch(name, at, from_snapshot_id=other)
        self.client(official).reset_branch(name, at)
        self.model.branches[name] = at

    @rule(official=clients, name=tag_names, data=st.data())
    def create_tag(self, official, name, data) -> None:
        at = self.any_version(data)
        if name in self.model.used_tags:
            with pytest.raises((AlreadyExistsError, icechunk.IcechunkError)):
                self.client(official).create_tag(name, at)
        else:
            self.client(official).create_tag(name, at)
            self.model.tags[name] = at
            self.model.used_tags.add(name)

    @precondition(lambda self: self.model.tags)
    @rule(official=clients, data=st.data())
    def delete_tag(self, official, data) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.tags)), "tag")
        self.client(official).delete_tag(name)
        del self.model.tags[name]

    @rule(official=clients, data=st.data())
    def expire(self, official, data) -> None:
        limit = self.model.versions[self.any_version(data)].written_at
        found = self.client(official).expire_snapshots(limit)
        assert found == self.model.expire(limit)

    @rule(official=clients)
    def collect_garbage(self, official) -> None:
        time.sleep(0.002)
        self.client(official).garbage_collect(datetime.now(UTC))
        for gone in self.model.collect():
            with pytest.raises(SnapshotNotFoundError):
                self.ours().lookup_snapshot(gone)

    @rule(data=st.data())
    def trim_ops_log(self, data) -> None:
        self.ours().trim_ops_log(self.model.versions[self.any_version(data)].written_at)
        ours, theirs = (self.client(official).ops_log() for official in (False, True))
        assert [output.updated_at for output in ours] == [output.updated_at for output in theirs]

    @rule(official=clients, data=st.data(), new=st.booleans())
    def rewrite_manifests(self, official, data, new) -> None:
        name = self.branch(data)
        tip = self.tip(name)
        if tip.parent is None or (tip.message == "g" and not new):
            return
        self.steps += 1
        message = f"rewritten {self.steps}"
        made = self.client(official).rewrite_manifests(
            message, branch=name, commit_method="new_commit" if new else "amend"
        )
        parent = self.model.branches[name] if new else tip.parent
        moved = tip.moved and not new
        made = self.record(made, parent, message, tip.contents, moved=moved)
        self.model.branches[name] = made

    @rule(official=clients, key=st.sampled_from(["a", "b"]), value=st.integers(0, 9))
    def update_metadata(self, official, key, value) -> None:
        self.client(official).update_metadata({key: value})
        self.model.metadata[key] = value

    @rule(official=clients, data=st.data())
    def begin_reading(self, official, data) -> None:
        """Open a session that others' steps must not change."""
        name = self.branch(data)
        if self.model.branches[name] != ROOT:
            session = self.client(official).readonly_session(name)
            self.open.append((session, self.tip(name).contents))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end_reading(self, data) -> None:
        session, contents = self.open.pop(data.draw(st.integers(0, 99)) % len(self.open))
        if session.snapshot_id in self.model.versions:  # else its files may be gone
            assert seen(session) == contents

    @rule()
    def reopen(self) -> None:
        self.repo = self.ours()

    # -- what always holds -------------------------------------------------------------------

    @precondition(lambda self: self.model.versions)
    @invariant()
    def refs_histories_and_values_agree(self) -> None:
        model = self.model
        for client in (self.client(official=False), self.client(official=True)):
            assert client.list_branches() == model.branches.keys()
            assert client.list_tags() == model.tags.keys()
            for name, tip in model.branches.items():
                history = [output.id for output in client.ancestry(branch=name)]
                assert history == model.history(tip)
                if tip != ROOT:
                    session = client.readonly_session(name)
                    assert seen(session) == model.versions[tip].contents
                    output = client.diff(from_snapshot_id=ROOT, to_branch=name).new_arrays
                    assert set(output) == {f"/{path}" for path in seen(session)}
            for name, at in model.tags.items():
                assert client.lookup_tag(name) == at
            assert client.get_metadata() == model.metadata


def examples(share: int):
    """Settings with a share of the usual number of examples: each is a whole history."""
    number = max(1, settings.default.max_examples // share)
    return settings(max_examples=number, stateful_step_count=20, deadline=None)


def test_on_local_disk():
    def machine():
        return RepositoryMachine(LocalPlace(path=tempfile.mkdtemp()))

    run_state_machine_as_test(machine, settings=examples(10))


def test_on_s3(s3):
    def machine():
        prefix = f"{s3.prefix}/{uuid.uuid4().hex}"
        return RepositoryMachine(S3Place(endpoint=s3.endpoint, prefix=prefix))

    run_state_machine_as_test(machine, settings=examples(12))
