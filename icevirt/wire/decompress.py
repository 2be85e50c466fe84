"""Decompress chunks up to a size limit, so that a few bytes cannot become gigabytes.

Each function takes the encoded bytes and the largest size that they may decode to. Formats that
declare the size up front are checked against it, and the codec itself decodes; the others are
decoded here, up to the limit. A sound chunk decodes as it does without the limit.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import IO, Any

import zstandard

type Decode = Callable[[bytes, int, Mapping[str, Any]], bytes | None]
"""Takes encoded bytes, a limit and the codec's configuration.

Returns the decoded bytes, or None: the codec itself may decode, they are within the limit.
"""

_BLOSC_HEADER = struct.Struct("<4B3I")  # versions, flags, item size; decoded, block, encoded bytes
_LZ4_HEADER = struct.Struct("<I")
_PART = 1 << 20
_SLACK = 64 * 1024


class OverlongError(ValueError):
    """Encoded bytes decode to more than they may."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it decodes to more than the {limit:,} bytes that its array declares")


def decoder_of(name: str) -> Decode | None:
    """Return what decodes within a limit, by the name of a codec; None where none is needed."""
    return _DECODERS.get(name.removeprefix("numcodecs."))


def encoded_limit(name: str, limit: int) -> int:
    """Return the most bytes that an encoder makes of ``limit`` bytes, generously."""
    if name.removeprefix("numcodecs.") in _SAME_SIZE:
        return limit + 64
    return limit + limit // 8 + _SLACK


def _zlib(raw: bytes, limit: int, _told: Mapping[str, Any]) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(raw, limit + 1)
    if len(found) <= limit and not stream.eof:
        raise ValueError("the compressed bytes end too early")
    return _within(found, limit)


def _gzip(raw: bytes, limit: int, _told: Mapping[str, Any]) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        return _read(stream, limit)


def _bz2(raw: bytes, limit: int, _told: Mapping[str, Any]) -> bytes:
    with bz2.BZ2File(io.BytesIO(raw)) as stream:
        return _read(stream, limit)


def _lzma(raw: bytes, limit: int, told: Mapping[str, Any]) -> bytes:
    kind, filters = told.get("format", lzma.FORMAT_XZ), told.get("filters")
    with lzma.LZMAFile(io.BytesIO(raw), format=kind, filters=filters) as stream:
        return _read(stream, limit)


def _read(stream: IO[bytes] | Any, limit: int) -> bytes:
    return _within(stream.read(limit + 1), limit)


def _within(found: bytes, limit: int) -> bytes:
    if len(found) > limit:
        raise OverlongError(limit)
    return found


def _zstd(raw: bytes, limit: int, _told: Mapping[str, Any]) -> None:
    declared = zstandard.frame_content_size(raw)
    if declared >= 0:
        _check(declared, limit)
        return
    # a frame that does not declare its size is measured first; writers of chunks make none
    with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        size = 0
        while part := stream.read(_PART):
            size += len(part)
            _check(size, limit)


def _blosc(raw: bytes, limit: int, _told: Mapping[str, Any]) -> None:
    if len(raw) < _BLOSC_HEADER.size:
        raise ValueError("the header of a blosc chunk is cut short")
    *_, decoded, _block, encoded = _BLOSC_HEADER.unpack_from(raw)
    if encoded > len(raw):
        raise ValueError("a blosc chunk is cut short")
    _check(decoded, limit)


def _lz4(raw: bytes, limit: int, _told: Mapping[str, Any]) -> None:
    if len(raw) < _LZ4_HEADER.size:
        raise ValueError("the header of an LZ4 chunk is cut short")
    _check(_LZ4_HEADER.unpack_from(raw)[0], limit)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise OverlongError(limit)


_DECODERS: dict[str, Decode] = {
    "zlib": _zlib,
    "gzip": _gzip,
    "bz2": _bz2,
    "lzma": _lzma,
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
}
_SAME_SIZE = frozenset(("shuffle", "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"))
