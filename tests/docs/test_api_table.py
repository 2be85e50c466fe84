"""The table of icechunk's names is true: made of the installed wheel and of this icevirt."""

import importlib
import sys
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

import icevirt
import icevirt.icechunk

PAGE = "api-table.md"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator():
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("make_api_table")
    sys.path.remove(str(DOCS))


def test_every_difference_has_a_reason_and_every_reason_a_difference(generator):
    assert [generator.compare(page).problems() for page in generator.PAGES] == [[], []]


def test_the_pages_are_what_the_generator_writes(generator):
    """If not: `python docs/make_api_table.py`."""
    for page in generator.PAGES:
        assert (DOCS / page).read_text() == generator.whole(page)


def test_every_public_name_of_the_wheel_is_on_the_page(generator):
    rows = {row.name for row in generator.compare(PAGE).rows}
    assert set(icechunk.__all__) - rows == {"__version__"}
    for name in ("Repository", "RepositoryConfig", "GCSummary", "Diff"):
        public = [a for a in dir(getattr(icechunk, name)) if not a.startswith("_")]
        assert [a for a in public if f"{name}.{a}" not in rows] == []


CHANGES = {
    "a name that icechunk adds": (icechunk, "brand_new", lambda: None, "brand_new is absent"),
    "a method that icechunk adds": (
        icechunk.Repository,
        "brand_new",
        lambda self: None,
        "Repository.brand_new is absent",
    ),
    "a parameter that icechunk adds": (
        icechunk.Repository,
        "create_tag",
        lambda self, tag, snapshot_id, force: None,
        "Repository.create_tag differs in force",
    ),
    "a parameter that icevirt needs": (
        icevirt.Repository,
        "lookup_tag",
        lambda self, tag, more: None,
        "Repository.lookup_tag differs in +more",
    ),
    "a parameter that icevirt calls otherwise": (
        icevirt.Session,
        "move",
        lambda self, a, to_path: None,
        "Session.move differs in from_path, +a",
    ),
    "another default": (
        icevirt.Session,
        "commit",
        lambda self, message, metadata=None, *, rebase_with=None, rebase_tries=9, allow_empty=0: 0,
        "Session.commit differs in rebase_tries=, allow_empty=",
    ),
    "a method that icevirt loses": (
        icevirt.IcevirtStore,
        "array_chunk_iterator",
        None,
        "IcechunkStore.array_chunk_iterator is absent",
    ),
}


@pytest.mark.parametrize(("where", "name", "value", "output"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_noticed(generator, monkeypatch, where, name, value, output):
    monkeypatch.setattr(where, name, value, raising=False)
    assert f"no reason in api_reasons.py: {output}" in generator.compare(PAGE).problems()


def test_a_reason_for_nothing_is_noticed(generator, monkeypatch):
    monkeypatch.setitem(generator.api_reasons.ABSENT, "gone_long_ago", "because")
    (problem,) = generator.compare(PAGE).problems()
    assert "gone_long_ago" in problem


def program(ice, path):
    """A program as users write them, for either module."""
    repo = ice.Repository.create(
        ice.local_filesystem_storage(path),
        ice.RepositoryConfig(
            inline_chunk_threshold_bytes=8, compression=ice.CompressionConfig(level=1)
        ),
    )
    repo.set_default_commit_metadata({"by": "a test"})
    with repo.transaction("main", message="first") as store:
        root = zarr.group(store)
        root.create_array("g/a", shape=(8, 8), chunks=(4, 4), dtype="i4", fill_value=0)[:] = 1
    first = repo.lookup_branch("main")
    repo.create_tag("v1", first)
    repo.create_branch("dev", snapshot_id=first)
    sessions = [repo.writable_session("main") for _ in range(2)]
    for number, session in enumerate(sessions):
        zarr.open_group(session.store)["g/a"][4 * number, 0] = 7
        session.commit(f"n{number}", rebase_with=ice.ConflictDetector())
    late = repo.writable_session("main")
    zarr.open_group(late.store)["g/a"][0, 0] = 9
    early = repo.writable_session("main")
    zarr.open_group(early.store)["g/a"][1, 1] = 8
    early.commit("early")
    output = {}
    try:
        late.commit("late")
    except ice.ConflictError as error:
        output["conflict"] = error.expected_parent == sessions[1].snapshot_id
    try:
        late.rebase(ice.ConflictDetector())
    except ice.RebaseFailedError as error:
        output["rebase"] = [
            (c.conflict_type == ice.ConflictType.ChunkDoubleUpdate, c.path) for c in error.conflicts
        ]
    late.rebase(ice.BasicConflictSolver(on_chunk_conflict=ice.VersionSelection.UseOurs))
    late.commit("late", metadata={"more": 1})
    session = repo.rearrange_session("main")
    session.move("/g/a", "/b")
    session.commit("moved")
    session = repo.writable_session("dev")
    fork = session.fork()
    zarr.open_group(fork.store)["g/a"][7, 7] = 5
    session.merge(fork)
    session.commit("forked")
    for call, error in (
        (lambda: repo.lookup_tag("nope"), ice.RefNotFoundError),
        (lambda: repo.create_tag("v1", first), ice.AlreadyExistsError),
        (lambda: repo.readonly_session("main").commit("x"), ice.IcechunkError),
        (
            lambda: repo.readonly_session(snapshot_id="1CECHNKREP0F1RSTCMTG"),
            ice.SnapshotNotFoundError,
        ),
    ):
        with pytest.raises(error):
            call()
    repo.delete_tag("v1")
    diff = repo.diff(from_snapshot_id=first, to_branch="main")
    read = repo.readonly_session("main")
    cleared = repo.writable_session("dev")
    cleared.store.sync_clear()
    output["cleared"] = sorted(cleared.status().deleted_arrays)
    return {
        **output,
        "messages": [s.message for s in repo.ancestry(branch="main")],
        "metadata": [
            {k: v for k, v in s.metadata.items() if k != "__icechunk"}
            for s in repo.ancestry(branch="main")
        ],
        "ops": [
            (type(u.kind).__name__, getattr(u.kind, "branch", getattr(u.kind, "name", None)))
            for u in repo.ops_log()
        ],
        "branches": repo.list_branches(),
        "tags": repo.list_tags(),
        "diff": (diff.is_empty(), set(diff.updated_arrays), list(diff.moved_nodes)),
        "chunks": sorted(map(tuple, np.asarray(diff.updated_chunks["/b"]).tolist())),
        "values": zarr.open_array(read.store, path="b")[:].tolist(),
        "dev": zarr.open_group(repo.readonly_session("dev").store, mode="r")["g/a"][7].tolist(),
        "kind": read.chunk_type("/b", [0, 0]) == ice.ChunkType.native,
        "mode": read.mode == ice.SessionMode.readonly,
        "sizes": repo.chunk_storage_stats().native_bytes > 0,
        "manifests": len(repo.list_manifest_files(read.snapshot_id)),
        "nodes": [node["path"] for node in repo.inspect_snapshot(read.snapshot_id)["nodes"]],
        "flags": sorted((flag.name, flag.enabled) for flag in repo.feature_flags()),
        "spec": int(repo.spec_version),
        "config": ice.Repository.fetch_config(ice.local_filesystem_storage(path)).compression.level,
    }


def test_one_program_says_the_same_under_either_module(tmp_path):
    icechunk.set_logs_filter("error")
    theirs = program(icechunk, str(tmp_path / "theirs"))
    assert program(icevirt.icechunk, str(tmp_path / "ours")) == theirs
    assert theirs["conflict"]
