"""Declare generation E5: ids are bytes, and chunks lie below their node.

Its last releases write a manifest for each array, with its extents.
"""

from __future__ import annotations

from dataclasses import replace

from icevirt.model.generation import FormatGeneration
from icevirt.wire.legacy import e1, e4
from icevirt.wire.legacy.encoding import pair_id

_EARLIER, _LATER = ("id", "format_version", "size_bytes"), ("num_chunk_refs",)

ENCODING = replace(
    e4.ENCODING,
    generation=FormatGeneration(
        name="E5",
        writers="icechunk 0.1.0a11 to 0.1.0a15",
        written="January 2025",
        lacks=(e1.OLD_HISTORY,),
    ),
    manifest_file=(_EARLIER, _EARLIER + _LATER),
    manifest=(("format_version", "flags", "chunks"), ("format_version", "flags", "id", "chunks")),
    object_id=pair_id(12),
    node_id=pair_id(8),
    by_node=True,
)
