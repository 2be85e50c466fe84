"""Read and write the envelope of every metadata file: 39 bytes of header, one zstd frame.

Spec: "Binary File Format". The official reader accepts only zstd, requires a single frame when the
frame declares its size, and refuses bytes behind it; so does icevirt.

A manifest holds its own id, and the id is a digest of the manifest. The id lies in an uncompressed
block in front of the frame: everything else is compressed first, the compressed bytes are digested
(a sixth of the work of digesting the payload), and then the id is put in place. So the name of a
manifest covers its very bytes, whichever library and level made them. RFC 8878: 3.1.1.1 frame
header, 3.1.1.2 blocks. Distances to earlier bytes count backwards, so blocks mean the same behind
one more block.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import cache

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.errors import FormatError, SpecVersionError
from icevirt.ids import ObjectId12
from icevirt.version import __version__

_LARGE = 4 * 1024 * 1024  # bytes; the allocator keeps less by itself
_MOST = 64 * 1024 * 1024  # bytes that are kept

_spare: deque[NDArray[np.uint8]] = deque(maxlen=1)


def empty_bytes(size: int) -> NDArray[np.uint8]:
    """Return an array of so many bytes, of any content."""
    if not _LARGE <= size <= _MOST:
        return np.empty(size, np.uint8)
    try:
        owner = _spare.pop()
    except IndexError:
        owner = np.empty(size, np.uint8)
    if not size <= len(owner) <= 2 * size:
        owner = np.empty(size, np.uint8)
    # every view of it refers to the array, as its memory belongs to no array that numpy knows
    made = np.frombuffer(memoryview(owner)[:size], np.uint8)
    weakref.finalize(made, _spare.append, owner).atexit = False
    return made


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

# of zstd frames
_MAGIC_SIZE = 4
_BLOCK = 128 << 10  # bytes; less than that is one block
_SINGLE_SEGMENT = 1 << 5
_EIGHT_BYTE_SIZE = 3 << 6
_SIZE_WIDTHS = (1, 2, 4, 8)  # a single segment always declares its size
_SIZE_LIMITS = (256, 65_536 + 256, 0xFFFFFFFF)  # from which zstd takes the next width


class FileKind(IntEnum):
    """What a file holds; names and numbers are the spec's."""

    snapshot = 1
    manifest = 2
    transaction_log = 4
    repo_info = 6


class _Compressors(threading.local):
    """The compressors of a thread: memory that is used again need not be cleared again."""

    def __init__(self) -> None:
        self.of = cache(
            lambda level, checksum: zstandard.ZstdCompressor(level=level, write_checksum=checksum)
        )


_COMPRESSORS = _Compressors()


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
    return head(kind, spec_version) + _COMPRESSORS.of(level, True).compress(payload)


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
    return spec_version, decompress(view[SIZE:], kind)


def _check_header(view: memoryview, kind: FileKind) -> int:
    _check_magic(view, file=kind.name)
    spec_version, found, compression = view[FIELDS["spec_version"][0] : SIZE]
    if spec_version not in READABLE:
        raise SpecVersionError(
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


def _check_magic(view: memoryview, **facts: str) -> None:
    if len(view) < SIZE or view[: len(MAGIC)] != MAGIC:
        raise FormatError(
            "not an Icechunk file",
            do="Check the path; the object is truncated or something else.",
            **facts,
            size=len(view),
        )


def unpack_array(raw: bytes | memoryview, kind: FileKind) -> tuple[NDArray[np.uint8], int]:
    """Return the decompressed payload of a large file as an array, and its size.

    Up to three zeros follow the payload, so that the array is a whole number of words. numpy takes
    large pages for it, which halves the time of decompressing into bytes. Raises as `unpack`.
    """
    view = memoryview(raw)
    _check_header(view, kind)
    frame = view[SIZE:]
    with _refusing_damage(kind):
        declared = _check_declared_size(frame, kind)
        if declared <= 0:
            data = np.frombuffer(decompress(frame, kind), np.uint8)
            return np.pad(data, (0, -len(data) % 4)), len(data)
        padded = empty_bytes(declared + -declared % 4)
        padded[declared:] = 0
        with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
            got = reader.readinto(padded[:declared])
        if got != declared or _frame_size(frame) != len(frame):
            raise zstandard.ZstdError("the frame is cut short, or something follows it")
    return padded, declared


def decompress(frame: memoryview, kind: FileKind) -> bytes:
    """Return the content of a zstd frame. Raises ``FormatError``, also for an impossible size."""
    with _refusing_damage(kind):
        if _check_declared_size(frame, kind) >= 0:
            return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
        limit = _size_limit(frame)
        with zstandard.ZstdDecompressor().stream_reader(frame, read_across_frames=True) as reader:
            parts = []
            while part := reader.read(min(1 << 20, limit + 1)):
                parts.append(part)
                limit -= len(part)
                if limit < 0:
                    raise FormatError("the file decompresses to an impossible size", file=kind.name)
        return b"".join(parts)


@contextmanager
def _refusing_damage(kind: FileKind) -> Iterator[None]:
    try:
        yield
    except zstandard.ZstdError as error:
        raise FormatError(
            "the compressed payload is damaged",
            do="Restore the object; it was truncated or changed.",
            file=kind.name,
            cause=str(error),
        ) from error


def _check_declared_size(frame: memoryview, kind: FileKind) -> int:
    """Return the size that a frame declares, a possible one; -1 where it declares none."""
    declared = zstandard.frame_content_size(frame)
    if declared > (limit := _size_limit(frame)):
        raise FormatError(
            "the file declares an impossible decompressed size",
            do="It is damaged, or crafted to exhaust memory.",
            file=kind.name,
            claimed=declared,
            limit=limit,
        )
    return declared


def _size_limit(frame: memoryview) -> int:
    return min(MAX_PAYLOAD, max(ALWAYS_ALLOWED, MAX_RATIO * len(frame)))


def _frame_size(frame: memoryview) -> int:
    """Return the bytes of the frame that decompressed; less than all where something follows it."""
    at, last = zstandard.frame_header_size(frame), False
    while not last and at < len(frame):
        block = int.from_bytes(frame[at : at + 3], "little")
        last, repeats = bool(block & 1), block >> 1 & 3 == 1  # a run is stored as one byte
        at += 3 + (1 if repeats else block >> 3)
    return at + 4 * zstandard.get_frame_parameters(frame).has_checksum


def describe_header(raw: bytes) -> dict[str, str]:
    """Return what the header of a file says, with the names of icechunk's ``inspect_*`` calls.

    Raises:
        FormatError: It is no such file.
    """
    view = memoryview(raw)
    _check_magic(view)
    writer = bytes(view[len(MAGIC) : len(MAGIC) + 24]).decode(errors="replace").strip()
    name, _, version = writer.partition("-")
    spec_version, kind, compression = view[FIELDS["spec_version"][0] : SIZE]
    known = {each.value: each.name.replace("_", "-") for each in FileKind}
    return {
        "written_by": writer,
        "app_name": name,
        "app_version": version,
        "spec_version": f"{spec_version}.0",
        "file_type": known.get(kind, str(kind)),
        "compression": "zstd" if compression == ZSTD else "none",
    }


def compress(
    parts: Iterable[NDArray[np.uint8]], size: int, level: int, *, checksum: bool
) -> list[bytes]:
    """Return one frame, in pieces, of ``size`` bytes that come in parts; none outlasts its turn.

    Few bytes are compressed in memory that the thread keeps, which makes the same frame. Every
    decoder of zstd compares a checksum. `with_raw_start` needs a frame without one.
    """
    if size < _BLOCK:  # the frame is the same, however its content comes
        content = b"".join([part.tobytes() for part in parts])
        return [_COMPRESSORS.of(level, checksum).compress(content)]
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=checksum).compressobj(
        size=size
    )
    made = [compressor.compress(memoryview(part)) for part in parts]
    return [piece for piece in (*made, compressor.flush()) if piece]


