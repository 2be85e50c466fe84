"""Files in columns are the sequence of files that they were made of."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.model import strings
from icevirt.model.strings import FoldingStrings, Strings

FILES = st.lists(
    st.builds(
        SourceFile,
        url=st.text(st.characters(codec="utf-8"), max_size=8),
        size=st.integers(0, 2**62),
        etag=st.text("abcé", max_size=4),
        last_modified=st.integers(0, 2**62),
    ),
    max_size=9,
)


@given(FILES, st.slices(9), st.integers(0, 3))
def test_they_are_the_files_they_were_made_of(files, some, blocks):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FoldingStrings, "block_rows", 4)
        patched.setattr(strings, "_OPEN_BLOCKS", blocks)
        columns = SourceFiles(iter(files))
        _check(columns, files, some)


def _check(columns, files, some):
    """In blocks of the size that is set."""
    assert list(columns) == files
    assert len(columns) == len(files)
    assert columns[some] == tuple(files[some])
    assert [columns[at] for at in range(-len(files), len(files))] == files * 2
    assert pickle.loads(pickle.dumps(columns)) == columns == SourceFiles(files)
    columns.fold()
    assert pickle.loads(pickle.dumps(columns)) == columns == SourceFiles(files)
    columns.fold()
    assert list(columns) == files
    for at in (len(files), -len(files) - 1):
        with pytest.raises(IndexError):
            columns[at]
    assert (columns == SourceFiles(files[1:])) == (not files)


def test_folded_files_take_little_memory_until_they_are_read():
    columns = SourceFiles(
        SourceFile(url=f"s3://bucket/archive/{n:09}.nc", size=1, etag="", last_modified=1)
        for n in range(10_000)
    )
    shared, open_size = columns.urls, columns.urls.nbytes
    columns.fold()
    assert shared.nbytes < open_size / 8
    assert len(shared) == 10_000
    assert columns[9_999].url == "s3://bucket/archive/000009999.nc"
    assert list(shared) == [f"s3://bucket/archive/{n:09}.nc" for n in range(10_000)]


@given(st.lists(st.text("aé", max_size=3), max_size=13), st.integers(0, 3), st.data())
def test_strings_in_blocks_are_one_column(texts, blocks, data):
    """Whichever blocks are compressed, they are read as if none was."""
    plain = Strings.of(texts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FoldingStrings, "block_rows", 4)
        patched.setattr(strings, "_OPEN_BLOCKS", blocks)
        column = FoldingStrings(Strings.of(texts[low : low + 4]) for low in range(0, len(texts), 4))
        rows = np.array(
            data.draw(st.lists(st.integers(0, len(texts) - 1) if texts else st.nothing())), np.int64
        )
        prefix = data.draw(st.sampled_from([b"", b"a", "aé".encode()]))
        for _ in range(2):
            assert list(column) == texts
            assert [column[row] for row in range(len(texts))] == texts
            assert column.open_all() == plain
            assert (column.data == plain.data).all()
            assert column.starts.tolist() == plain.starts.tolist()
            assert column.lengths.tolist() == plain.lengths.tolist()
            assert column[rows] == plain[rows]
            assert column.hashes().tolist() == plain.hashes().tolist()
            assert (column.begin_with(prefix) == plain.begin_with(prefix)).all()
            assert (column.begin_with(prefix, rows) == plain.begin_with(prefix, rows)).all()
            column.fold()
