"""Declare generation E1, the first release: positional MessagePack without a header."""

from __future__ import annotations

from icevirt.model.generation import FormatGeneration
from icevirt.wire.legacy.encoding import HISTORY, Encoding, Framing, number_id, text_id

OLD_HISTORY = "the ops log; commits that were made before a branch was deleted"
NO_CHECKSUMS = "checksums of virtual chunks, so changes of their files go unnoticed"
MIXED = "certainty which of two arrays of equal rank a chunk belongs to (a bug of the writers)"
FLAT = ("format_version", "flags", "manifest_files", "attribute_files")

ENCODING = Encoding(
    generation=FormatGeneration(
        name="E1",
        writers="icechunk 0.1.0a1 to 0.1.0a4",
        written="October 2024",
        lacks=(OLD_HISTORY, "transaction logs (computed here)", NO_CHECKSUMS, MIXED),
    ),
    framing=Framing.bare,
    snapshot=((*FLAT, *HISTORY),),
    manifest_file=(("id", "format_version"),),
    manifest=(("format_version", "flags", "chunks"),),
    object_id=text_id(12),
    node_id=number_id,
    numbers_nodes=True,
    renames_root=True,
    mixes_arrays=True,
)
