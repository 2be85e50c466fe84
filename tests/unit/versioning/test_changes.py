"""Two transaction logs in a row combine to the log of both commits as one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.snapshot import ArrayNode, GroupNode
from icevirt.versioning.diff import combine, log_of

ONE, TWO = ObjectId12(bytes(12)), ObjectId12(bytes([1]) * 12)
NONE = np.zeros((0, 1), np.uint32)


def node(number: int, name: str, document: bytes):
    key = ObjectId8(bytes([number]) * 8)
    if number % 2:
        return GroupNode(id=key, path=f"/{name}{number}", user_data=document)
    return ArrayNode(
        id=key,
        path=f"/{name}{number}",
        user_data=document,
        shape=(9,),
        num_chunks=(9,),
        dimension_names=None,
    )


states = st.dictionaries(
    st.integers(0, 5), st.tuples(st.sampled_from("ab"), st.sampled_from([b"x", b"y", b"z"]))
).map(lambda found: [node(number, *what) for number, what in found.items()])
written = st.dictionaries(st.sampled_from([0, 2, 4]), st.sets(st.integers(0, 8))).map(
    lambda found: {
        ObjectId8(bytes([number]) * 8): np.array(sorted(at), np.uint32).reshape(-1, 1)
        for number, at in found.items()
    }
)


def alive(chunks, nodes):
    return {key: index for key, index in chunks.items() if key in {node.id for node in nodes}}


@given(states, states, states, written, written)
def test_two_logs_combine_to_the_log_of_both(start, middle, end, early, late):
    # an id is never used again
    end = [each for each in end if each in middle or each.id not in {n.id for n in start}]
    older, newer = log_of(ONE, start, middle, early), log_of(TWO, middle, end, late)
    both = combine(older, newer)
    late = alive(late, end)
    early = alive(alive(early, middle), end)
    exact = log_of(TWO, start, end, {})
    for name in ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays"):
        assert getattr(both, name) == getattr(exact, name), name
    born = (
        both.new_groups | both.new_arrays
    )  # whose moves are told too, as the official client does
    assert tuple(m for m in both.moved_nodes if m.node_id not in born) == exact.moved_nodes
    for name in ("updated_groups", "updated_arrays"):  # a change that was undone is still told
        assert getattr(exact, name) <= getattr(both, name)
    expected = {
        key: sorted({*early.get(key, NONE).ravel(), *late.get(key, NONE).ravel()})
        for key in early.keys() | late.keys()
    }
    output = {key: index.ravel().tolist() for key, index in both.updated_chunks.items()}
    assert output == {key: index for key, index in expected.items() if index}
