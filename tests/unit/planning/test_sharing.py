"""Shares of a file hold everything once, and take about as long as each other."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.catalog import BLOCK_REFS, parts_of
from icevirt.archive.scanned import Weight
from icevirt.archive.sources import SourceFile
from icevirt.planning.schedule.balance_scans import RUN, pieces_of, share_of

GIB = 1 << 30
sizes = st.one_of(st.integers(0, 1000), st.integers(0, 60 * RUN))


@given(st.lists(st.tuples(sizes, st.booleans()), max_size=30), st.integers(1, 64))
def test_shares_hold_every_chunk_of_every_variable_once(found, of):
    weights = [
        Weight(path=f"/{at}", cost=200 + size, chunks=size if cut else 0)
        for at, (size, cut) in enumerate(found)
    ]
    shares = [share_of(weights, number, of) for number in range(of)]
    for weight in weights:
        whole = sum(weight.path in share.whole for share in shares)
        runs = sorted(share.runs[weight.path] for share in shares if weight.path in share.runs)
        edges = [0, *(end for _, end in runs)]
        if runs:
            assert not whole
            assert runs == list(itertools.pairwise(edges))
            assert edges[-1] == weight.chunks
            assert all(edge % BLOCK_REFS == 0 for edge in edges[:-1])
        else:
            assert whole == 1
    assert {share.order for share in shares} == {tuple(weight.path for weight in weights)}


@given(st.integers(2, 64))
def test_shares_of_one_array_are_of_one_size(of):
    weight = Weight(path="/v", cost=200 * RUN, chunks=200 * RUN)
    runs = [share_of([weight], number, of).runs["/v"] for number in range(of)]
    lengths = [high - low for low, high in runs]
    assert max(lengths) - min(lengths) <= 2 * BLOCK_REFS


def test_little_is_not_shared():
    weights = [Weight(path=f"/{at}", cost=1000) for at in range(100)]
    assert [len(share_of(weights, number, 8).whole) for number in range(8)] == [100, *[0] * 7]


def files(*gibs):
    return [SourceFile(url=f"file:///{at}", size=int(gib * GIB)) for at, gib in enumerate(gibs)]


def test_files_are_scanned_in_pieces_where_they_are_more_than_their_share():
    assert pieces_of(files(1)) == pieces_of(files(15)) == pieces_of(files(*[100] * 64)) == {}
    assert pieces_of(files(100)) == {"file:///0": 12}
    assert pieces_of(files(2000)) == {"file:///0": 64}
    assert set(pieces_of(files(*[1000] * 10)).values()) == {7}
    assert pieces_of(files(*[1] * 100, 1000)) == {"file:///100": 59}
    assert pieces_of([]) == {}


def test_a_file_in_pieces_is_a_part_of_its_own():
    listed = files(*[1] * 200)
    parts = parts_of(listed, identity="scan", pieces={"file:///5": 3})
    assert [file for part in parts for file in part.files] == listed
    (huge,) = (part for part in parts if part.of > 1)
    assert huge.files == (listed[5],)
    assert len({piece.label for piece in huge.pieces()}) == 3
    assert len({part.name for part in parts}) == len(parts)
