"""What a snapshot says of its build may be anybody's: what cannot be used is a `FormatError`."""

from dataclasses import replace

import pytest

from icevirt.api.dataset.records import provenance_of
from icevirt.api.dataset.target import Target
from icevirt.errors import FormatError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.repo_info import SnapshotSummary
from icevirt.planning.records import METADATA
from icevirt.repo import layout
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.storage.memory import MemoryStorage
from icevirt.versioning.history.garbage_collection import expire
from icevirt.wire.repo_info import file

SOUND = {
    "build_id": "0123456789abcdef0123",
    "group": "/",
    "bad_files": [["file:///a.nc", "timeout", "it takes too long"]],
    "combine": {
        "data_vars": {"": ["all"]},
        "edits": {"attrs": [["/t", "units", '["K", null]']], "preprocess": "f"},
        "tolerance": {"x": 1e-6, "*": 0},
        "holes": "refuse",
    },
    "eras": 2,
    "files": 3,
    "kept": {"/": ["title"]},
    "limits": [600.0, 1 << 32],
}
UNUSABLE = {
    "kept": ([1], 5, "x", None, {"/": 5}, {"/": [[1]]}, {"/": "title"}),
    "files": ("x", [1], -1, 1.5, None, True),
    "eras": ("x", [1], -1),
    "limits": (5, [1], [1, 2, 3], ["1", "2"], None),
    "bad_files": (5, [1], [["a", "timeout"]], [[1, [2], 3]], ["abc"]),
    "combine": (
        *(5, [1], None, {"data_vars": 5}, {"data_vars": {"a": 5}}),
        *({"data_vars": {"": ["different"]}}, {"tolerance": 5}, {"tolerance": {"x": "1"}}),
        *({"edits": 5}, {"edits": {"attrs": 5}}, {"edits": {"attrs": [["/t", "units"]]}}),
        *({"edits": {"attrs": [["/t", "units", text]]}} for text in ("x", "[1]", "[" * 100_000)),
    ),
}


def output(**changes):
    return saying({**SOUND, **changes})


def saying(document):
    return SnapshotSummary(
        id=INITIAL_SNAPSHOT_ID,
        parent_id=None,
        flushed_at=0,
        message="",
        metadata={METADATA: document},
    )


@pytest.mark.parametrize(
    ("field", "value"), [(name, each) for name, values in UNUSABLE.items() for each in values]
)
def test_a_part_of_another_kind_is_named(field, value):
    with pytest.raises(FormatError, match=field):
        provenance_of(output(**{field: value}))
    assert provenance_of(output(**{field: value}), "/another/group") is None


def test_what_builds_write_is_returned():
    assert provenance_of(output()) == SOUND
    left_out = {name: SOUND[name] for name in ("build_id", "group")}
    assert provenance_of(saying(left_out)) == left_out


@pytest.mark.parametrize("document", [None, 5, [], {}, {"build_id": "../../x"}])
def test_what_is_no_build_counts_as_none(document):
    assert provenance_of(saying(document)) is None


def changed(storage, change):
    """Change what a repository says of its snapshots, which are in the order of their time."""
    info = file.decode(storage.get(layout.REPO))
    history = sorted(info.snapshots.values(), key=lambda output: output.flushed_at)
    snapshots = {each.id: each for each in change(history)}
    storage.put(layout.REPO, file.encode(info._replace(snapshots=snapshots)))


@pytest.fixture
def storage():
    held = MemoryStorage()
    repository = Repository.create(held)
    for _ in range(2):
        repository.writable_session("main").commit("nothing", allow_empty=True)
    return held


def test_a_build_into_the_group_refuses_it(storage):
    changed(
        storage,
        lambda history: [*history[:-1], replace(history[-1], metadata=output(kept=5).metadata)],
    )
    with pytest.raises(FormatError, match=f"{METADATA}.kept"):
        Target.look(storage, branch="main", group="/", mode="w").claim()


@pytest.mark.parametrize("to", [0, 1, 2])
def test_a_history_that_goes_round_in_a_circle_is_refused(storage, to):
    changed(
        storage,
        lambda history: [replace(history[0], parent_id=history[to].id), *history[1:]],
    )
    with pytest.raises(FormatError, match="cycle"):
        Target.look(storage, branch="main", group="/", mode="w").last_build()
    with pytest.raises(FormatError, match="cycle"):
        expire(RepoInfoFile(storage).read().info, 1 << 60)
