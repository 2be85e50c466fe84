"""Entries of the ops log as columns, against lists of entries."""

import pickle
from typing import get_args, get_origin

from hypothesis import given
from hypothesis import strategies as st

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import OpsLog, OpsLogEntry, RepoAvailability, StatusRecord
from icevirt.model.updates import (
    UPDATE_KINDS,
    AnyUpdate,
    BranchReset,
    CommitAmended,
    GCRan,
    NewCommit,
    RepoStatusChanged,
)

ids = st.integers(0, 3).map(lambda n: ObjectId12(bytes([n] * 12)))
names = st.sampled_from(["main", "é", ""])
status = st.builds(
    StatusRecord, availability=st.sampled_from(RepoAvailability), set_at=st.integers(0, 3)
)
kinds = st.one_of(
    st.builds(NewCommit, names, ids),
    st.builds(CommitAmended, names, ids, ids),
    st.builds(BranchReset, names, ids),
    st.builds(RepoStatusChanged, status),
    st.just(GCRan()),
)
backups = st.none() | st.sampled_from(["repo.1", "repo.22"])
entry = st.builds(
    OpsLogEntry, kind=kinds, updated_at=st.integers(0, 2**64 - 1), backup_path=backups
)
entries = st.lists(entry)


@given(entries)
def test_columns_hold_the_entries_they_were_made_of(listed):
    log = OpsLog.of(listed)
    assert list(log) == listed
    assert log == tuple(listed)
    assert pickle.loads(pickle.dumps(log)) == listed
    assert [log[at] for at in range(-len(listed), 0)] == listed


@given(entries, entries, st.slices(8))
def test_columns_are_joined_and_cut_as_lists_are(one, other, part):
    both = OpsLog.of(one) + OpsLog.of(other)
    assert list(both) == one + other
    assert list(both[part]) == (one + other)[part]
    assert len(both[part].kinds) <= len(both[part])


@given(entries, entry)
def test_an_entry_on_top_gives_a_backup_to_the_one_below(listed, newest):
    log = OpsLog.of(listed).with_newest(newest, backup="repo.333")
    below = [each._replace(backup_path="repo.333") for each in listed[:1]] + listed[1:]
    assert list(log) == [newest, *below]


def test_kinds_are_the_members_of_their_union():
    members = get_args(AnyUpdate.__value__)
    assert tuple(get_origin(each) or each for each in members) == UPDATE_KINDS
