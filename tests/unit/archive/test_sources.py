"""Files in columns are the sequence of files that they were made of."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive import sources
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles

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


@given(FILES, st.slices(9))
def test_they_are_the_files_they_were_made_of(files, some):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "_AT_ONCE", 4)
        columns = SourceFiles(iter(files))
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
    assert shared.nbytes > open_size
    columns.fold()
    assert shared.nbytes < open_size / 8
