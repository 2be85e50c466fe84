"""Limit zarr's codecs: no chunk decodes to more than its array declares.

zarr itself decodes first and compares sizes afterwards, so a few megabytes of a hostile chunk take
gigabytes before it is refused. Here each compressor computes, from the shape and data type of the
chunk and the codecs in between, how many bytes it may make. Sound chunks decode as before. Codecs
that do not state their size in time (``zfpy``, ``pcodec``, codecs of other packages) decode without
the limit.
"""

from __future__ import annotations

import asyncio
import copy
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import BytesCodec, ShardingCodec, VLenBytesCodec, VLenUTF8Codec
from zarr.core.array import AsyncArray
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.wire.decompress import Decode, decoder_of, encoded_limit

_COUNT = struct.Struct("<I")
_INDEX_ENTRY = 16  # bytes for each chunk of a shard: offset and length
# text has no declared size: what a chunk may hold beside this much for each item
_TEXT = 256 * 1024 * 1024
_TEXT_ITEM = 1024


def bounded_array(metadata: ArrayV3Metadata, path: StorePath) -> AsyncArray[Any]:
    """Return the array at a path, which refuses chunks that decode to more than they declare."""
    within = copy.copy(metadata)
    object.__setattr__(within, "codecs", bounded(metadata.codecs))
    array = AsyncArray(within, path)
    object.__setattr__(array, "metadata", metadata)  # what it tells of itself is as it was
    return array


def bounded(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return a chain of codecs that decodes to no more than the chunk declares."""
    made: list[Codec] = []
    inner: list[str] = []  # compressors and checksums between the array and the codec at hand
    serializer: Codec | None = None
    for codec in codecs:
        match codec:
            case BytesBytesCodec() if serializer is not None:
                made.append(_compressor(codec, _Limit(serializer, tuple(inner))))
                inner.append(_name(codec))
            case ArrayBytesCodec():
                serializer = codec
                made.append(_serializer(codec))
            case _:
                made.append(codec)
    return tuple(made)


@dataclass(frozen=True)
class _Limit:
    """How many bytes a compressor may make of a chunk."""

    serializer: Codec
    inner: tuple[str, ...]  # names of the codecs between it and the serializer

    def of(self, chunk: ArraySpec) -> int:
        """Return the bytes, by the shape and data type that the serializer sees."""
        limit = _serialized(self.serializer, chunk)
        for name in self.inner:
            limit = encoded_limit(name, limit)
        return limit


def _serialized(serializer: Codec, chunk: ArraySpec) -> int:
    """Return the most bytes that a serializer makes of a chunk."""
    items = prod(chunk.shape)
    if isinstance(serializer, ShardingCodec):
        count = items // max(prod(serializer.chunk_shape), 1)
        inner = replace(chunk, shape=serializer.chunk_shape)
        return encoded_limit("", count * (_encoded(serializer.codecs, inner) + _INDEX_ENTRY))
    if isinstance(serializer, VLenUTF8Codec | VLenBytesCodec):
        return _TEXT + _TEXT_ITEM * items
    size = items * chunk.dtype.to_native_dtype().itemsize
    return size if isinstance(serializer, BytesCodec) else encoded_limit("", size)


def _encoded(codecs: Sequence[Codec], chunk: ArraySpec) -> int:
    """Return the most bytes that a whole chain makes of a chunk."""
    at = next(row for row, codec in enumerate(codecs) if isinstance(codec, ArrayBytesCodec))
    for codec in codecs[:at]:
        chunk = codec.resolve_metadata(chunk)
    return _Limit(codecs[at], tuple(map(_name, codecs[at + 1 :]))).of(chunk)


def _name(codec: Codec) -> str:
    return str(codec.to_dict()["name"])


def _compressor(codec: BytesBytesCodec, limit: _Limit) -> BytesBytesCodec:
    decode = decoder_of(_name(codec))
    return codec if decode is None else _Compressor(codec, decode, limit)


def _serializer(codec: ArrayBytesCodec) -> ArrayBytesCodec:
    match codec:
        case ShardingCodec():
            return _Shards(
                chunk_shape=codec.chunk_shape,
                codecs=codec.codecs,
                index_codecs=codec.index_codecs,
                index_location=codec.index_location,
                subchunk_write_order=codec.subchunk_write_order,
            )
        case VLenUTF8Codec() | VLenBytesCodec():
            return _Text(codec)
        case _:
            return codec


@dataclass(frozen=True)
class _Compressor(BytesBytesCodec):
    """A compressor that stops at the declared size."""

    codec: Any
    decode_within: Decode
    limit: _Limit

    def to_dict(self) -> dict[str, Any]:
        """Return what the codec itself says."""
        told: dict[str, Any] = self.codec.to_dict()
        return told

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Let the codec take what it lacks from the array."""
        made = self.codec.evolve_from_array_spec(array_spec)
        return type(self)(made, self.decode_within, self.limit)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return what the codec itself says."""
        size: int = self.codec.compute_encoded_size(input_byte_length, chunk_spec)
        return size

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        raw: Any = chunk_data.as_numpy_array()
        told: Any = getattr(self.codec, "codec_config", {})
        found = self.decode_within(raw, self.limit.of(chunk_spec), told)
        if found is None:
            decoded: Buffer = self.codec._decode_sync(chunk_data, chunk_spec)  # noqa: SLF001
            return decoded
        return chunk_spec.prototype.buffer.from_bytes(found)

    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        encoded: Buffer | None = self.codec._encode_sync(chunk_data, chunk_spec)  # noqa: SLF001
        return encoded

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)


@dataclass(frozen=True)
class _Text(ArrayBytesCodec):
    """Text or bytes of any length; a chunk has as many items as its shape says."""

    codec: Any

    def to_dict(self) -> dict[str, Any]:
        """Return what the codec itself says."""
        told: dict[str, Any] = self.codec.to_dict()
        return told

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return what the codec itself says."""
        size: int = self.codec.compute_encoded_size(input_byte_length, chunk_spec)
        return size

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        raw = chunk_data.as_numpy_array()
        if len(raw) < _COUNT.size:
            raise ValueError("a chunk of text is cut short")
        if _COUNT.unpack_from(raw)[0] > prod(chunk_spec.shape):
            raise ValueError("a chunk holds more items than its array declares")
        decoded: NDBuffer = self.codec._decode_sync(chunk_data, chunk_spec)  # noqa: SLF001
        return decoded

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        encoded: Buffer | None = self.codec._encode_sync(chunk_data, chunk_spec)  # noqa: SLF001
        return encoded

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_data, chunk_spec)

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        return self._encode_sync(chunk_data, chunk_spec)


class _Shards(ShardingCodec):
    """Shards whose inner chunks stop at their declared size, also after pickling."""

    def __init__(self, **told: Any) -> None:
        super().__init__(**{**told, "codecs": bounded(_plain(told["codecs"]))})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        object.__setattr__(self, "codecs", bounded(self.codecs))


def _plain(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return codecs without limits; those of shards stay, for they know their own."""
    return tuple(
        codec.codec if isinstance(codec, _Compressor | _Text) else codec for codec in codecs
    )
