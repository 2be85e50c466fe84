"""A build replaces what the last one made; what others made stays, or is listed as lost."""

import itertools

import pytest

from icevirt.errors import ConflictError, InvalidInputError
from icevirt.model.snapshot import document_of
from icevirt.versioning.merge.build_merge import BuiltArray, graft_build, refuse_touched
from icevirt.versioning.merge.kept_nodes import (
    Claim,
    coordinates_of,
    find_moved_manifests,
    losses,
    settle_base,
)
from unit.versioning.states import array, group, key, manifest, snapshot, zarr_json

G, T, TIME = group(1, "/g"), array(2, "/g/t", 4), array(3, "/g/time", 4)
MADE = {node.path: node for node in (G, T, TIME)}
GROUPS = {"/g": group(1, "/g").user_data}
ARRAYS = {"/g/t": zarr_json((6,)), "/g/time": zarr_json((6,))}


def claim(**more):
    return Claim(**{"group": "/g", "replaces": True, "made": MADE, **more})


def built(arrays=None, first=100):
    numbers = itertools.count(first)
    return {
        path: BuiltArray(each, key(next(numbers)), ())
        for path, each in (ARRAYS if arrays is None else arrays).items()
    }


def graft(*nodes, groups=GROUPS, arrays=None, of=None):
    """Return the nodes after a build on top of some nodes."""
    numbers = itertools.count(200)
    found = graft_build(
        snapshot(*nodes),
        groups=groups,
        arrays=built(arrays),
        claim=of or claim(),
        new_id=lambda: key(next(numbers)),
    )
    return {node.path: node for node in found}


def settle(*nodes, arrays=None, groups=GROUPS, **more):
    held = ARRAYS if arrays is None else arrays
    return settle_base(snapshot(*nodes), claim(**more), groups=groups, arrays=held)


OTHERS = array(7, "/g/mine", 9, dims=("x",))


def test_a_build_replaces_its_own_and_keeps_what_others_made():
    found = graft(G, T, TIME, OTHERS, group(8, "/other"))
    assert {path: node.id[0] for path, node in found.items()} == {
        "/": 255, "/g": 1, "/g/t": 100, "/g/time": 101, "/g/mine": 7, "/other": 8
    }  # fmt: skip
    assert found["/g/t"].shape == (6,)


def test_arrays_that_the_build_no_longer_makes_are_gone():
    found = graft(G, T, TIME, arrays={"/g/time": zarr_json((6,))})
    assert "/g/t" not in found


@pytest.mark.parametrize(
    ("node", "more", "why"),
    [
        (array(7, "/g/mine", 4), {}, None),  # as long as the coordinate was
        (array(7, "/g/mine", 5), {"arrays": {"/g/t": zarr_json((4,))}}, None),
        (array(7, "/g/t/below", 4), {}, "/g/t is an array in the build"),
        (array(7, "/g/mine", 6), {"relabelled": frozenset({"/g/time"})},
         "time has other labels in the build"),
        (array(7, "/g/mine", 9, dims=None), {}, None),
    ],
)  # fmt: skip
def test_arrays_of_others_stay_where_their_dimensions_fit(node, more, why):
    found = settle(G, T, TIME, node, **more)
    if why is None and node.shape[0] not in (4, 5):
        assert node.path in found.kept
    if why is not None:
        assert found.unfit == {node.path: why}
        assert node.path in found.lost


def test_a_length_that_no_longer_matches_is_unfit():
    found = settle(G, T, TIME, array(7, "/g/mine", 4))
    assert found.unfit == {"/g/mine": "its time has 4 steps, in the build 6"}


def test_a_dimension_below_that_has_its_own_coordinate_is_another_one():
    deep = group(5, "/g/h"), array(6, "/g/h/time", 4), array(7, "/g/h/mine", 4)
    assert {"/g/h", "/g/h/time", "/g/h/mine"} - settle(G, T, TIME, *deep).kept <= {"/g/h/time"}


def test_groups_above_what_stays_stay_and_empty_ones_of_the_build_go():
    made = {**MADE, "/g/h": group(5, "/g/h"), "/g/i": group(6, "/g/i")}
    nodes = (*made.values(), array(7, "/g/h/mine", 9, dims=("x",)))
    found = settle(*nodes, made=made)
    assert {"/g/h", "/g/h/mine"} <= found.kept
    assert "/g/i" in found.deleted


def test_attributes_that_others_gave_to_a_group_stay():
    """But for those that the build gives it, or gave it before."""
    made = {**MADE, "/g": group(1, "/g", a=1, old=1)}
    held = group(1, "/g", a=1, old=1, mine=1.5)
    found = settle(held, T, TIME, made=made, groups={"/g": group(1, "/g", a=2).user_data})
    assert b'"a": 2' in found.groups["/g"]
    assert b'"mine": 1.5' in found.groups["/g"]
    assert b"old" not in found.groups["/g"]
    after = graft(held, T, TIME, groups={"/g": group(1, "/g", a=2).user_data}, of=claim(made=made))
    assert document_of(after["/g"])["attributes"] == {"a": 2, "mine": 1.5}


def test_a_group_of_the_last_build_stays_where_others_gave_it_attributes():
    made = {**MADE, "/g/h": group(5, "/g/h", a=1)}
    assert "/g/h" in settle(G, T, TIME, group(5, "/g/h", a=1, mine=2), made=made).kept
    assert "/g/h" in settle(G, T, TIME, group(5, "/g/h", a=1), made=made).deleted


