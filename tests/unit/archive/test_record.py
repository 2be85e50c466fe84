"""Notes of finished items: what goes in comes out, and nothing else does."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.plan import WindowResult, WriteResult, dump_result, load_result
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.errors import FormatError

COUNTS = st.integers(0, 2**62)
EXTENTS = st.lists(st.tuples(COUNTS, COUNTS), max_size=3).map(tuple)
WINDOWS = st.builds(
    WindowResult,
    node_id=st.binary(min_size=8, max_size=8),
    extents=EXTENTS,
    references=st.builds(
        ReferenceCounts,
        **dict.fromkeys(
            ("virtual", "native", "inline", "bytes_referenced", "bytes_stored"), COUNTS
        ),
    ),
    replaced=COUNTS,
)
KEYS = st.binary(min_size=12, max_size=12)


@given(
    st.builds(
        WriteResult,
        number=COUNTS,
        manifest_id=st.none() | KEYS,
        size_bytes=COUNTS,
        num_chunk_refs=COUNTS,
        windows=st.lists(WINDOWS, max_size=3).map(tuple),
        chunk_ids=st.frozensets(KEYS, max_size=3),
    )
)
def test_a_note_says_what_was_noted(result):
    assert load_result(dump_result(result)) == result


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b'{"manifest_id": 3}', pickle.dumps({"number": 1})]
)
def test_what_is_no_note_is_refused(raw):
    with pytest.raises(FormatError, match="record of a finished item is damaged"):
        load_result(raw)
