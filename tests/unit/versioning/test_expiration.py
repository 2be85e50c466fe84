"""Expiry shortens a history, and no survivor forgets a transaction log of its past."""

from hypothesis import given
from hypothesis import strategies as st

from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.repo_info import SnapshotSummary
from icevirt.versioning import repo_updates
from icevirt.versioning.history.garbage_collection import expire


@st.composite
def histories(draw):
    """A repository of up to twelve commits, each later than its parent, with branches and tags."""
    info = repo_updates.initialize(0)
    keys = [INITIAL_SNAPSHOT_ID]
    snapshots = dict(info.snapshots)
    for number in range(draw(st.integers(0, 12))):
        key, parent = ObjectId12(bytes([65 + number]) * 12), draw(st.sampled_from(keys))
        at = snapshots[parent].flushed_at + draw(st.integers(1, 10))
        snapshots[key] = SnapshotSummary(id=key, parent_id=parent, flushed_at=at, message="m")
        keys.append(key)
    branches = draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from(keys)))
    tags = draw(st.dictionaries(st.sampled_from("xyz"), st.sampled_from(keys)))
    main = {"main": draw(st.sampled_from(keys))}
    return info._replace(snapshots=snapshots, branches=branches | main, tags=tags)


def logs(info, key):
    """Return whose transaction logs lead from the root to a snapshot, the last first."""
    found, output = [], info.snapshots[key]
    while output.parent_id is not None:
        found += [output.id, *reversed(output.pruned_ancestor_tx_logs or ())]
        output = info.snapshots[output.parent_id]
    return found


DELETIONS = st.fixed_dictionaries({"delete_branches": st.booleans(), "delete_tags": st.booleans()})


@given(info=histories(), older_than=st.integers(0, 60), deletions=DELETIONS)
def test_what_survives_keeps_its_past(info, older_than, deletions):
    left, released = expire(info, older_than, **deletions)
    assert left.snapshots.keys() == info.snapshots.keys() - released
    for key, output in left.snapshots.items():
        assert output.parent_id is None or output.parent_id in left.snapshots
        assert logs(left, key) == logs(info, key)


@given(info=histories(), older_than=st.integers(0, 60), deletions=DELETIONS)
def test_what_is_old_goes_unless_a_name_that_stays_leads_to_it(info, older_than, deletions):
    left, released = expire(info, older_than, **deletions)
    tips = {*left.branches.values(), *left.tags.values()}
    old = {key for key, output in info.snapshots.items() if output.flushed_at < older_than}
    assert released == old - tips - {INITIAL_SNAPSHOT_ID}
    for before, after, deletes in (
        (info.branches, left.branches, deletions["delete_branches"]),
        (info.tags, left.tags, deletions["delete_tags"]),
    ):
        gone = {name for name, key in before.items() if deletes and key in old}
        stays = {name for name, key in before.items() if key == INITIAL_SNAPSHOT_ID} | {"main"}
        assert after == {k: v for k, v in before.items() if k not in gone - stays}
    assert left.deleted_tags == info.tags.keys() - left.tags.keys()


@given(first=histories(), times=st.lists(st.integers(0, 60), min_size=2, max_size=4))
def test_expiring_step_by_step_is_expiring_at_once(first, times):
    """The order of runs makes no difference: only the latest time counts."""
    info = first
    for older_than in times:
        info = expire(info, older_than)[0]
    assert info == expire(first, max(times))[0]
    assert expire(info, max(times))[1] == frozenset()
