"""Declare generation E3: ``config.yaml``, and checksums of virtual chunks.

Its last files name the size of manifests, and are zstd frames.
"""

from __future__ import annotations

from dataclasses import replace

from icevirt.model.generation import FormatGeneration
from icevirt.wire.legacy import e1, e2
from icevirt.wire.legacy.encoding import Framing

ENCODING = replace(
    e2.ENCODING,
    generation=FormatGeneration(
        name="E3",
        writers="icechunk 0.1.0a8 and 0.1.0a9",
        written="December 2024 and January 2025",
        lacks=(e1.OLD_HISTORY,),
    ),
    framing=Framing.zstd,
    manifest_file=(("id", "format_version"), ("id", "format_version", "size_bytes")),
    renames_root=False,
    mixes_arrays=False,
)
