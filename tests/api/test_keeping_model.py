"""Builds and other people's commits in any order: nothing acknowledged disappears in silence.

The model is what others committed: a node, that there is none, or an attribute of a group. After a
build each of it is there, or the build was allowed to change things and its report names it; after
a refused build the branch is where it was.
"""

import json
import os

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from icechunk.xarray import to_icechunk

import icevirt
from builds.support import official, write_days
from icevirt import errors
from icevirt.model.snapshot import GroupNode

EXAMPLES = int(os.environ.get("ICEVIRT_KEEPING_EXAMPLES", "4"))
GONE = object()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_days(tmp_path_factory.mktemp("archive"), 4)


class World:
    """A repository, and what others committed to it since the build that could know it."""

    def __init__(self, archive, repo):
        self.archive, self.repo, self.count = archive, repo, 0
        self.facts = {}  # (path, attribute or None) -> what was committed
        self.built = {}  # group -> its nodes, as its own last build left them

    def nodes(self):
        held = icevirt.Repository.open(self.repo)
        return {node.path: node for node in held.readonly_session("main").snapshot.nodes}

    def tip(self):
        return icevirt.Repository.open(self.repo).lookup_branch("main")

    def build(self, group, first, last, allow):
        exists = icevirt.Repository.exists(self.repo)
        before = self.tip() if exists else None
        try:
            report = icevirt.build(
                self.archive[first:last],
                self.repo,
                concat_dim="time",
                group=group,
                mode="w",
                commit_options={"allow_changes": allow},
            )
        except errors.PlanChangedError as error:
            note(str(error))
            assert not allow
            assert self.tip() == before
            return
        output = "\n".join(report.findings)
        after = self.nodes()
        for key, was in {**self.facts}.items():
            if state(after, *key) != was:
                assert allow, key
                assert key[0] in output, (key, output)
                del self.facts[key]
        for other, nodes in {**self.built}.items():
            for path, node in {**nodes}.items():
                if other != group and after.get(path) != node:
                    assert allow, path
                    assert path in output
                    del nodes[path]
        self.built[group] = {
            path: node
            for path, node in after.items()
            if path.startswith(f"{group.rstrip('/')}/")
            and (path, None) not in self.facts
            and isinstance(node, icevirt.model.snapshot.ArrayNode)
            and not any(path in nodes for other, nodes in self.built.items() if other != group)
        }

    def commit(self, act):
        """Commit something by the official client and remember what it did."""
        if not icevirt.Repository.exists(self.repo):
            return
        before = self.nodes()
        session = official(self.repo).writable_session("main")
        try:
            act(zarr.open_group(session.store), session)
        except (KeyError, ValueError):
            return  # nothing there to do it to
        if not session.has_uncommitted_changes:
            return
        self.count += 1
        session.commit(f"{act.__name__} {self.count}")
        after = self.nodes()
        for path in before.keys() | after.keys():
            for key in aspects(path, before, after):
                if state(before, *key) != state(after, *key):
                    self.facts[key] = state(after, *key)
                    for nodes in self.built.values():
                        nodes.pop(path, None)


def aspects(path, *states):
    """Yield what of a node is remembered: of groups each attribute, of arrays all of it."""
    found = [each[path] for each in states if path in each]
    if not all(isinstance(node, GroupNode) for node in found):
        yield path, None
        return
    for node in found:
        for name in json.loads(node.user_data).get("attributes") or {}:
            yield path, name


def state(nodes, path, name):
    node = nodes.get(path)
    if node is None:
        return GONE
    if name is None:
        return node
    return (json.loads(node.user_data).get("attributes") or {}).get(name, GONE)


def append(root, session):
    if "time" not in root:
        raise KeyError
    with xr.open_zarr(session.store, consolidated=False, chunks=None) as held:
        last = held[["time", "time_bnds"]].isel(time=[-1]).load().drop_vars("x", errors="ignore")
    last = last.assign_coords(time=last.time + np.timedelta64(6, "h"))
    for name in last.variables:
        last[name].encoding.clear()
    to_icechunk(last, session, append_dim="time")


def derive_in_space(root, session):
    root.create_array("area", data=np.ones((5, 6)), dimension_names=("y", "x"))


def derive_in_time(root, session):
    steps = root["time"].shape[0]
    root.create_array("anomaly", data=np.arange(float(steps)), dimension_names=("time",))


def copy_natively(root, session):
    root.create_array("native/packed", data=root["mask"][...], dimension_names=("y", "x"))


def edit(root, session):
    root["packed"].attrs["comment"] = f"edit {root['packed'].attrs.get('comment', '')}"[:40]


def label(root, session):
    root.attrs["institution"] = root.attrs.get("institution", "") + "!"


def write(root, session):
    root["mask"][0, 0] = 1 - root["mask"][0, 0]


def delete(root, session):
    del root["mask"]


def delete_below(root, session):
    del root["b/mask"]


ACTS = [
    append, derive_in_space, derive_in_time, copy_natively, edit, label, write, delete, delete_below
]  # fmt: skip
BUILDS = st.tuples(
    st.sampled_from(["/", "/", "/b"]),
    st.sampled_from([(0, 2), (0, 3), (1, 3), (0, 4)]),
    st.sampled_from([False, False, True]),
)


@pytest.mark.ci
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.one_of(BUILDS, st.sampled_from(ACTS)), min_size=4, max_size=10))
def test_nothing_that_was_acknowledged_disappears_in_silence(
    steps, archive, tmp_path_factory, in_process
):
    world = World(archive, str(tmp_path_factory.mktemp("world") / "repo"))
    world.build("/", 0, 2, False)
    for step in steps:
        note(str(step))
        if isinstance(step, tuple):
            group, (first, last), allow = step
            world.build(group, first, last, allow)
        else:
            world.commit(step)
    commits = [each.message for each in official(world.repo).ancestry(branch="main")]
    assert sum(not message.startswith(("Build", "Repository")) for message in commits) == (
        world.count
    )
