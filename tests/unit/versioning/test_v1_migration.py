"""The history of a V1 repository becomes the ops log of V2, and what V1 clients do later is carried over."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import ConflictError, FormatError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.updates import (
    BranchCreated,
    BranchDeleted,
    ConfigChanged,
    NewCommit,
    RepoInitialized,
    RepoMigrated,
    TagCreated,
    TagDeleted,
)
from icevirt.versioning import repo_updates
from icevirt.versioning.v1_migration import V1State, carry, migrate, refuse_incomplete
from unit.versioning.test_expiration import histories

ROOT = INITIAL_SNAPSHOT_ID


def key(number):
    return ObjectId12(bytes([number]) * 12)


def chain(*numbers, onto=ROOT, at=0):
    """Return commits that follow one another."""
    found, parent = {}, onto
    for number in numbers:
        found[key(number)] = SnapshotSummary(
            id=key(number), parent_id=parent, flushed_at=at + number * 10_000, message=str(number)
        )
        parent = key(number)
    return found


def state(snapshots, *, main, config=None, deleted=None, **branches):
    root = repo_updates.initialize(0).snapshots
    tags = branches.pop("tags", {})
    return V1State(
        branches={"main": main, **branches},
        tags=tags,
        deleted_tags=deleted or {},
        snapshots={**root, **snapshots},
        config=config,
    )


def kinds(info):
    return [each.kind for each in reversed(info.latest_updates)]


@settings(max_examples=30)
@given(histories())
def test_the_repo_info_says_what_v1_said(info):
    """And the ops log has each commit once, in the order of time, after its parent's."""
    reached, tips = set(), {*info.branches.values(), *info.tags.values()}
    while tips:
        reached |= tips
        tips = {info.snapshots[each].parent_id for each in tips} - reached - {None}
    snapshots = {each: info.snapshots[each] for each in reached | {ROOT}}
    given_ = V1State(branches=info.branches, tags=info.tags, deleted_tags={"gone": None},
                     snapshots=snapshots, config=None)  # fmt: skip
    refuse_incomplete(given_)
    made = migrate(given_, 10**9)
    assert (made.branches, made.tags, made.snapshots) == (info.branches, info.tags, snapshots)
    assert made.deleted_tags == {"gone"}
    updates = kinds(made)
    assert updates[0] == RepoInitialized()
    assert updates[-1] == RepoMigrated(1, 2)
    commits = [each.new_snap_id for each in updates if isinstance(each, NewCommit)]
    assert len(set(commits)) == len(commits)
    for at, each in enumerate(commits):
        assert snapshots[each].parent_id in {ROOT, *commits[:at]}
    times = [each.updated_at for each in made.latest_updates]
    assert times == sorted(set(times), reverse=True)
    assert {each.name for each in updates if isinstance(each, BranchCreated)} == {
        *info.branches
    } - {"main"}


def test_a_deleted_tag_was_created_first():
    made = migrate(state(chain(1), main=key(1), deleted={"t": key(1)}), 10**9)
    updates = [each for each in kinds(made) if isinstance(each, TagCreated | TagDeleted)]
    assert updates == [TagCreated("t"), TagDeleted("t", key(1))]


@pytest.mark.parametrize(
    ("held", "who"),
    [
        (state({}, main=key(1)), "branch 'main'"),
        (state({}, main=ROOT, tags={"t": key(1)}), "tag 't'"),
        (state({k: v for k, v in chain(1, 2).items() if k != key(1)}, main=key(2)), "snapshot"),
    ],
)
def test_a_snapshot_that_is_missing_is_named(held, who):
    with pytest.raises(FormatError, match="missing from the V1 repository") as caught:
        refuse_incomplete(held)
    assert caught.value.facts["referred_to_by"].startswith(who)


# -- carrying over --------------------------------------------------------------------------------

BEFORE = state(chain(1), main=key(1))
INFO = migrate(BEFORE, 10**9)


def carried(info, now, past=None):
    """Return the repo info after the changes of V1 clients are carried over."""
    found = carry(info, kinds(info) if past is None else past, now)
    for edit in found.edits:
        info, _ = edit(info)
    return info, found


def test_nothing_new_is_nothing_to_do():
    assert carry(INFO, kinds(INFO), BEFORE).edits == ()


@given(st.integers(1, 4))
def test_later_commits_follow_on_their_branch(count):
    numbers = range(2, 2 + count)
    now = state({**chain(1), **chain(*numbers, onto=key(1))}, main=key(1 + count))
    info, found = carried(INFO, now)
    assert info.branches["main"] == key(1 + count)
    assert info.snapshots.keys() == now.snapshots.keys()
    assert (found.commits, found.aside) == (count, {})
    assert carry(info, kinds(INFO), now).edits == ()


def test_commits_that_v2_came_before_get_a_branch_of_their_own():
    info, _ = repo_updates.commit("main", chain(7, onto=key(1))[key(7)])(INFO)
    now = state({**chain(1), **chain(2, onto=key(1))}, main=key(2))
    info, found = carried(info, now)
    assert info.branches["main"] == key(7)
    assert found.aside == {"main": f"main-v1-{key(2)}"}
    assert info.branches[found.aside["main"]] == key(2)


def test_branches_that_v2_deleted_do_not_come_back():
    old = state(chain(1), main=key(1), dev=key(1))
    info = INFO._replace(branches={"main": key(1)})
    assert "dev" in carried(info, old)[0].branches
    past = [*kinds(INFO), BranchDeleted("dev", key(1))]
    assert "dev" not in carried(info, old, past)[0].branches


def test_tags_are_carried_with_the_snapshots_that_they_name():
    more = {**chain(1), **chain(2, onto=key(1))}
    info, found = carried(INFO, state(more, main=key(1), tags={"t": key(2)}))
    assert info.tags == {"t": key(2)}
    assert (key(2) in info.snapshots, found.commits) == (True, 1)
    gone, _ = carried(info, state(more, main=key(1), deleted={"t": key(2)}))
    assert "t" not in gone.tags
    assert "t" in gone.deleted_tags
    again, _ = carried(gone, state(more, main=key(1), tags={"t": key(2)}))
    assert "t" not in again.tags  # the name stays taken


def test_a_commit_on_an_expired_snapshot_cannot_be_carried():
    info = INFO._replace(
        branches={"main": ROOT}, snapshots=dict.fromkeys([ROOT], INFO.snapshots[ROOT])
    )
    now = state({**chain(1), **chain(2, onto=key(1))}, main=key(2))
    with pytest.raises(ConflictError, match="expired since the upgrade"):
        carry(info, [*kinds(INFO), NewCommit("main", key(1))], now)


def test_the_configuration_is_carried_unless_v2_has_set_one():
    now = state(chain(1), main=key(1), config={"inline_chunk_threshold_bytes": 7})
    info, _ = carried(INFO, now)
    assert info.config["inline_chunk_threshold_bytes"] == 7
    assert carry(INFO, [*kinds(INFO), ConfigChanged()], now).edits == ()
    assert carry(INFO, [], now).edits == ()  # a trimmed log cannot say
