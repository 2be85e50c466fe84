"""Find which part of a dataset each file holds, from the references of some manifests.

Rows are files: a file has a box of elements along each dimension that was asked for, and references
of one manifest become as many rows as they have files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.access.columns.stored_array import open_array
from icevirt.catalog.arrow_columns import text_column
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.repo.commits.validation import any_grid
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage
from icevirt.tasks.verify.references import bounds, dimensions_of
from icevirt.versioning.lookup import users_of

KEYS = ("url", "etag", "last_modified")
"""Columns that say which file a row is about."""

_NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBoxesTask:
    """Some manifests of one snapshot, and the dimensions along which files are placed."""

    repo: Storage
    snapshot_id: str
    manifests: tuple[bytes, ...]
    group: str
    dimensions: tuple[str, ...]


def find_source_boxes(task: SourceBoxesTask) -> bytes:
    """Return the files, and the elements that each holds: from ``low_NAME`` up to ``high_NAME``.

    They are a stream of Arrow: a pickled table repeats, for each batch, the buffers of all batches.
    """
    session = Repository.open(task.repo).readonly_session(snapshot_id=task.snapshot_id)
    prefix = task.group.rstrip("/") + "/"
    found = []
    for key, users in users_of(session.snapshot.arrays(), task.manifests).items():
        for node_id, table in session.assets.read_manifest(key).arrays.items():
            node = users.get(node_id)
            if node is None or not node.path.startswith(prefix):
                continue
            with any_grid():
                held = open_array(session, node.path)
            names, edges = dimensions_of(held), bounds(held)
            axes = {
                name: (names.index(name), edges[names.index(name)])
                for name in task.dimensions
                if name in names
            }
            found.append(_boxes(table, axes, task.dimensions))
    boxes = join_boxes(found, task.dimensions)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, boxes.schema) as stream:
        stream.write_table(boxes)
    return sink.getvalue().to_pybytes()


def read_boxes(raw: bytes) -> pa.Table:
    """Return what a task found."""
    return pa.ipc.open_stream(raw).read_all()


def join_boxes(tables: Iterable[pa.Table], dimensions: Iterable[str]) -> pa.Table:
    """Return one row a file, with the box around those of all rows."""
    ranges: list[Any] = [(f"{end}_{name}", kind) for name in dimensions for end, kind in _ENDS]
    types: dict[str, Any] = {"url": pa.large_string(), "etag": pa.large_string()}
    types |= dict.fromkeys(["last_modified", *(name for name, _ in ranges)], pa.int64())
    schema = pa.schema(types)
    whole = pa.concat_tables([schema.empty_table(), *tables])
    joined = whole.group_by(list(KEYS), use_threads=False).aggregate(ranges)
    return joined.rename_columns({f"{name}_{kind}": name for name, kind in ranges}).cast(schema)


_ENDS = (("low", "min"), ("high", "max"))


def _boxes(
    table: ChunkTable,
    axes: dict[str, tuple[int, NDArray[np.int64]]],
    dimensions: Iterable[str],
) -> pa.Table:
    virtual = table.take(table.kind == ChunkType.virtual)
    source = virtual.source.astype(np.int64)
    files = np.unique(source)
    columns = {
        "url": text_column(table.locations.url[files]),
        "etag": text_column(table.locations.etag[files]),
        "last_modified": pa.array(table.locations.last_modified[files].astype(np.int64)),
    }
    for name in dimensions:
        low = np.full(len(table.locations), _NOWHERE, np.int64)
        high = np.full(len(table.locations), -1, np.int64)
        if name in axes:
            axis, edges = axes[name]
            chunk = virtual.index[:, axis].astype(np.int64)
            np.minimum.at(low, source, edges[chunk])
            np.maximum.at(high, source, edges[chunk + 1])
        unknown = high[files] < 0
        columns[f"low_{name}"] = pa.array(low[files], mask=unknown)
        columns[f"high_{name}"] = pa.array(high[files], mask=unknown)
    return pa.table(columns)
