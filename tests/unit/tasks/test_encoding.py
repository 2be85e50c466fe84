"""Values that were read at scan time are encoded as zarr would, and decoded back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from icevirt.archive.schema import ArraySchema
from icevirt.errors import FormatError
from icevirt.tasks import chunk_encoding

ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


def codecs(endian, compressed):
    return [{"name": "bytes", "configuration": {"endian": endian}}, *([ZSTD] if compressed else [])]


def document(values, edges, steps, fill, chain):
    """The zarr.json of an array that holds the values, beginning ``steps`` chunks in."""
    shape = [n + s * e for n, s, e in zip(values.shape, steps, edges, strict=True)]
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": values.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": edges}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": chain,
            "attributes": {},
        }
    ).encode()


@given(
    st.sampled_from(["i1", "u2", "i4", "u8", "f4", "f8"]).flatmap(
        lambda d: arrays.arrays(d, arrays.array_shapes(min_dims=0, max_dims=3, max_side=5))
    ),
    st.sampled_from(["little", "big"]),
    st.booleans(),
    st.data(),
)
def test_plain_numbers_are_encoded_as_zarr_encodes_them(values, endian, compressed, data):
    """Chunk for chunk the same values; without compression the same bytes, padding included."""
    edges = [data.draw(st.integers(1, 4)) for _ in values.shape]
    steps = [data.draw(st.integers(0, 2)) for _ in values.shape]
    fills = [7, "NaN", "-Infinity", "Infinity"] if values.dtype.kind == "f" else [7]
    raw = document(
        values, edges, steps, data.draw(st.sampled_from(fills)), codecs(endian, compressed)
    )
    at = tuple(s * e for s, e in zip(steps, edges, strict=True))
    theirs = chunk_encoding._encode_by_zarr(json.loads(raw), values, at)
    ours = chunk_encoding.encode_chunks(raw, values, at, len(theirs))
    assert [tuple(index) for index in ours.index.tolist()] == sorted(theirs)
    for row, key in enumerate(sorted(theirs)):
        start, size = int(ours.offset[row]), int(ours.length[row])
        chunk = ours.inline[start : start + size].tobytes()
        if compressed:
            schema = ArraySchema(
                dimension_names=(),
                chunk_shape=None,
                data_type=values.dtype.name,
                codecs=tuple(codecs(endian, True)),
                fill_value=0,
            )
            both = [
                chunk_encoding.decode_whole(schema, tuple(edges), each)
                for each in (chunk, theirs[key])
            ]
            np.testing.assert_array_equal(*both)
        else:
            assert chunk == theirs[key]


@given(arrays.arrays("f8", arrays.array_shapes(min_dims=0, max_dims=3, max_side=5)))
def test_what_was_stored_whole_decodes_as_zarr_decodes_it(values):
    """NaN and infinities included."""
    schema = ArraySchema(
        dimension_names=(None,) * values.ndim,
        chunk_shape=None,
        data_type="float64",
        codecs=tuple(codecs("little", False)),
        fill_value=0,
    )
    raw = values.astype("<f8").tobytes()
    ours = chunk_encoding.decode_whole(schema, values.shape, raw)
    assert ours.tobytes() == chunk_encoding._decode_by_zarr(schema, values.shape, raw).tobytes()


def test_strings_are_left_to_zarr():
    """Their codec is zarr's own."""
    values = np.array(["a", "", "ünï"], object)
    schema = ArraySchema(
        dimension_names=("x",),
        chunk_shape=None,
        data_type="string",
        codecs=({"name": "vlen-utf8", "configuration": {}},),
        fill_value="",
    )
    made = json.loads(document(np.zeros(3), [3], [0], "", [{"name": "vlen-utf8"}]))
    table = chunk_encoding.encode_chunks(
        json.dumps({**made, "data_type": "string"}).encode(), values, (0,), 1
    )
    assert (
        chunk_encoding.decode_whole(schema, (3,), table.inline.tobytes()).tolist()
        == values.tolist()
    )


def test_a_chunk_of_a_wrong_size_is_refused():
    """A damaged catalog gives no values."""
    schema = ArraySchema(
        dimension_names=("x",), chunk_shape=None, data_type="int32", codecs=("bytes",), fill_value=0
    )
    with pytest.raises(FormatError, match="wrong size"):
        chunk_encoding.decode_whole(schema, (3,), b"1234")


def test_a_wrong_number_of_chunks_is_refused():
    """The plan and the values must agree."""
    raw = document(np.zeros(4), [2], [0], 0.0, codecs("little", False))
    with pytest.raises(FormatError, match="wrong number"):
        chunk_encoding.encode_chunks(raw, np.zeros(4), (0,), 3)


@pytest.mark.parametrize("value", [7, 0])
def test_a_chunk_of_nothing_but_fill_values_is_encoded_like_any_other(value):
    """By zarr too, which would rather leave such a chunk out."""
    shuffle = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
    chunk = np.full((2, 3), value, "i4")
    raw = json.loads(document(chunk, [2, 3], [0, 0], 7, [*codecs("little", False), shuffle]))
    made = chunk_encoding.ChunkEncoder(raw).encode(chunk)
    assert len(made) == chunk.nbytes
    shuffled = np.frombuffer(chunk.tobytes(), np.uint8).reshape(6, 4).T
    assert made == shuffled.tobytes()
