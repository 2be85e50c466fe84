"""The history of a repository: what stays of it, how it is drawn, and what may be done."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import FormatError, InvalidInputError, SessionStateError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import OpsLogEntry
from icevirt.model.updates import ConfigChanged
from icevirt.versioning import id_columns, repo_updates
from icevirt.versioning.history import garbage_collection as garbage
from icevirt.versioning.history import timestamps
from icevirt.versioning.history.ancestry_graph import graph, lanes
from icevirt.versioning.history.ops_log import backups_of, trim
from icevirt.versioning.repo_updates import flags_of, guard, refuse_disabled, set_flag
from unit.versioning.test_expiration import histories

some_ids = st.sets(st.binary(min_size=12, max_size=12), max_size=8).map(
    lambda found: [ObjectId12(each) for each in sorted(found)]
)


@settings(max_examples=30)
@given(info=histories(), older_than=st.integers(0, 60))
def test_snapshots_stay_that_names_or_young_ones_lead_to(info, older_than):
    kept = garbage.sweep(info, older_than).snapshots
    wanted = {key for key, each in info.snapshots.items() if each.flushed_at >= older_than}
    wanted |= {*info.branches.values(), *info.tags.values()}
    more = True
    while more:
        parents = {info.snapshots[key].parent_id for key in wanted} - {None}
        more = not parents <= wanted
        wanted |= parents
    assert kept.keys() == wanted
    assert garbage.find_needed_logs(kept) >= kept.keys()


@pytest.mark.parametrize(
    ("modified", "cut", "old"),
    [(5_000_001, 5_000_002, True), (5_000_000, 5_000_001, False), (5_000_000, 6_000_001, True),
     (5_000_001, 5_000_001, False)],
)  # fmt: skip
def test_a_time_in_whole_seconds_may_be_a_second_later(modified, cut, old):
    assert timestamps.is_old(modified, cut) is old


@given(some_ids, some_ids, some_ids)
def test_columns_of_ids_are_sets(one, other, more):
    found = garbage.Candidates.of({*one, *more})
    left = found.without(id_columns.column(other))
    assert [id_columns.id_at(left.key, at) for at in range(len(left))] == sorted(
        each for each in {*one, *more} if each not in other
    )
    assert left.among(one) == [each for each in one if each not in other]


@given(st.lists(some_ids.map(lambda found: [str(each) for each in found]) | st.lists(st.text())))
def test_names_of_ids_are_read_as_one_by_one(found):
    names = [name for each in found for name in each]
    ids, there = id_columns.of_names(names)
    wanted = []
    for name in names:
        try:
            parsed = ObjectId12.parse(name)
        except ValueError:
            parsed = None
        wanted.append(parsed if str(parsed) == name else None)
    assert there.tolist() == [each is not None for each in wanted]
    assert [id_columns.id_at(ids, at) for at in range(len(ids))] == [w for w in wanted if w]


# -- the ops log ----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 10))
def test_a_trimmed_log_keeps_its_newest_entry_and_all_young_ones(times, older_than):
    ordered = sorted(times, reverse=True)
    entries = tuple(
        OpsLogEntry(kind=ConfigChanged(), updated_at=at, backup_path=f"b{n}" if n else None)
        for n, at in enumerate(ordered)
    )
    info = repo_updates.initialize(0)._replace(latest_updates=entries, repo_before_updates="older")
    found = trim(info, older_than)
    if min(times) >= older_than:
        assert found is None  # it ends in a backup
        assert [*backups_of(info)] == [*(f"b{n}" for n in range(1, len(times))), "older"]
        return
    young = [at for at in ordered if at >= older_than]
    assert [each.updated_at for each in found.latest_updates] == (young or ordered[:1])
    assert [*backups_of(found)] == [f"b{n}" for n in range(1, max(1, len(young)))]


# -- the graph ------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(info=histories())
def test_every_snapshot_of_a_branch_is_drawn_once_below_its_children(info):
    made = graph(info, lanes(info.branches), plain=True)
    drawn = [each.id for each in made.commits]
    wanted, rows = set(), {each: row for row, each in enumerate(drawn)}
    for tip in info.branches.values():
        at = tip
        while at is not None:
            wanted.add(str(at))
            parent = info.snapshots[at].parent_id
            if parent is not None:
                assert rows[str(at)] < rows[str(parent)]
            at = parent
    assert sorted(drawn) == sorted(wanted)
    assert next(iter(lanes(info.branches))) == "main"
    text = str(made)
    assert text.count("●") == len(drawn)
    joined = sum(len(each.joins) for each in made.commits)
    assert text.count("╯") == joined
    svg = made._repr_svg_()
    assert svg.count("<circle") == len(drawn)
    for commit in made.commits:
        assert set(commit.branches) == {
            n for n, key in info.branches.items() if str(key) == commit.id
        }


def test_colors_are_of_lanes_and_long_messages_are_cut():
    info = repo_updates.initialize(0)
    (key,) = info.snapshots
    summary = replace(info.snapshots[key], message="m" * 99 + "\nmore")
    info = info._replace(snapshots={key: summary})
    (commit,) = graph(info, info.branches, plain=False).commits
    assert commit.message == "m" * 57 + "..."
    assert "\x1b[38;2;183;228;0m●" in str(graph(info, info.branches, plain=False))
    assert "\x1b" not in str(graph(info, info.branches, plain=True))


def test_a_circle_of_parents_is_damage():
    info = repo_updates.initialize(0)
    (key,) = info.snapshots
    info = info._replace(snapshots={key: replace(info.snapshots[key], parent_id=key)})
    with pytest.raises(FormatError, match="contains a cycle"):
        graph(info, info.branches, plain=True)


# -- features -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["move_node", "create_tag"]), st.none() | st.booleans())))
def test_the_last_setting_of_a_feature_counts(settings_):
    info = repo_updates.initialize(0)._replace(disabled_feature_flags=(99,))
    for name, setting in settings_:
        info, update = set_flag(name, setting)(info)
        assert update.setting is setting if hasattr(update, "setting") else update
    found = {each.name: each for each in flags_of(info)}
    for name in ("move_node", "create_tag"):
        last = next((s for n, s in reversed(settings_) if n == name), None)
        assert (found[name].setting, found[name].enabled) == (last, last is not False)
        if last is False:
            with pytest.raises(SessionStateError, match=f"{name} is disabled"):
                refuse_disabled(info, name)
            with pytest.raises(SessionStateError):
                guard(name, lambda info: None)(info)
        else:
            assert guard(name, lambda info: None)(info) is None
    assert 99 in info.disabled_feature_flags  # of a newer client
    assert np.all([not {*(info.enabled_feature_flags or ())} & {*info.disabled_feature_flags}])


def test_an_unknown_feature_is_refused():
    with pytest.raises(InvalidInputError, match="unknown feature"):
        set_flag("fly", True)
