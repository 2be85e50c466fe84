"""Nodes are added, changed, removed, moved and merged, and never end up below an array."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    IcevirtError,
    InvalidInputError,
    NodeNotFoundError,
)
from icevirt.model.snapshot import ArrayNode, document_of
from icevirt.versioning import hierarchy
from icevirt.versioning.hierarchy import merge, move, reindex, shift
from unit.versioning.states import array, group, key, table, zarr_json


def nodes(*found):
    return hierarchy.by_path([group(255, "/"), *found])


def new_id():
    numbers = itertools.count(200)
    return lambda: key(next(numbers))


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda p: "/" + "/".join(p))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), paths), max_size=8))
def test_every_node_lies_in_groups_whatever_is_added_and_removed(steps):
    held, ids = nodes(), new_id()
    for number, (removes, is_array, path) in enumerate(steps):
        try:
            if removes:
                hierarchy.remove_below(held, path)
                held.pop(path, None)
                assert not any((each + "/").startswith(path + "/") for each in held)
            elif is_array:
                hierarchy.add_array(held, array(number, path), ids)
            else:
                hierarchy.add_group(held, path, hierarchy.PLAIN_GROUP, ids)
        except IcevirtError:
            continue
    for path in held:
        above = path.rpartition("/")[0] or "/"
        assert not isinstance(held[above], ArrayNode) or path == above
    assert len({node.id for node in held.values()}) == len(held)


def test_a_group_takes_attributes_that_do_not_contradict_its_own():
    held = nodes(group(1, "/g", a=1))
    hierarchy.add_group(held, "/g", group(2, "/g", b=2).user_data, new_id())
    assert document_of(held["/g"])["attributes"] == {"a": 1, "b": 2}
    assert held["/g"].id == key(1)
    before = held["/g"].user_data
    hierarchy.add_group(held, "/g", group(2, "/g", b=2).user_data, new_id())
    assert held["/g"].user_data is before  # it says that already
    with pytest.raises(AlreadyExistsError, match="different metadata") as caught:
        hierarchy.add_group(held, "/g", group(2, "/g", a=2).user_data, new_id())
    assert caught.value.facts["differing"] == ["a"]


@pytest.mark.parametrize(
    ("add", "error", "message"),
    [
        (lambda h: hierarchy.add_array(h, array(9, "/a"), new_id()), AlreadyExistsError, "an array"),
        (lambda h: hierarchy.add_array(h, array(9, "/g"), new_id()), AlreadyExistsError, "a group"),
        (lambda h: hierarchy.add_group(h, "/a", b"{}", new_id()), AlreadyExistsError, "an array"),
        (lambda h: hierarchy.add_group(h, "/a/b", b"{}", new_id()), InvalidInputError, "below an"),
        (lambda h: hierarchy.set_metadata(h, h["/a"], group(1, "/").user_data), InvalidInputError,
         "cannot change its kind"),
        (lambda h: hierarchy.set_metadata(h, h["/a"], zarr_json((2, 2), dims=None)),
         InvalidInputError, "number of dimensions"),
    ],
)  # fmt: skip
def test_a_place_is_taken_once(add, error, message):
    with pytest.raises(error, match=message):
        add(nodes(array(1, "/a"), group(2, "/g")))


def test_metadata_that_is_the_same_changes_no_node():
    held = nodes(array(1, "/a"))
    assert hierarchy.set_metadata(held, held["/a"], held["/a"].user_data) is held["/a"]
    longer = hierarchy.set_metadata(held, held["/a"], zarr_json((9,)))
    assert (longer.shape, longer.id) == ((9,), key(1))
    assert held["/a"] is longer


# -- moves ----------------------------------------------------------------------------------------


def test_a_node_moves_with_all_below_it():
    held = nodes(group(1, "/g"), array(2, "/g/a"), group(3, "/gg"), group(4, "/h"))
    assert move(held, "/g", "/h/k") == {"/g": "/h/k", "/g/a": "/h/k/a"}


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("/x", "/y", NodeNotFoundError),
        ("/g", "/g", InvalidInputError),
        ("/g", "/g/a/b", InvalidInputError),
        ("/g", "/h", AlreadyExistsError),
        ("/h", "/x/y", InvalidInputError),
        ("/h", "/g/a/b", InvalidInputError),
        ("/h", "/zarr.json", InvalidInputError),
    ],
)
def test_a_move_goes_into_a_group_that_is_there(source, target, error):
    with pytest.raises(error):
        move(nodes(group(1, "/g"), array(2, "/g/a"), group(3, "/h")), source, target)


indices = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=10).map(sorted)
GRID = array(1, "/a", 4, 5, dims=None)


def content(found):
    """Return which chunk's bytes lie at each index; None: none."""
    return {
        tuple(at): int(offset) if kind else None
        for at, offset, kind in zip(
            found.index.tolist(), found.offset.tolist(), found.kind.tolist(), strict=True
        )
    }


