"""Values read through references are those of the array, however its chunks are run together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.scan import values


def array_of(data, edges, keep):
    """Cut an array into chunks that lie behind each other in one file; return both."""
    grid = [-(-n // e) for n, e in zip(data.shape, edges, strict=True)]
    cells = [cell for cell in np.ndindex(*grid) if keep(cell)]
    bodies = []
    for cell in cells:
        chunk = np.full(edges, -1, data.dtype)
        part = data[tuple(slice(c * e, c * e + e) for c, e in zip(cell, edges, strict=True))]
        chunk[tuple(slice(n) for n in part.shape)] = part
        bodies.append(chunk.tobytes())
    size = np.dtype(data.dtype).itemsize * int(np.prod(edges))
    table = ChunkTable.virtual(
        index=np.array(cells, np.int64).reshape(len(cells), data.ndim),
        offset=size * np.arange(len(cells)),
        length=np.full(len(cells), size),
        locations=Locations.one("file:///x"),
    )
    scanned = ScannedArray(
        path="/v",
        dimension_names=(None,) * data.ndim,
        shape=data.shape,
        chunk_shape=edges,
        data_type="int32",
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        fill_value=-7,
        references=table,
    )
    return scanned, b"".join(bodies)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), max_size=3),
    st.integers(1, 9),
    st.integers(1, 200),
    st.integers(1, 5),
)
def test_values_are_those_of_the_array(axes, chunks, nbytes, every):
    shape, edges = tuple(n for n, _ in axes), tuple(e for _, e in axes)
    data = np.arange(int(np.prod(shape)), dtype="<i4").reshape(shape)
    scanned, raw = array_of(data, edges, lambda cell: sum(cell) % every == 0)
    wanted = data.copy()
    for cell in np.ndindex(*(-(-n // e) for n, e in axes)):
        if sum(cell) % every:
            wanted[tuple(slice(c * e, c * e + e) for c, e in zip(cell, edges, strict=True))] = -7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_CHUNKS", chunks)
        patch.setattr(values, "_BYTES", nbytes)
        found = values.read(scanned, lambda _, at, n: raw[at : at + n])
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.ci
def test_many_small_chunks_are_read_in_few_runs():
    scanned, raw = array_of(np.arange(5000, dtype="<i4"), (1,), lambda _: True)
    assert len(list(values.pieces(scanned, lambda _, at, n: raw[at : at + n]))) == 5


def test_a_chunk_that_is_cut_short_is_an_error():
    scanned, raw = array_of(np.arange(6, dtype="<i4"), (2,), lambda _: True)
    with pytest.raises(ScanError, match="outside its file"):
        values.read(scanned, lambda _, at, n: raw[at : at + n - 1])
