"""Runs of contiguous values are cut to steps that hold the same bytes, or refused."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.blocks.cutting import cut
from icevirt.archive.blocks.packing import Block
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkType, Locations

STEP = 6  # bytes


def block_of(values, runs, *, stored):
    """Return the block of an array that has ``runs`` runs of whole steps."""
    pieces = np.split(values, runs)
    data = [gzip.compress(each.tobytes(), 1, mtime=0) for each in pieces] if stored else []
    length = [len(each) for each in data] if stored else [each.nbytes for each in pieces]
    return Block(
        file=np.zeros(runs, np.int32),
        index=np.array([[n, 0] for n in range(runs)], np.uint32),
        kind=np.full(runs, ChunkType.inline if stored else ChunkType.virtual, np.uint8),
        offset=np.cumsum([0, *length[:-1]]).astype(np.uint64),
        length=np.array(length, np.uint64),
        data=np.frombuffer(b"".join(data), np.uint8),
        source=np.zeros(runs, np.uint32),
        targets=Locations.none(),
    )


def values_of(steps):
    return np.arange(3 * steps, dtype="<i2").reshape(steps, 3)


def cut_of(block, steps, rows=None):
    rows = np.arange(len(block)) if rows is None else rows
    return cut(block, rows, STEP, np.full(len(rows), steps))


@given(st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_each_step_holds_its_own_bytes(runs, times, stored):
    steps = runs * times
    values = values_of(steps)
    found = cut_of(block_of(values, runs, stored=stored), steps)
    held = found.data.tobytes() if stored else values.tobytes()
    bytes_of = {}
    for (index, _), at, size in zip(found.index, found.offset, found.length, strict=True):
        raw = held[int(at) : int(at) + int(size)]
        bytes_of[int(index)] = gzip.decompress(raw) if stored else raw
    assert bytes_of == {n: each.tobytes() for n, each in enumerate(values)}


@pytest.mark.parametrize("stored", [False, True])
def test_what_lies_beyond_the_file_is_refused(stored):
    block = block_of(values_of(4), 2, stored=stored)
    with pytest.raises(FormatError, match=r"beyond|does not end"):
        cut_of(block, 2)


def test_what_lies_behind_the_end_of_the_axis_is_left_out():
    """HDF5 keeps the last chunk at full length."""
    found = cut_of(block_of(values_of(6), 2, stored=False), 4)
    assert found.index[:, 0].tolist() == [0, 1, 2, 3]
    assert found.offset.tolist() == [0, 6, 12, 18]


@pytest.mark.parametrize("stored", [False, True])
def test_half_a_step_is_refused(stored):
    block = block_of(np.arange(5, dtype="<i2"), 1, stored=stored)
    with pytest.raises(FormatError, match="no whole number of steps"):
        cut_of(block, 4)


def test_a_few_bytes_do_not_become_gigabytes():
    bomb = block_of(np.zeros((100_000, 3), "<i2"), 1, stored=True)
    with pytest.raises(FormatError, match="does not end where its array does"):
        cut_of(bomb, 4)


def test_damaged_bytes_are_refused():
    block = block_of(values_of(2), 1, stored=True)
    damaged = replace(block, data=np.zeros_like(block.data))
    with pytest.raises(FormatError, match="damaged"):
        cut_of(damaged, 2)
