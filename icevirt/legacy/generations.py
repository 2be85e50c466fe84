"""The format generations before V1, oldest first, and how a snapshot's bytes tell which one it is.

Each encoding says how it differs from the one before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12, unbase32
from icevirt.legacy import decode
from icevirt.legacy.encoding import (
    HISTORY,
    NODE_SETS,
    Encoding,
    Framing,
    MessagePackFile,
    number_id,
    pair_id,
    refuse_unreleased,
    text_id,
)
from icevirt.model.generation import FormatGeneration
from icevirt.wire.flatbuffer.reader import reading
from icevirt.wire.flatbuffer.schema import Damage
from icevirt.wire.header import FileKind

_OLD_HISTORY = "the ops log; commits that were made before a branch was deleted"
_NO_LOGS = "transaction logs (computed here)"
_NO_CHECKSUMS = "checksums of virtual chunks, so changes of their files go unnoticed"
_MIXED = "certainty which of two arrays of equal rank a chunk belongs to (a bug of the writers)"
_E0_ID = 16  # bytes


def _generation(name: str, writers: str, written: str, *lacks: str) -> FormatGeneration:
    lacks = (_OLD_HISTORY, *lacks)
    return FormatGeneration(name=name, writers=writers, written=written, lacks=lacks)


def rename_id(value: Any) -> bytes:
    """Return the id of 12 bytes that stands for one of 16, as E0 has them."""
    match value:
        case str():
            raw = unbase32(value, _E0_ID)
        case bytes():
            raw = value
        case list() | tuple() if all(type(each) is int and 0 <= each < 256 for each in value):
            raw = bytes(value)
        case _:
            raw = b""
    if len(raw) != _E0_ID:
        raise Damage(f"an id is not {_E0_ID} bytes", 0)
    return ObjectId12.of_content(raw)


# No file of E0 is known. Its document leaves open how values become bytes, so MessagePack and JSON
# are read, structs by name and by position, and ids as numbers, bytes or text.
E0 = Encoding(
    generation=_generation(
        "E0",
        "the first specification, of no release",
        "September and October 2024",
        _NO_LOGS,
        _NO_CHECKSUMS,
        "certainty about what its document leaves open",
    ),
    framing=Framing.document,
    snapshot=(HISTORY,),
    manifest_file=(("id",),),
    manifest_ref=(("object_id", "flags", "extents"),),
    manifest=(("chunks",),),
    object_id=rename_id,
    node_id=number_id,
    ref_id=rename_id,
    numbers_nodes=True,
    renames_root=True,
    short=True,
)
# positional MessagePack without a header
E1 = Encoding(
    generation=_generation(
        "E1", "icechunk 0.1.0a1 to 0.1.0a4", "October 2024", _NO_LOGS, _NO_CHECKSUMS, _MIXED
    ),
    framing=Framing.bare,
    snapshot=(("format_version", "flags", "manifest_files", "attribute_files", *HISTORY),),
    manifest_file=(("id", "format_version"),),
    manifest=(("format_version", "flags", "chunks"),),
    object_id=text_id(12),
    node_id=number_id,
    numbers_nodes=True,
    renames_root=True,
    mixes_arrays=True,
)
# ids of nodes are text, and commits leave transaction logs
E2 = replace(
    E1,
    generation=_generation(
        "E2",
        "icechunk 0.1.0a5 to 0.1.0a7",
        "November and December 2024",
        _NO_CHECKSUMS,
        f"with 0.1.0a5: {_MIXED}",
    ),
    log=(("format_version", *NODE_SETS, "updated_chunks"),),
    node_id=text_id(8),
    numbers_nodes=False,
)
# config.yaml, and checksums of virtual chunks; the last files name the size of manifests, and are
# zstd frames
E3 = replace(
    E2,
    generation=_generation("E3", "icechunk 0.1.0a8 and 0.1.0a9", "December 2024 and January 2025"),
    framing=Framing.zstd,
    manifest_file=(("id", "format_version"), ("id", "format_version", "size_bytes")),
    renames_root=False,
    mixes_arrays=False,
)
# files have the header of today, and are compressed
E4 = replace(
    E3,
    generation=_generation("E4", "icechunk 0.1.0a10", "January 2025"),
    framing=Framing.header,
    snapshot=(("manifest_files", "attribute_files", *HISTORY),),
    manifest_file=(("id", "format_version", "size_bytes"),),
)
# ids are bytes, and chunks lie below their node; the last releases write a manifest for each array,
# with its extents
E5 = replace(
    E4,
    generation=_generation("E5", "icechunk 0.1.0a11 to 0.1.0a15", "January 2025"),
    manifest_file=(*E4.manifest_file, (*E4.manifest_file[0], "num_chunk_refs")),
    manifest=(("format_version", "flags", "chunks"), ("format_version", "flags", "id", "chunks")),
    object_id=pair_id(12),
    node_id=pair_id(8),
    by_node=True,
)
# snapshots name their parent instead of their whole history
E6 = replace(
    E5,
    generation=_generation("E6", "icechunk 0.1.0 to 0.1.3", "January and February 2025"),
    snapshot=(
        (
            *("id", "parent_id", "written_at", "message", "properties"),
            *("manifest_files", "attribute_files", "nodes"),
        ),
    ),
    manifest_file=(("id", "size_bytes", "num_chunk_refs"),),
    manifest=(("id", "chunks"),),
    log=((*NODE_SETS, "updated_chunks"),),
)

ENCODINGS = {each.generation.name: each for each in (E0, E1, E2, E3, E4, E5, E6)}
"""The encodings by the name of their generation, oldest first."""
_FLATBUFFERS = b"Ichk"
_UNHEADED = 11  # fields of a snapshot, in E1 to E3
_HEADED, _LATEST = 9, 8
_EARLIEST = 7


def recognize(raw: bytes, *, has_config: bool) -> Encoding | None:
    """Return the encoding of a snapshot; None if it is empty and may be of several.

    Args:
        raw: The snapshot file.
        has_config: Whether the repository has a ``config.yaml``.

    Raises:
        FormatError: It is of a layout that was never released, or damaged.
    """
    payload, framing = decode.payload(raw, FileKind.snapshot)
    if payload[4:8] == _FLATBUFFERS:
        raise refuse_unreleased("a state of February 2025, between icechunk 0.1.3 and 0.2.0")
    with reading(FileKind.snapshot.name):
        value = MessagePackFile(payload).value()
    size = len(value) if isinstance(value, tuple) else 0
    if size in (_LATEST, _HEADED) and framing is Framing.header:
        if size == _LATEST:
            return E6
        has_text_ids = isinstance(value[5], tuple) and value[5][:1] and type(value[5][0]) is str
        return E4 if has_text_ids else E5
    if size == _UNHEADED and framing in (Framing.bare, Framing.zstd):
        if has_config or framing is Framing.zstd:
            return E3
        nodes = value[-1]
        if not isinstance(nodes, dict) or not nodes:
            return None
        first = next(iter(nodes.values()))
        is_numbered = isinstance(first, tuple) and first and isinstance(first[0], int)
        return E1 if is_numbered else E2
    if size == _EARLIEST and framing is Framing.bare:
        raise refuse_unreleased("a state of September 2024, before the first release")
    raise FormatError(
        "the format generation of this repository is not known",
        do="The snapshot is damaged, or another program wrote it.",
        file=FileKind.snapshot.name,
    )
