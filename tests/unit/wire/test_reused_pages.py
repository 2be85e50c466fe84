"""Memory of large arrays is used again, and never while anything refers to it."""

import gc
import pickle

import numpy as np
import pytest

from icevirt.wire import header
from icevirt.wire.header import empty_bytes

SIZE = 5 * 1024 * 1024


@pytest.fixture(autouse=True)
def no_spare():
    header._spare.clear()
    yield
    header._spare.clear()


def place(data):
    return data.__array_interface__["data"][0]


def test_the_memory_of_the_last_array_is_used_again():
    first = empty_bytes(SIZE)
    at = place(first)
    del first
    assert place(empty_bytes(SIZE - 4096)) == at
    assert len(empty_bytes(SIZE - 4096)) == SIZE - 4096


VIEWS = {
    "a slice": lambda data: data[5:9],
    "a slice of a slice": lambda data: data[4:][::2][1:],
    "other numbers": lambda data: data[:8].view("<u4"),
    "records": lambda data: np.ndarray((3,), "<u4", data, 8, (72,)),
    "rows": lambda data: np.ndarray((3, 2), "<u4", data[:80], 8, (12, 4)),
    "one for all": lambda data: np.broadcast_to(data[:1], 5),
    "a transposed one": lambda data: data[:6].reshape(2, 3).T,
    "a memoryview": lambda data: memoryview(data)[3:7],
    "an array from a memoryview": lambda data: np.frombuffer(memoryview(data)[8:16], "<u4"),
    "the buffer of a part": lambda data: data[9:12].data,
    "pickled out of band": lambda data: buffers(data[:9]),
}


def buffers(part):
    held = []
    pickle.dumps(part, protocol=5, buffer_callback=held.append)
    return held


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_what_something_refers_to_is_not_used_again(view):
    data = empty_bytes(SIZE)
    at = place(data)
    held = view(data)
    del data
    gc.collect()
    assert not header._spare
    other = empty_bytes(SIZE)
    assert place(other) != at
    del held, other
    assert len(header._spare) == 1


@pytest.mark.parametrize("size", [0, 1, header._LARGE - 1, header._MOST + 1])
def test_small_and_huge_arrays_are_not_kept(size):
    assert len(empty_bytes(size)) == size
    assert not header._spare


def test_one_array_is_kept_and_serves_those_of_about_its_size():
    three = [empty_bytes(SIZE) for _ in range(3)]
    assert len({place(each) for each in three}) == 3
    three.clear()
    assert len(header._spare) == 1
    spare = place(header._spare[0])
    assert place(empty_bytes(4 * SIZE)) != spare
    assert len(header._spare[0]) == 4 * SIZE  # the smaller one went
