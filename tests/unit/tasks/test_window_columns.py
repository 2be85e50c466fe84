"""Blocks of a window are put where an obvious loop puts them, in memory that is used again."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.blocks.packing import Block
from icevirt.archive.facts import FileColumns
from icevirt.archive.plan import ArrayMode, WindowTask
from icevirt.catalog.task_inputs import TaskFiles
from icevirt.ids import ObjectId8
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.window_tables import WindowColumns

WIDTH = 3  # chunks along the second axis
OTHERS = ("s3://other/a", "s3://other/b")


def described(steps):
    """Return files of so many chunks along the first axis, one behind the other, and the window."""
    count, length = len(steps), np.array(steps, np.int64)
    files = FileColumns(
        parts=("run-0",),
        part=np.zeros(count, np.int32),
        row=np.arange(count, dtype=np.int32),
        url=Strings.of([f"s3://b/{n}" for n in range(count)]),
        etag=Strings.of([f"e{n}" for n in range(count)]),
        size=np.full(count, 1 << 40),
        last_modified=np.zeros(count, np.int64),
    )
    window = WindowTask(
        source_path="/v",
        node_id=ObjectId8(bytes(8)),
        mode=ArrayMode.concat,
        axes=(0,),
        box=(),
        zarr_json=b"{}",
        chunk_shape=(1, 1),
        direct=True,
        shape=(int(length.sum()), WIDTH),
        takes=np.ones(count, np.bool_),
        starts=(np.cumsum(length) - length)[:, None],
        lengths=length[:, None],
        whole=np.zeros(count, np.bool_),
        whole_schema=None,
    )
    return TaskFiles(MemoryStorage(), files, led=("s3://other/",)), window


def block_of(rows, ndim):
    """Return a block of (file, index, kind, offset, length, target or None) rows."""
    file, index, kind, offset, length, target = zip(*rows, strict=True)
    inline = [
        size if each == ChunkType.inline else 0 for each, size in zip(kind, length, strict=True)
    ]
    starts = np.cumsum([0, *inline])[:-1]
    offset = [
        at if each == ChunkType.inline else near
        for each, at, near in zip(kind, starts, offset, strict=True)
    ]
    data = b"".join(bytes([number]) * size for number, size in zip(file, inline, strict=True))
    used = sorted({each for each in target if each is not None})
    return Block(
        file=np.array(file, np.int32),
        index=np.array(index, np.uint32).reshape(len(rows), ndim),
        kind=np.array(kind, np.uint8),
        offset=np.array(offset, np.uint64),
        length=np.array(length, np.uint64),
        data=np.frombuffer(data, np.uint8),
        source=np.array(
            [0 if each is None else 1 + used.index(each) for each in target], np.uint32
        ),
        targets=Locations(
            url=Strings.of([OTHERS[each] for each in used]),
            etag=Strings.empty(len(used)),
            last_modified=np.zeros(len(used), np.uint32),
        )
        if used
        else Locations.none(),
    )


def said(table):
    """Return what a table says of each chunk."""
    found = {}
    for row, index in enumerate(table.index.tolist()):
        at, size = int(table.offset[row]), int(table.length[row])
        if table.kind[row] == ChunkType.inline:
            found[tuple(index)] = table.inline[at : at + size].tobytes()
        else:
            found[tuple(index)] = table.locations.url[int(table.source[row])], at, size
    return found


@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=5), st.booleans())
def test_references_are_put_where_a_loop_puts_them(data, steps, has_axis):
    files, window = described(steps)
    rows, expected = [], {}
    for file, (length, start) in enumerate(zip(steps, window.starts[:, 0].tolist(), strict=True)):
        indices = [(step, x) for step in range(length) for x in range(WIDTH)]
        if not has_axis:  # the variable has no first axis: its chunk counts for every step
            indices = [(x,) for x in range(WIDTH)]
        for index in data.draw(st.lists(st.sampled_from(indices), unique=True)):
            kind = data.draw(
                st.sampled_from([ChunkType.virtual, ChunkType.virtual, ChunkType.inline])
            )
            size, offset = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 99))
            target = None
            if kind == ChunkType.virtual:
                target = data.draw(st.sampled_from([None, None, 0, 1]))
            rows.append((file, index, kind, offset, size, target))
            url = f"s3://b/{file}" if target is None else OTHERS[target]
            what = bytes([file]) * size if kind == ChunkType.inline else (url, offset, size)
            places = [start + index[0]] if has_axis else range(start, start + length)
            expected |= {(place, index[-1]): what for place in places}
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    columns = WindowColumns(files, window)
    for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if low < high:
            columns.add(block_of(rows[low:high], 2 if has_axis else 1))
    table = columns.table()
    assert said(table) == expected
    assert sorted(expected) == [*map(tuple, table.index.tolist())]
    used = [url for url in table.locations.url if url not in OTHERS]
    assert used == sorted(set(used))  # each file once, in order


FILES, EACH = 100, 2000


def large(columns):
    """Add as many references as take some megabytes."""
    index = np.indices((EACH, 1), np.uint32).reshape(2, -1)
    for file in range(FILES):
        columns.add(
            Block(
                file=np.full(EACH, file, np.int32),
                index=index.T,
                kind=np.full(EACH, ChunkType.virtual, np.uint8),
                offset=np.arange(EACH, dtype=np.uint64),
                length=np.ones(EACH, np.uint64),
                data=np.zeros(0, np.uint8),
                source=np.zeros(EACH, np.uint32),
                targets=Locations.none(),
            )
        )
    return columns.table()


def test_a_window_is_in_memory_once():
    """Nothing of its size is made beside the columns of its table."""
    files, window = described([EACH] * FILES)
    row = 8 + 8 + 4 * 2 + 4 + 1
    large(WindowColumns(files, window))
    tracemalloc.start()
    try:
        table = large(WindowColumns(files, window))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == FILES * EACH
    assert peak < 1.3 * row * len(table)


def test_the_next_window_uses_the_memory_of_the_last():
    files, window = described([EACH] * FILES)
    table = large(WindowColumns(files, window))
    place = table.offset.__array_interface__["data"][0]
    del table
    table = large(WindowColumns(files, window))
    assert table.offset.__array_interface__["data"][0] == place


@pytest.mark.parametrize("ends", [(1 << 40) + 1, 1 << 64])
def test_a_reference_beyond_its_file_is_refused(ends):
    from icevirt.errors import FormatError

    files, window = described([1])
    row = (0, (0, 0), ChunkType.virtual, ends - 8, 8, None)
    with pytest.raises(FormatError, match="beyond the end of its file"):
        WindowColumns(files, window).add(block_of([row], 2))