@settings(max_examples=30)
@given(indices, st.integers(-5, 5), st.integers(-5, 5))
def test_shifted_chunks_lie_where_a_loop_puts_them(held, by, along):
    before = table(*held, ndim=2)
    wanted = dict.fromkeys(held)
    for (y, x), value in content(before).items():
        if 0 <= y + by < 4 and 0 <= x + along < 5:
            wanted[y + by, x + along] = value
    assert content(shift(GRID, before, (by, along))) == wanted


@settings(max_examples=20)
@given(indices, st.permutations(range(4)))
def test_reindexed_chunks_lie_where_a_loop_puts_them(held, order):
    before = table(*held, ndim=2)
    back = {to: at for at, to in enumerate(order)}
    found = reindex(GRID, before, lambda at: (order[at[0]], at[1]), lambda at: (back[at[0]], at[1]))
    wanted = dict.fromkeys(held)
    wanted |= {(order[y], x): value for (y, x), value in content(before).items()}
    assert content(found) == wanted


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda at: (0, 0), "two chunks would move to the same index"),
        (lambda at: (4, 0), "leave the array's chunk grid"),
        (lambda at: (0.5, 0), "leave the array's chunk grid"),
        (lambda at: (0,), "leave the array's chunk grid"),
        (None, "must be a function"),
    ],
)
def test_a_function_that_is_no_permutation_is_refused(forward, message):
    with pytest.raises(InvalidInputError, match=message):
        reindex(GRID, table((0, 0), (1, 1), ndim=2), forward, None)


def test_chunks_that_a_function_leaves_where_they_are_are_not_written():
    found = reindex(GRID, table((0, 0), (1, 1), ndim=2), lambda at: (2, 2) if at[0] else None, None)
    assert content(found) == {(2, 2): 207}
    assert np.all(found.kind > 0)


# -- forks ----------------------------------------------------------------------------------------

G, A = group(1, "/g"), array(2, "/g/a")


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        ([G, A], [G, array(2, "/g/a", 9)], [G, array(2, "/g/a", 9)]),
        ([G, array(2, "/g/a", 9)], [G, A], [G, array(2, "/g/a", 9)]),
        ([G, A, array(3, "/x")], [G, A, array(4, "/y")], [G, A, array(3, "/x"), array(4, "/y")]),
        ([G, A], [G], [G]),
        ([G], [G], [G]),
        ([G, A, group(5, "/n")], [G, A, group(6, "/n")], [G, A, group(5, "/n")]),
        ([G, array(2, "/g/a", 9)], [G, array(2, "/g/a", 9)], [G, array(2, "/g/a", 9)]),
    ],
)
def test_what_only_one_fork_changed_is_merged(ours, theirs, wanted):
    assert merge(nodes(G, A), nodes(*ours), nodes(*theirs)) == nodes(*wanted)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([G, array(2, "/g/a", 9)], [G, array(2, "/g/a", 8)]),
        ([G], [G, array(2, "/g/a", 8)]),
        ([G, array(2, "/g/a", 9)], [G]),
        ([G, A, array(3, "/x")], [G, A, array(4, "/x")]),
        ([G, A, group(3, "/x", n=1)], [G, A, group(4, "/x")]),
        ([G, A, array(3, "/g/new")], []),
    ],
)
def test_what_both_forks_changed_is_refused(ours, theirs):
    with pytest.raises(ConflictError, match="merged changed the same node"):
        merge(nodes(G, A), nodes(*ours), nodes(*theirs))
