"""Read and write the envelope of every metadata file: 39 bytes of header, one zstd frame.

Spec: "Binary File Format". The official reader accepts only zstd, requires a single frame when the
frame declares its size, and refuses bytes behind it; so does icevirt.
"""

from __future__ import annotations

from enum import IntEnum

import zstandard

from icevirt.errors import FormatError
from icevirt.version import __version__

MAGIC = "ICE🧊CHUNK".encode()
IMPLEMENTATION = f"icevirt-{__version__}".encode().ljust(24)
SPEC_VERSION = 2
READABLE = (1, 2)
ZSTD = 1

# name: (offset, size), in the order of the spec's table
FIELDS = {
    "magic": (0, 12),
    "implementation": (12, 24),
    "spec_version": (36, 1),
    "file_type": (37, 1),
    "compression": (38, 1),
}
SIZE = 39

MAX_PAYLOAD = 2**31 - 1  # offsets of FlatBuffers are 31 bits
# No honest file shrinks more than this: every record of every file holds a fresh id or coordinate.
MAX_RATIO = 2000
ALWAYS_ALLOWED = 16 << 20


class FileKind(IntEnum):
    """What a file holds; names and numbers are the spec's."""

    snapshot = 1
    manifest = 2
    transaction_log = 4
    repo_info = 6


def pack(
    kind: FileKind,
    payload: bytes | bytearray | memoryview,
    *,
    level: int = 3,
    spec_version: int = SPEC_VERSION,
) -> bytes:
    """Return the file of this kind around a FlatBuffers payload.

    The frame ends with a checksum, which every decoder of zstd compares.
    """
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    return head(kind, spec_version) + compressor.compress(payload)


def head(kind: FileKind, spec_version: int = SPEC_VERSION) -> bytes:
    """Return the 39 bytes that stand before the compressed payload."""
    return MAGIC + IMPLEMENTATION + bytes((spec_version, kind, ZSTD))


def unpack(raw: bytes | bytearray | memoryview, kind: FileKind) -> tuple[int, bytes]:
    """Split a file into its spec version and its decompressed payload.

    Raises:
        FormatError: The file is not of this kind, of a newer spec, damaged, or claims to
            decompress to more than such a file could.
    """
    view = memoryview(raw)
    spec_version = _check_header(view, kind)
    return spec_version, _decompress(view[SIZE:], kind)


def _check_header(view: memoryview, kind: FileKind) -> int:
    if len(view) < SIZE or view[: len(MAGIC)] != MAGIC:
        raise FormatError(
            "not an Icechunk file",
            do="Check the path; the object is truncated or something else.",
            file=kind.name,
            size=len(view),
        )
    spec_version, found, compression = (
        view[FIELDS[name][0]] for name in ("spec_version", "file_type", "compression")
    )
    if spec_version not in READABLE:
        raise FormatError(
            "this icevirt does not support the spec version of the file",
            do="Upgrade icevirt.",
            file=kind.name,
            spec_version=spec_version,
        )
    if found != kind:
        raise FormatError("this is another kind of file", file=kind.name, file_type=found)
    if compression != ZSTD:
        raise FormatError("unknown compression", file=kind.name, compression=compression)
    return spec_version


def _decompress(frame: memoryview, kind: FileKind) -> bytes:
    limit = min(MAX_PAYLOAD, max(ALWAYS_ALLOWED, MAX_RATIO * len(frame)))
    try:
        declared = zstandard.frame_content_size(frame)
        if declared > limit:
            raise FormatError(
                "the file declares an impossible decompressed size",
                do="It is damaged, or crafted to exhaust memory.",
                file=kind.name,
                claimed=declared,
                limit=limit,
            )
        if declared >= 0:
            payload = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
        else:
            payload = _decompress_unsized(frame, limit, kind)
    except zstandard.ZstdError as error:
        raise FormatError(
            "the compressed payload is damaged",
            do="Restore the object; it was truncated or changed.",
            file=kind.name,
            cause=str(error),
        ) from error
    return payload


def _decompress_unsized(frame: memoryview, limit: int, kind: FileKind) -> bytes:
    """Decompress frames that do not say their size, as writers before 2.2 made them."""
    with zstandard.ZstdDecompressor().stream_reader(frame, read_across_frames=True) as reader:
        parts = []
        while part := reader.read(min(1 << 20, limit + 1)):
            parts.append(part)
            limit -= len(part)
            if limit < 0:
                raise FormatError("the file decompresses to an impossible size", file=kind.name)
    return b"".join(parts)


def described(raw: bytes) -> dict[str, str]:
    """Return what the header of a file says, with the names of icechunk's ``inspect_*`` calls.

    Raises:
        FormatError: It is no such file.
    """
    view = memoryview(raw)
    if len(view) < SIZE or view[: len(MAGIC)] != MAGIC:
        raise FormatError("not an Icechunk file", do="Check the path.", size=len(view))
    start, size = FIELDS["implementation"]
    writer = bytes(view[start : start + size]).decode(errors="replace").strip()
    name, _, version = writer.partition("-")
    kind = view[FIELDS["file_type"][0]]
    known = {each.value: each.name.replace("_", "-") for each in FileKind}
    return {
        "written_by": writer,
        "app_name": name,
        "app_version": version,
        "spec_version": f"{view[FIELDS['spec_version'][0]]}.0",
        "file_type": known.get(kind, str(kind)),
        "compression": "zstd" if view[FIELDS["compression"][0]] == ZSTD else "none",
    }
