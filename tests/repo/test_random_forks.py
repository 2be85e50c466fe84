"""Random sessions and forks write and merge: values are merged exactly, or the merge is refused.

A model holds for each session its values, and which writes it knows. `just random-forks` takes
2,000 of them.
"""

import os
import pickle
import random

import numpy as np
import pytest
import zarr

from icevirt.errors import ConflictError, SessionStateError
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository
from icevirt.repo.session import ForkSession
from icevirt.storage.memory import in_memory_storage

CASES = int(os.environ.get("ICEVIRT_FORKS", "30"))
LENGTH = 48
GRIDS = [{"chunks": (4,)}, {"chunks": (12,)}, {"chunks": (7,)}, {"chunks": (4,), "shards": (16,)}]


class Side:
    """A session or fork, and what it must hold: by chunk, the number of its last write."""

    def __init__(self, session, values, last, known, begun, needs):
        self.session, self.values, self.last = session, values, last
        self.known, self.begun, self.needs = known, begun, needs

    def copy(self, session, begun=None, needs=None):
        begun = self.begun if begun is None else begun
        needs = self.needs if needs is None else needs
        return Side(
            session, self.values.copy(), self.last.copy(), set(self.known), set(begun), set(needs)
        )

    def fork(self):
        return self.copy(self.session.fork(), self.known, ())

    def write(self, box, number, block):
        zarr.open_array(self.session.store, path="a", mode="r+")[box] = number
        self.values[box] = number
        self.last[box.start // block : -(-box.stop // block)] = number
        self.known.add(number)

    def with_own(self, other, block):
        """Return this with what the other wrote since it began; None: both wrote a chunk."""
        result = self.copy(self.session)
        for chunk, number in enumerate(other.last.tolist()):
            if number in other.begun or number in self.known:
                continue
            if self.last[chunk] not in other.known:
                return None
            box = slice(chunk * block, chunk * block + block)
            result.values[box], result.last[chunk] = other.values[box], number
        result.known |= other.known - other.begun
        result.needs = (result.needs | other.needs | other.begun) - result.known
        return result

    def merge(self, others, block):
        expected = self
        for other in sorted(others, key=lambda one: len(one.begun)):
            expected = expected and expected.with_own(other, block)
        sessions = [other.session for other in others]
        if expected is None:
            with pytest.raises(ConflictError, match="wrote the same chunk") as caught:
                self.session.merge(*sessions)
            assert caught.value.facts["path"] == "/a"
            assert caught.value.facts["block"] == (block,)
        elif expected.needs and not isinstance(self.session, ForkSession):
            with pytest.raises(SessionStateError, match="the fork that it came from"):
                self.session.merge(*sessions)
        else:
            self.session.merge(*sessions)
            self.__dict__.update(expected.__dict__)

    def check(self):
        found = zarr.open_array(self.session.store, path="a", mode="r")[:]
        np.testing.assert_array_equal(found, self.values)


@pytest.mark.parametrize("seed", range(CASES))
def test_no_merge_loses_a_value_without_an_error(seed):
    draw = random.Random(seed)
    grid = draw.choice(GRIDS)
    (block,) = grid.get("shards", grid["chunks"])
    config = RepositoryConfig(inline_chunk_threshold_bytes=draw.choice([0, 512]))
    repo = Repository.create(in_memory_storage(), config)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(LENGTH,), dtype="i8", fill_value=0, **grid)
    chunks = -(-LENGTH // block)
    parent = Side(session, np.zeros(LENGTH, int), np.zeros(chunks, int), {0}, set(), set())
    forks = [parent.fork()]
    for number in range(1, draw.randint(8, 40)):
        match draw.choice(["fork", "write", "write", "write", "pickle", "pair", "merge", "check"]):
            case "fork":
                forks.append(draw.choice([parent, *forks]).fork())
            case "pickle":  # both go on by themselves
                one = draw.choice(forks)
                forks.append(one.copy(pickle.loads(pickle.dumps(one.session))))
            case "write":
                size = draw.choice([1, 2, block // 2, block, 2 * block])
                start = draw.randrange(0, LENGTH - size + 1, size)
                draw.choice([parent, *forks]).write(slice(start, start + size), number, block)
            case "pair" if len(forks) > 1:
                one, other = draw.sample(forks, 2)
                one.merge([other], block)
            case "merge":
                parent.merge(draw.sample(forks, draw.randint(1, min(3, len(forks)))), block)
            case _:
                draw.choice([parent, *forks]).check()
    for one in (parent, *forks):
        one.check()
    snapshot = parent.session.commit("all", allow_empty=True)
    store = repo.readonly_session(snapshot_id=snapshot).store
    np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[:], parent.values)


CHANGES = {
    "chunks": lambda array: array.__setitem__(0, 1),
    "attributes": lambda array: array.attrs.update(unit="m"),
    "a resize": lambda array: array.resize((64,)),
    "a new array": lambda array: zarr.create_array(
        array.store, name="b", shape=(3,), dtype="i8", fill_value=0
    ),
    "a deletion": lambda array: zarr.open_group(array.store).__delitem__("gone"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_fork_handed_on_to_its_own_fork_is_not_lost(change):
    repo = Repository.create(in_memory_storage(), None)
    session = repo.writable_session("main")
    for name in ("a", "gone"):
        zarr.create_array(
            session.store, name=name, shape=(LENGTH,), chunks=(4,), dtype="i8", fill_value=0
        )
    first, other = session.fork(), session.fork()
    change(zarr.open_array(first.store, path="a", mode="r+"))
    second = pickle.loads(pickle.dumps(first.fork()))
    zarr.open_array(second.store, path="a", mode="r+")[10] = 2
    other.merge(second)  # a fork may: what it lacks may come to the session by another way
    for missing in ([second], [other], [other, second]):
        with pytest.raises(SessionStateError, match=r"session.merge\(first, second\)"):
            session.merge(*missing)
    session.merge(second, first)  # whatever the order
    merged, expected = (zarr.open_group(each.store) for each in (session, second))
    assert sorted(merged) == sorted(expected)
    assert merged["a"].attrs.asdict() == expected["a"].attrs.asdict()
    np.testing.assert_array_equal(merged["a"][:], expected["a"][:])
    session.merge(other)
