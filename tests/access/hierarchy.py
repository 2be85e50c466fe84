"""Documents, keys and bytes that a session holds: those of a zarr hierarchy."""

import json

from zarr.core.buffer import cpu

GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}


def array(*chunks):
    """Return the document of an array of so many chunks along each dimension."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(chunks),
        "data_type": "uint32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * len(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    }


HIERARCHY = {
    "zarr.json": GROUP,
    "foo/zarr.json": array(20, 20),
    "scalar/zarr.json": array(),
    "foo-bar/zarr.json": GROUP,
    "foo-bar/deep/zarr.json": array(20),
}


def buffer(value):
    """Return bytes as they are, and a document as JSON, as zarr's stores take them."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return cpu.Buffer.from_bytes(raw)
