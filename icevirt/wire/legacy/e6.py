"""Declare generation E6: snapshots name their parent instead of their whole history."""

from __future__ import annotations

from dataclasses import replace

from icevirt.model.generation import FormatGeneration
from icevirt.wire.legacy import e1, e5
from icevirt.wire.legacy.encoding import NODE_SETS

ENCODING = replace(
    e5.ENCODING,
    generation=FormatGeneration(
        name="E6",
        writers="icechunk 0.1.0 to 0.1.3",
        written="January and February 2025",
        lacks=(e1.OLD_HISTORY,),
    ),
    snapshot=(
        (
            "id",
            "parent_id",
            "written_at",
            "message",
            "properties",
            "manifest_files",
            "attribute_files",
            "nodes",
        ),
    ),
    manifest_file=(("id", "size_bytes", "num_chunk_refs"),),
    manifest=(("id", "chunks"),),
    log=((*NODE_SETS, "updated_chunks"),),
)
