"""Declare generation E2: ids of nodes are text, and commits leave transaction logs."""

from __future__ import annotations

from dataclasses import replace

from icevirt.model.generation import FormatGeneration
from icevirt.wire.legacy import e1
from icevirt.wire.legacy.encoding import NODE_SETS, text_id

ENCODING = replace(
    e1.ENCODING,
    generation=FormatGeneration(
        name="E2",
        writers="icechunk 0.1.0a5 to 0.1.0a7",
        written="November and December 2024",
        lacks=(e1.OLD_HISTORY, e1.NO_CHECKSUMS, f"with 0.1.0a5: {e1.MIXED}"),
    ),
    log=(("format_version", *NODE_SETS, "updated_chunks"),),
    node_id=text_id(8),
    numbers_nodes=False,
)