def test_coordinates_that_label_what_stays_are_named():
    mine = array(7, "/g/mine", 6)
    base = snapshot(G, T, TIME, mine)
    found = settle_base(base, claim(), groups=GROUPS, arrays=ARRAYS)
    assert coordinates_of(base, claim(), found, ARRAYS) == {"/g/time"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"/g": ()}, "this is an array, not a group"),
        ({"/g/t": manifest(1, (0, 9))}, "reaches out of the array's chunk grid"),
        ({"/g/t": (manifest(1, (0, 3)), manifest(2, (2, 4)))}, "two manifests of an array overlap"),
        ({"/g/t": key(2)}, "the id of a new array is already in use"),
    ],
)
def test_a_build_that_cannot_be_read_is_refused(arrays, message):
    ((path, what),) = arrays.items()
    nodes = (G, T, TIME)
    made = built({"/g/t": zarr_json((6,))})
    one = made["/g/t"]
    if path == "/g":
        nodes = (array(1, "/g"),)
    elif isinstance(what, bytes) and len(what) == 8:
        made["/g/t"] = one._replace(node_id=what)
    else:
        made["/g/t"] = one._replace(manifests=what if type(what) is tuple else (what,))
    with pytest.raises(InvalidInputError, match=message):
        graft_build(
            snapshot(*nodes), groups={}, arrays=made, claim=claim(), new_id=lambda: key(250)
        )


def test_the_metadata_of_a_group_makes_no_array():
    arrays = {"/g/new": BuiltArray(GROUPS["/g"], key(9), ())}
    with pytest.raises(InvalidInputError, match="metadata of a group"):
        graft_build(snapshot(G), groups={}, arrays=arrays, claim=None, new_id=lambda: key(250))


@pytest.mark.parametrize(
    ("nodes", "clash"),
    [
        ((G, T, TIME), None),
        ((G, T, TIME, group(9, "/other")), None),
        ((G, array(2, "/g/t", 4, n=1), TIME), ["/g/t"]),
        ((G, T), ["/g/time"]),
        ((group(1, "/g", n=1), T, TIME), ["/g"]),
    ],
)
def test_a_branch_that_moved_elsewhere_is_fine(nodes, clash):
    how = {"groups": GROUPS, "arrays": built(), "claim": claim(), "message": "ours"}
    if clash is None:
        refuse_touched(snapshot(G, T, TIME), snapshot(*nodes), **how)
        return
    with pytest.raises(ConflictError, match="changed the same group") as caught:
        refuse_touched(snapshot(G, T, TIME), snapshot(*nodes), **how)
    assert caught.value.facts["paths"] == clash
    assert caught.value.facts["ours"] == "ours"
    assert str(snapshot(*nodes).id) in caught.value.facts["theirs"]


def test_a_group_that_is_to_be_empty_is_watched_as_a_whole():
    how = {
        "groups": GROUPS,
        "arrays": built(),
        "claim": claim(replaces=False, made={}),
        "message": "ours",
    }
    refuse_touched(snapshot(), snapshot(group(9, "/h")), **how)
    with pytest.raises(ConflictError):
        refuse_touched(snapshot(), snapshot(G, OTHERS), **how)


# -- what is lost ---------------------------------------------------------------------------------


def lost(*nodes, made=MADE, arrays=ARRAYS, groups=GROUPS, rearranged=()):
    """Return what a build would undo, with whether it stops one."""
    base, of = snapshot(*nodes), claim(made=made)
    found = settle_base(base, of, groups=groups, arrays=arrays)
    undone = losses(base, of, found, groups=groups, arrays=arrays, rearranged=rearranged)
    return [(each.path, each.what, each.stops) for each in undone]


W = array(2, "/g/t", 4, manifests=[manifest(1, (0, 4))])


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ((G, T, TIME), []),
        ((G, T), [("/g/time", "deleted", True)]),
        ((G, array(2, "/g/moved", 4), TIME), [("/g/moved", "its time has 4 steps, in the build 6", True),
                                              ("/g/t", "moved to /g/moved", True)]),
        ((G, array(2, "/g/t", 5), TIME), [("/g/t", "shape [4] → [5]", True)]),
        ((G, array(2, "/g/t", 4, units="K"), TIME), [("/g/t", "attribute units", True)]),
        ((G, W, TIME), [("/g/t", "chunks", True)]),
        ((G, array(9, "/g/t", 4), TIME), [("/g/t", "not made by the last build of this group", True)]),
        ((group(1, "/g", n=1), T, TIME), []),
    ],
)  # fmt: skip
def test_work_of_others_that_a_build_would_undo_is_listed(nodes, what):
    assert lost(*nodes) == what


def test_manifests_that_were_only_rearranged_are_no_loss():
    assert lost(G, W, TIME, rearranged=[key(2)]) == []
    assert find_moved_manifests(snapshot(G, W, TIME), claim()) == {key(2)}
    changed = array(2, "/g/t", 4, units="K", manifests=[manifest(1, (0, 4))])
    assert find_moved_manifests(snapshot(G, changed, TIME), claim()) == frozenset()


@pytest.mark.parametrize(
    ("there", "what"),
    [
        ({"a": 1}, []),
        ({"a": 2}, [("/g", "attribute a", True)]),
        ({}, [("/g", "attribute a was removed", False)]),
    ],
)
def test_attributes_of_a_group_that_others_set_are_not_undone_silently(there, what):
    made = {**MADE, "/g": group(1, "/g", a=1)}
    planned = {"/g": group(1, "/g", a=1).user_data}
    assert lost(group(1, "/g", **there), T, TIME, made=made, groups=planned) == what


def test_a_value_of_another_type_is_another_value():
    made = {**MADE, "/g/t": array(2, "/g/t", 4, n=1)}
    assert lost(G, array(2, "/g/t", 4, n=1.0), TIME, made=made) == [("/g/t", "attribute n", True)]
