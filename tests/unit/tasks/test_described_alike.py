"""References of a file are compared by what they say, however the catalog holds them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.blocks.packing import Block
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.tasks.compare_files import _of_references

TARGETS = [("s3://a/1", "", 5), ("s3://a/1", "tag", 0), ("s3://a/22", "", 0)]
# a row: the bytes of an inline chunk; or offset, length and the file that it is in, None: its own
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),  # its file
        st.binary(max_size=4)
        | st.tuples(st.integers(0, 9), st.integers(1, 9), st.none() | st.sampled_from(TARGETS)),
    ),
    max_size=9,
)


def block_of(rows, listed):
    """Return rows as a block that lists these targets."""
    inline = [row if isinstance(row, bytes) else b"" for _, row in rows]
    starts = np.cumsum([0, *map(len, inline)])
    virtual = [(0, len(row), None) if isinstance(row, bytes) else row for _, row in rows]
    offset = [
        start if isinstance(row, bytes) else row[0]
        for (_, row), start in zip(rows, starts, strict=False)
    ]
    kinds = (ChunkType.inline if isinstance(row, bytes) else ChunkType.virtual for _, row in rows)
    number = {target: at + 1 for at, target in enumerate(listed)} | {None: 0}
    return Block(
        file=np.array([file for file, _ in rows], np.int32),
        index=np.arange(len(rows), dtype=np.uint32).reshape(-1, 1),
        kind=np.array(list(kinds), np.uint8),
        offset=np.array(offset, np.uint64),
        length=np.array([size for _, size, _ in virtual], np.uint64),
        data=np.frombuffer(b"".join(inline), np.uint8),
        source=np.array([number[target] for *_, target in virtual], np.uint32),
        targets=Locations(
            url=Strings.of(url for url, _, _ in listed),
            etag=Strings.of(etag for _, etag, _ in listed),
            last_modified=np.array([time for *_, time in listed], np.uint32),
        ),
    )


def meaning(rows, file):
    return [(at, row) for at, (own, row) in enumerate(rows) if own == file]


@given(ROWS, ROWS, st.permutations(TARGETS), st.permutations(TARGETS), st.integers(0, 2))
def test_digests_are_equal_where_references_are(one, other, first, second, file):
    """Whatever the numbers of the targets, and whatever other files there are."""
    equal = meaning(one, file) == meaning(other, file)
    digests = [
        _of_references([block_of(rows, listed)], file)
        for rows, listed in ((one, first), (other, second))
    ]
    assert (digests[0] == digests[1]) == equal
    assert _of_references([block_of(one, second)], file) == digests[0]


@given(ROWS, st.integers(0, 9), st.permutations(TARGETS))
def test_a_file_may_be_in_several_blocks(rows, cut, listed):
    parts = [block_of(rows[:cut], TARGETS), block_of(rows[cut:], listed)]
    whole = block_of(rows, TARGETS)
    parts[1].index[:] += np.uint32(len(parts[0]))
    assert _of_references(parts, 1) == _of_references([whole], 1)
