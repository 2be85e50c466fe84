"""What goes into a packed block comes out of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.blocks.cutting import join
from icevirt.archive.blocks.packing import (
    PackedBlocks,
    pack,
    pack_targets,
    unpack,
    unpack_all,
    unpack_each,
)
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings

FILE = Locations.one("file:///a.nc", last_modified=7)


@st.composite
def tables(draw, ndim):
    """A table of virtual and inline rows: dense or sparse, in any mix."""
    shape = draw(st.tuples(*[st.integers(1, 4)] * ndim))
    cells = np.indices(shape).reshape(ndim, -1).T if ndim else np.zeros((1, 0), int)
    keep = draw(
        st.one_of(
            st.just([True] * len(cells)),
            st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)),
        )
    )
    index = cells[np.array(keep, bool)]
    inline = np.array(draw(st.lists(st.booleans(), min_size=len(index), max_size=len(index))), bool)
    parts = [ChunkTable.empty(ndim)]
    if (~inline).any():
        n = int((~inline).sum())
        big = st.lists(st.integers(0, 2**63 - 1), min_size=n, max_size=n)
        parts.append(
            ChunkTable.virtual(
                index=index[~inline],
                offset=np.array(draw(big), np.uint64),
                length=np.array(draw(big), np.uint64),
                locations=FILE,
            )
        )
    if inline.any():
        n = int(inline.sum())
        chunks = draw(st.lists(st.binary(max_size=9), min_size=n, max_size=n))
        parts.append(ChunkTable.of_inline(index=index[inline], chunks=chunks))
    return ChunkTable.concatenate(parts)


@given(st.integers(0, 3).flatmap(lambda n: st.lists(tables(n), min_size=1, max_size=5)))
def test_a_block_gives_back_every_row_of_every_file(found):
    """File, index, kind, offset, length and inline bytes survive, row for row."""
    files = [7 * number + 3 for number in range(len(found))]
    block = unpack(pack(files, found))
    assert block.file.tolist() == [
        file for file, table in zip(files, found, strict=True) for _ in range(len(table))
    ]
    rows = 0
    for table in found:
        mine = slice(rows, rows + len(table))
        assert np.array_equal(block.index[mine], table.index)
        assert np.array_equal(block.kind[mine], table.kind)
        assert np.array_equal(block.length[mine], table.length)
        for at, row in enumerate(range(rows, rows + len(table))):
            start, size = int(table.offset[at]), int(table.length[at])
            moved = int(block.offset[row])
            if table.kind[at] == 3:
                assert block.data[moved : moved + size].tobytes() == (
                    table.inline[start : start + size].tobytes()
                )
            else:
                assert moved == start
        rows += len(table)
    assert rows == len(block)


@given(
    st.integers(0, 3).flatmap(
        lambda n: st.lists(st.lists(tables(n), min_size=1, max_size=3), min_size=1, max_size=6)
    )
)
def test_blocks_unpacked_together_are_those_unpacked_alone(found):
    """Whatever mixture of dense, sparse, virtual and inline ones stands side by side."""
    blocks = [pack(range(len(each)), each) for each in found]
    together = unpack_all(PackedBlocks.of(blocks), 10 * np.arange(len(blocks)))
    alone = [unpack(each) for each in blocks]
    alone = [replace(b, file=b.file + np.int32(10 * n)) for n, b in enumerate(alone)]
    assert_equal_blocks(together, join(alone))


def assert_equal_blocks(one, other):
    for name in ("file", "index", "kind", "offset", "length", "data", "source"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.targets == other.targets


def test_runs_end_where_there_are_enough_references_or_other_axes():
    flat, deep = (
        pack([0], [ChunkTable.of_inline(index=np.zeros((1, ndim), int), chunks=[b"a"])])
        for ndim in (1, 2)
    )
    runs = PackedBlocks.of([flat, flat, flat, deep, flat]).runs
    assert list(runs(2)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert list(runs(0)) == [(n, n + 1) for n in range(5)]


def test_dense_files_store_no_indices():
    """A file whose chunks fill its grid costs a box, not an index per reference."""
    index = np.indices((10, 20)).reshape(2, -1).T
    table = ChunkTable.virtual(
        index=index, offset=np.arange(200), length=np.ones(200), locations=FILE
    )
    packed = pack([0, 1], [table, table])
    assert packed.index is None
    assert packed.boxes is not None


def test_references_into_other_files_keep_their_targets():
    """The file itself costs no URL; targets are listed once for all files of a block."""
    others = Locations.one("file:///t.nc", last_modified=9) + Locations.one("s3://b/u", etag="e")
    inside = ChunkTable.virtual(index=[[0]], offset=np.ones(1), length=np.ones(1), locations=FILE)
    outside = ChunkTable.concatenate(
        [
            ChunkTable.virtual(
                index=[[0], [1], [3]],
                offset=np.arange(3),
                length=np.ones(3),
                locations=FILE + others,
                source=np.array([2, 0, 1]),
            ),
            ChunkTable.of_inline(index=np.array([[2]]), chunks=[b"x"]),
        ]
    )
    only = ChunkTable.of_inline(index=np.array([[0]]), chunks=[b"y"])
    block = unpack(pack([4, 5, 6], [inside, outside, only], ["file:///a.nc"] * 3))
    targets = ["", *block.targets.url]
    assert [targets[code] for code in block.source] == ["", "s3://b/u", "", "", "file:///t.nc", ""]
    assert sorted(block.targets.url) == ["file:///t.nc", "s3://b/u"]
    assert sorted(block.targets.etag) == ["", "e"]
    assert sorted(block.targets.last_modified.tolist()) == [0, 9]
    assert pack([0], [inside], ["file:///a.nc"]).targets is None
    blocks = [pack([4 + n], [outside], ["file:///a.nc"]) for n in range(2)]
    together = unpack_all(PackedBlocks.of([blocks[0], pack([9], [inside]), blocks[1]]))
    assert_equal_blocks(
        together, join([unpack(each) for each in (blocks[0], pack([9], [inside]), blocks[1])])
    )
    with pytest.raises(FormatError, match="targets"):
        unpack(
            replace(pack([5], [outside], ["file:///a.nc"]), targets=pack_targets(Locations.none()))
        )


SHORTER = {
    "a gap": {"gaps": bytes(15)},
    "a length": {"lengths": bytes(8)},
    "the kinds": {"kinds": b"\2"},
    "an index": {"index": bytes(4), "boxes": None},
    "part of an index": {"index": bytes(3), "boxes": None},
    "a box": {"boxes": b""},
    "a box that is too small": {"boxes": b"\1\0\0\0"},
    "neither box nor index": {"boxes": None},
    "the count of a file": {"counts": b""},
    "part of a file": {"files": b"\0", "counts": b"\2"},
}


@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "beside a good one"])
@pytest.mark.parametrize("damage", SHORTER.values(), ids=SHORTER.keys())
def test_a_column_that_is_cut_short_is_refused(damage, beside):
    """Damage of the catalog is an error, not a wrong reference."""
    table = ChunkTable.virtual(
        index=np.arange(2)[:, None], offset=np.ones(2), length=np.ones(2), locations=FILE
    )
    packed = pack([0], [table])
    with pytest.raises(FormatError, match=r"cut short|damaged"):
        unpack_all(PackedBlocks.of([packed] * beside + [replace(packed, **damage)]))


def test_a_shorter_column_is_refused_by_name():
    table = ChunkTable.virtual(
        index=np.zeros((1, 1)), offset=np.ones(1), length=np.ones(1), locations=FILE
    )
    packed = pack([0], [table])
    with pytest.raises(FormatError, match="cut short"):
        unpack(replace(packed, gaps=packed.gaps[:-1]))


def elsewhere(table, name):
    """The table with a target of its own for each virtual row."""
    virtual = np.flatnonzero(table.kind == 1)
    source = table.source.copy()
    source[virtual] = np.arange(len(virtual))
    urls = Strings.of([f"file:///{name}/{row}" for row in range(len(virtual))])
    count = len(virtual)
    etags, times = Strings.empty(count), np.ones(count, np.uint32)
    places = Locations(url=urls, etag=etags, last_modified=times)
    return replace(table, source=source, locations=places)


@given(st.lists(st.integers(0, 2).flatmap(tables), min_size=1, max_size=4), st.integers(1, 9))
def test_blocks_that_are_unpacked_together_are_what_each_is(found, references):
    """Of different ranks, with inline bytes and targets of their own."""
    packed = [
        pack([5], [elsewhere(table, name)], [FILE.url[0]]) for name, table in enumerate(found)
    ]
    each = list(unpack_each(PackedBlocks.of(packed), references))
    assert len(each) == len(packed)
    for mine, alone in zip(each, map(unpack, packed), strict=True):
        assert mine.targets == alone.targets
        for name in ("file", "index", "kind", "offset", "length", "data", "source"):
            assert np.array_equal(getattr(mine, name), getattr(alone, name))
