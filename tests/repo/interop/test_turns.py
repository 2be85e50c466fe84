"""icevirt and the official client take turns on one array, and agree with a plain array each time.

Chunks are written, deleted and moved out of a shrinking grid under random splitting rules, so that
manifests are kept, merged, cut and rewritten in every combination.
"""

import tempfile

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config.document import SplitRule
from icevirt.repo.repository import Repository
from repo.support import array_json, sound

EDGE = 6
FILL = -1

spots = st.tuples(st.integers(0, EDGE - 1), st.integers(0, EDGE - 1))
write = st.tuples(st.just("write"), st.lists(spots, min_size=1, max_size=8, unique=True))
delete = st.tuples(st.just("delete"), st.lists(spots, min_size=1, max_size=4, unique=True))
resize = st.tuples(st.just("resize"), st.tuples(st.integers(1, EDGE), st.integers(1, EDGE)))
split = st.tuples(st.just("split"), st.tuples(st.integers(1, EDGE), st.integers(1, EDGE)))
turns = st.lists(
    st.tuples(
        st.booleans(), st.lists(st.one_of(write, delete, resize, split), min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=5,
)


def inside(found, shape):
    return [spot for spot in found if spot[0] < shape[0] and spot[1] < shape[1]]


class Model:
    """The array as it should be."""

    def __init__(self) -> None:
        self.shape = (EDGE, EDGE)
        self.values: dict[tuple[int, int], int] = {}
        self.next = 0

    def write(self, found) -> list[tuple[int, int]]:
        found = sorted(inside(found, self.shape))
        for spot in found:
            self.next += 1
            self.values[spot] = self.next
        return found

    def delete(self, found) -> list[tuple[int, int]]:
        found = inside(found, self.shape)
        for spot in found:
            self.values.pop(spot, None)
        return found

    def resize(self, shape) -> None:
        self.shape = shape
        self.values = {spot: self.values[spot] for spot in inside(self.values, shape)}

    def array(self) -> np.ndarray:
        whole = np.full(self.shape, FILL)
        for spot, value in self.values.items():
            whole[spot] = value
        return whole


def ours(repo, model, operations) -> None:
    session = repo.writable_session("main")
    for name, what in operations:
        match name:
            case "write" if found := model.write(what):
                chunks = [np.int32(model.values[spot]).tobytes() for spot in found]
                session.set_chunks("/a", ChunkTable.of_inline(index=np.array(found), chunks=chunks))
            case "delete" if found := model.delete(what):
                session.delete_chunks("/a", np.array(found))
            case "resize":
                model.resize(what)
                session.set_metadata("/a", array_json(what, (1, 1)))
            case "split":
                rule = SplitRule(path_regex=None, num_chunks=((0, what[0]), (1, what[1])))
                session.config.add_split_rules([rule])
                repo.config.add_split_rules([rule])
                repo.save_config()
        check(session, model)
    session.commit("ours", allow_empty=True)


def theirs(path, model, operations) -> None:
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    for name, what in operations:
        match name:
            case "write":
                for spot in model.write(what):
                    array[spot] = model.values[spot]
            case "delete":
                for spot in model.delete(what):
                    array[spot] = FILL  # zarr deletes chunks that hold nothing but fill
            case "resize":
                model.resize(what)
                array.resize(what)
    session.commit("theirs", allow_empty=True)


def check(session, model) -> None:
    table = session.array_table("/a")
    assert {tuple(spot) for spot in table.index.tolist()} == set(model.values)
    everywhere = np.argwhere(np.ones(model.shape, bool))
    found = session.references("/a", everywhere)
    for at, spot in enumerate(map(tuple, everywhere.tolist())):
        if spot in model.values:
            chunk = found.inline[int(found.offset[at]) :][: int(found.length[at])]
            assert chunk.view("<i4").tolist() == [model.values[spot]]
        else:
            assert found.kind[at] == ChunkType.uninitialized


def check_extents(snapshot) -> None:
    """Boxes of one array's manifests must not meet: readers look into the first that fits."""
    covered = np.zeros((EDGE, EDGE), int)
    for ref in snapshot.node("/a").manifests:
        (a, b), (c, d) = ref.extents
        covered[a:b, c:d] += 1
    assert covered.max(initial=0) <= 1


@pytest.mark.ci
@settings(max_examples=25)
@given(turns)
def test_both_agree_with_a_plain_array_after_every_turn(history):
    with tempfile.TemporaryDirectory() as path:
        repo, model = Repository.create(path), Model()
        session = repo.writable_session("main")
        session.add_array("/a", array_json((EDGE, EDGE), (1, 1)), ChunkTable.empty(2))
        session.commit("empty")
        for is_ours, operations in history:
            ours(repo, model, operations) if is_ours else theirs(path, model, operations)
            session = repo.readonly_session("main")
            check(session, model)
            check_extents(session.snapshot)
            assert sound(path)
            official = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
            store = official.readonly_session("main").store
            np.testing.assert_array_equal(
                zarr.open_array(store, path="a", mode="r")[:], model.array()
            )