def with_raw_start(head: bytes, start: bytes, pieces: Sequence[bytes]) -> bytes:
    """Return ``head`` and a frame: ``start``, in a raw block, and then the content of a frame.

    Its pieces are copied once; what precedes its blocks lies in the first one.
    """
    frame, *others = pieces
    descriptor = frame[_MAGIC_SIZE]
    single = descriptor & _SINGLE_SEGMENT
    # without a window descriptor, the window is the whole content
    window = b"" if single else frame[_MAGIC_SIZE + 1 : _MAGIC_SIZE + 2]
    blocks = _MAGIC_SIZE + 1 + len(window) + _SIZE_WIDTHS[descriptor >> 6]
    size = zstandard.frame_content_size(frame) + len(start)
    made = (head, frame[:_MAGIC_SIZE], bytes((_EIGHT_BYTE_SIZE | single,)), window)
    block = (len(start) << 3).to_bytes(3, "little")  # not the last one, raw
    sizes = (size.to_bytes(8, "little"), block)
    return b"".join((*made, *sizes, start, memoryview(frame)[blocks:], *others))


def without_raw_start(file: bytes, head: int) -> tuple[bytes, bytes] | None:
    """Undo `with_raw_start`, given the size of its ``head``: return ``start`` and ``frame``.

    None for a frame that it did not make.
    """
    data = memoryview(file)[head:]
    if len(data) < _MAGIC_SIZE + 1 or data[_MAGIC_SIZE] & ~_SINGLE_SEGMENT != _EIGHT_BYTE_SIZE:
        return None
    single = data[_MAGIC_SIZE] & _SINGLE_SEGMENT
    window = b"" if single else bytes(data[_MAGIC_SIZE + 1 : _MAGIC_SIZE + 2])
    at = _MAGIC_SIZE + 1 + len(window)
    block = int.from_bytes(data[at + 8 : at + 11], "little")
    length = block >> 3
    if block & 0b111 or at + 11 + length > len(data):  # the last block, or none of plain bytes
        return None
    size = int.from_bytes(data[at : at + 8], "little") - length
    if size < 0:
        return None
    code = sum(size >= limit for limit in _SIZE_LIMITS)
    declared = (size - 256 if code == 1 else size).to_bytes(_SIZE_WIDTHS[code], "little")
    descriptor = bytes((code << 6 | single,))
    start = bytes(data[at + 11 : at + 11 + length])
    magic = bytes(data[:_MAGIC_SIZE])
    size_field = declared if code or single else b""
    return start, b"".join((magic, descriptor, window, size_field, data[at + 11 + length :]))


_WRITER = (FIELDS["implementation"][0], FIELDS["spec_version"][0])


def is_intact(raw: bytes) -> bool | None:
    """Say whether the id in a manifest is the digest of its bytes; None where it is another id.

    Ids of other clients are random. Ours stand at the end of the frame's first block.
    """
    if not raw[slice(*_WRITER)].startswith(b"icevirt-"):
        return None
    parted = without_raw_start(raw, SIZE)
    if parted is None or len(parted[0]) < ObjectId12.SIZE:
        return None
    start, rest = parted[0][: -ObjectId12.SIZE], parted[1]
    return ObjectId12.of_content(start + bytes(ObjectId12.SIZE), rest) == parted[0][len(start) :]
