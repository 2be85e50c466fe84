"""Declare generation E4: files have the header of today, and are compressed."""

from __future__ import annotations

from dataclasses import replace

from icevirt.model.generation import FormatGeneration
from icevirt.wire.legacy import e1, e3
from icevirt.wire.legacy.encoding import HISTORY, Framing

ENCODING = replace(
    e3.ENCODING,
    generation=FormatGeneration(
        name="E4",
        writers="icechunk 0.1.0a10",
        written="January 2025",
        lacks=(e1.OLD_HISTORY,),
    ),
    framing=Framing.header,
    snapshot=(("manifest_files", "attribute_files", *HISTORY),),
    manifest_file=(("id", "format_version", "size_bytes"),),
)
