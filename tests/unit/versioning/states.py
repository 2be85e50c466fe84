"""Nodes and snapshots of small repositories, as values."""

import json

import numpy as np

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.snapshot import GroupNode, ManifestRef, Snapshot, node_of
from icevirt.versioning.diff import log_of
from icevirt.versioning.merge.conflicts import Ours


def key(number):
    """Return the id of a node."""
    return ObjectId8(bytes([number]) * 8)


def manifest(number, *box):
    """Return a manifest of a box of chunks."""
    return ManifestRef(object_id=ObjectId12(bytes([number]) * 12), extents=tuple(box))


def group(number, path, **attributes):
    """Return a group."""
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return GroupNode(id=key(number), path=path, user_data=json.dumps(document).encode())


def zarr_json(shape=(4,), edge=1, *, dims=("time",), codecs=("bytes",), **attributes):
    """Return the metadata of an array with chunks of some length along each axis."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [*shape],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [edge] * len(shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": name} for name in codecs],
        "attributes": attributes,
        **({} if dims is None else {"dimension_names": [*dims]}),
    }
    return json.dumps(document).encode()


def array(number, path, *shape, manifests=(), **more):
    """Return an array."""
    return node_of(path, zarr_json(shape or (4,), **more), key(number), manifests)


def snapshot(*nodes, number=1):
    """Return a snapshot of nodes, and of the root group."""
    root = () if any(node.path == "/" for node in nodes) else (group(255, "/"),)
    made = ObjectId12(bytes([number]) * 12)
    return Snapshot(id=made, nodes=(*root, *nodes), flushed_at=number, message="m")


def written(**chunks):
    """Return the chunks that were written, by the number of the array: ``a7=[0, 1]``."""
    return {
        key(int(name[1:])): np.array(sorted(at), np.uint32).reshape(len(at), -1)
        for name, at in chunks.items()
    }


def changes(before, after, **chunks):
    """Return what one writer did."""
    made = log_of(after.id, before.nodes, after.nodes, written(**chunks))
    return Ours(before=before, after=after, log=made)


def table(*index, ndim=1):
    """Return references of some chunks, each with other bytes."""
    rows = np.array(index, np.int64).reshape(len(index), ndim)
    return ChunkTable.virtual(
        index=rows,
        offset=rows.sum(axis=1) * 100 + 7,
        length=np.full(len(rows), 90),
        locations=Locations.one("file:///d/a"),
    )
