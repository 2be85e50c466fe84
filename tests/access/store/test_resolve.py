"""From keys to ranges: grouping and cutting; checked against the obvious loop."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from icevirt import Repository, in_memory_storage
from icevirt.access.store.keys import all_bounds, bounds, sort_out
from icevirt.access.store.reading import SessionReader

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
    grouped = {(c.path, c.chunks.shape[1]): (c.rows, c.chunks.tolist()) for c in wanted.chunks}
    assert grouped == {
        ("/a", 2): ((1, 4, 7), [[0, 1], [2, 0], [0, 1]]),
        ("/b", 0): ((2,), [[]]),
        ("/a", 1): ((6,), [[0]]),
    }


@given(st.lists(st.tuples(st.integers(0, 29), REQUESTS), max_size=40))
def test_ranges_of_many_chunks_are_those_of_each(wanted):
    session = Repository.create(in_memory_storage()).writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(120,), chunks=(4,), dtype="u1", compressors=None
    )
    array[:100] = np.arange(100, dtype="u1") + 1
    bodies = [bytes(range(4 * n + 1, 4 * n + 5)) if n < 25 else None for n in range(30)]
    found = SessionReader(session).read_all([(f"a/c/{n}", request) for n, request in wanted])
    assert [None if one is None else bytes(one) for one in found] == [
        None if bodies[n] is None else cut(bodies[n], request) for n, request in wanted
    ]
