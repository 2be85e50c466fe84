"""From keys to a fetch plan: grouping, ranges, order; checked against the obvious loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from icevirt.access.store.keys import all_bounds, bounds, plan, sort_out
from icevirt.model.chunks import ChunkType, Locations
from icevirt.repo.reader import FoundChunks

SIZES = st.integers(0, 40)
REQUESTS = st.one_of(
    st.none(),
    st.builds(RangeByteRequest, SIZES, SIZES),
    st.builds(OffsetByteRequest, SIZES),
    st.builds(SuffixByteRequest, SIZES),
)


def cut(body, request):
    match request:
        case None:
            return body
        case RangeByteRequest(start=start, end=end):
            return body[start:end]
        case OffsetByteRequest(offset=offset):
            return body[offset:]
        case SuffixByteRequest(suffix=suffix):
            return body[-suffix:] if suffix else b""


@given(REQUESTS, st.binary(max_size=30))
def test_bounds_cut_what_slicing_cuts(request, body):
    start, end = bounds(request, len(body))
    assert 0 <= start <= end <= len(body)
    assert body[start:end] == cut(body, request)


@given(st.lists(st.tuples(REQUESTS, st.integers(0, 30)), max_size=20))
def test_all_bounds_agree_with_bounds(pairs):
    lengths = np.array([length for _, length in pairs], np.uint64)
    start, end = all_bounds([request for request, _ in pairs], lengths)
    expected = [bounds(request, length) for request, length in pairs]
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == expected


def test_a_tuple_is_no_byte_request():
    with pytest.raises(TypeError, match="Unexpected byte_range"):
        bounds((0, 2), 4)


def test_requests_are_grouped_by_what_they_name():
    keys = ["zarr.json", "a/c/0/1", "b/c", "nonsense", "a/c/2/0", "a/zarr.json", "a/c/0", "a/c/0/1"]
    wanted = sort_out([(key, None) for key in keys])
    assert wanted.metadata == ((0, "/"), (5, "/a"))
    grouped = {(c.path, c.index.shape[1]): (c.rows, c.index.tolist()) for c in wanted.chunks}
    assert grouped == {
        ("/a", 2): ((1, 4, 7), [[0, 1], [2, 0], [0, 1]]),
        ("/b", 0): ((2,), [[]]),
        ("/a", 1): ((6,), [[0]]),
    }


ROWS = st.tuples(
    st.sampled_from(list(ChunkType)), st.integers(0, 3), st.integers(0, 99), SIZES, REQUESTS
)


@given(st.lists(ROWS, max_size=30))
def test_a_plan_holds_the_range_of_every_chunk_in_the_order_of_its_objects(rows):
    kind, source, offset, length, requests = zip(*rows, strict=True) if rows else [()] * 5
    found = FoundChunks(
        kind=np.array(kind, np.uint8),
        source=np.array(source, np.uint32),
        offset=np.array(offset, np.uint64),
        length=np.array(length, np.uint64),
        locations=Locations.none(),
        chunk_ids=np.zeros((0, 12), np.uint8),
        inline=np.zeros(0, np.uint8),
    )
    made = plan(found, range(100, 100 + len(rows)), requests)
    listed = list(
        zip(
            made.kind.tolist(),
            made.source.tolist(),
            made.offset.tolist(),
            made.length.tolist(),
            made.rows.tolist(),
            strict=True,
        )
    )
    expected = []
    for row, (kind, source, offset, length, request) in enumerate(rows, 100):
        if kind != ChunkType.uninitialized:
            start, end = bounds(request, length)
            expected.append((int(kind), source, offset + start, end - start, row))
    assert sorted(listed) == sorted(expected)
    assert [entry[:3] for entry in listed] == sorted(entry[:3] for entry in listed)
