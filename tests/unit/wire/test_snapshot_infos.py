"""The snapshots of a repo info: columns that behave like a dictionary of values."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import (
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
    minus,
    plus,
)
from icevirt.wire import flexbuffers
from icevirt.wire.repo_info import file, snapshots
from unit.wire.wire_values import ids12, repo_infos
from unit.wire.wire_values import snapshot_infos as drawn_infos

ROOT, CHILD = (ObjectId12(bytes([n]) * 12) for n in (7, 3))


def reread(value):
    return file.decode(file.encode(value))


def repo_of(*infos):
    return RepoInfo(
        branches={"main": infos[0].id},
        tags={},
        snapshots={info.id: info for info in infos},
        status=StatusRecord(availability=RepoAvailability.online, set_at=1),
        latest_updates=(),
    )


def an_info(key, parent=None, **more):
    return SnapshotSummary(id=key, parent_id=parent, flushed_at=1, message="m", **more)


@pytest.mark.ci
@given(repo_infos(), st.sampled_from([1, 64]), st.data())
@settings(max_examples=30)
def test_what_is_changed_is_written_as_if_it_had_been_read(value, many, data):
    """However often the changes on top are folded into the columns."""
    lazy, plain = reread(value).snapshots, dict(value.snapshots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "_MANY_CHANGES", many)
        for _ in range(data.draw(st.integers(0, 4))):
            key = data.draw(st.sampled_from(list(plain)) | ids12)
            info = data.draw(drawn_infos(key, list(plain)))
            lazy, plain = plus(lazy, key, info), plus(plain, key, info)
    assert dict(lazy) == plain
    assert len(lazy) == len(plain)
    ours, theirs = (value._replace(snapshots=each) for each in (lazy, plain))
    assert file.encode(ours) == file.encode(theirs)
    assert reread(ours).snapshots == plain


@pytest.mark.ci
@given(repo_infos(), st.data())
@settings(max_examples=30)
def test_snapshots_added_one_by_one_are_written_as_if_all_were_encoded_anew(value, data):
    """Each record is put among the bytes of the records before."""
    info, plain = reread(value), dict(value.snapshots)
    for _ in range(data.draw(st.integers(1, 5))):
        file.encode(info)
        key = data.draw(ids12)
        plain[key] = data.draw(drawn_infos(key, list(plain)))
        info = info._replace(snapshots=plus(info.snapshots, key, plain[key]))
        info = file.fold(info)
        assert dict(info.snapshots) == plain
        assert len(info.snapshots) == len(plain)
        assert file.encode(info) == file.encode(info._replace(snapshots=plain))


@given(repo_infos())
def test_snapshots_in_any_order_are_found_and_written_in_the_order_of_ids(value):
    columns = snapshots.infos_of(value.snapshots).prepare_records()[0].columns
    found = snapshots.RowIndex(columns.take(np.arange(len(columns))[::-1]))
    assert found.is_sorted == (len(columns) == 1)
    backwards = snapshots.SnapshotInfos(found, 2)
    assert dict(backwards) == value.snapshots
    assert file.encode(value._replace(snapshots=backwards)) == file.encode(value)


@given(repo_infos(), st.data())
def test_what_is_taken_away_is_not_there(value, data):
    lazy = reread(value).snapshots
    gone = data.draw(st.sampled_from(list(value.snapshots)))
    left = minus(lazy, gone)
    assert gone in lazy
    assert gone not in left
    assert dict(left) == {key: output for key, output in value.snapshots.items() if key != gone}
    assert len(left) == len(lazy) - 1


@given(repo_infos())
def test_pickles_are_equal(value):
    lazy = reread(value).snapshots
    assert pickle.loads(pickle.dumps(lazy)) == lazy


@pytest.mark.parametrize("changed", [None, an_info(ROOT)], ids=["taken away", "replaced"])
def test_a_child_keeps_its_parent_or_is_refused(changed):
    read = reread(repo_of(an_info(CHILD, ROOT), an_info(ROOT)))
    edited = read.snapshots.with_changed(ROOT, changed)
    if changed is None:
        with pytest.raises(InvalidInputError, match="parent"):
            file.encode(read._replace(snapshots=edited))
    else:
        found = reread(read._replace(snapshots=edited)).snapshots
        assert found[CHILD].parent_id == ROOT


def test_damaged_metadata_is_reported_when_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(flexbuffers, "dumps", lambda value: b"\xff" * 9)
    raw = file.encode(repo_of(an_info(ROOT, metadata={"a": 1})))
    found = file.decode(raw)
    with pytest.raises(FormatError, match="metadata"):
        found.snapshots[ROOT]


def test_no_snapshot_is_listed_twice_whatever_changed():
    read = reread(repo_of(an_info(ROOT))).snapshots
    assert list(read.with_changed(ROOT, an_info(ROOT, metadata={"n": 1}))) == [ROOT]
