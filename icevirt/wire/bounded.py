"""Limit zarr's codecs: no chunk decodes to more than its array declares.

zarr itself decodes first and compares sizes afterwards, so a few megabytes of a hostile chunk take
gigabytes before it is refused. Here each compressor computes, from the shape and data type of the
chunk and the codecs in between, how many bytes it may make. Formats that declare the size up front
are checked against it, and the codec itself decodes; the others are decoded here, up to the limit.
Sound chunks decode as before. Codecs that do not state their size in time (``zfpy``, ``pcodec``,
codecs of other packages) decode without the limit.
"""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import IO, Any, Self

import deflate
import numpy as np
import zstandard
from numpy.typing import NDArray
from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import BytesCodec, ShardingCodec, VLenBytesCodec, VLenUTF8Codec
from zarr.core.array import AsyncArray
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.threads import run_in_thread
from icevirt.wire.wrapped_codec import WrappedCodec

type Decode = Callable[[bytes, int, Mapping[str, Any]], bytes | bytearray | None]
"""Takes encoded bytes, a limit and the codec's configuration.

Returns the decoded bytes, or None: the codec itself may decode, they are within the limit.
"""

_BLOSC_HEADER = struct.Struct("<4B3I")  # versions, flags, item size; decoded, block, encoded bytes
_LZ4_HEADER = struct.Struct("<I")
_LZ4_OF_HDF5 = struct.Struct(">Q")
_PART = 1 << 20
_SLACK = 64 * 1024
_AT_ONCE = 64 * 1024 * 1024  # bytes that are set aside for a chunk before it is decoded
_COUNT = struct.Struct("<I")
_INDEX_ENTRY = 16  # bytes for each chunk of a shard: offset and length
# text has no declared size: what a chunk may hold beside this much for each item
_TEXT = 256 * 1024 * 1024
_TEXT_ITEM = 1024


def limit_array(metadata: ArrayV3Metadata, path: StorePath) -> AsyncArray[Any]:
    """Return the array at a path, which refuses chunks that decode to more than they declare."""
    within = copy.copy(metadata)
    object.__setattr__(within, "codecs", limit_codecs(metadata.codecs))
    array = AsyncArray(within, path)
    object.__setattr__(array, "metadata", metadata)  # what it shows of itself is as it was
    return array


def limit_codecs(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return a chain of codecs that decodes to no more than the chunk declares."""
    made: list[Codec] = []
    inner: list[str] = []  # compressors and checksums between the array and the codec at hand
    serializer: Codec | None = None
    for codec in codecs:
        match codec:
            case BytesBytesCodec() if serializer is not None:
                name, limit = _name(codec), _Limit(serializer, tuple(inner))
                decode = decoder_of(name)
                made.append(codec if decode is None else _Compressor(codec, decode, limit))
                inner.append(name)
            case ArrayBytesCodec():
                serializer = codec
                made.append(_limit_serializer(codec))
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
        limit = _limit_of_serializer(self.serializer, chunk)
        for name in self.inner:
            limit = limit_of_encoder(name, limit)
        return limit


def _limit_of_serializer(serializer: Codec, chunk: ArraySpec) -> int:
    """Return the most bytes that a serializer makes of a chunk."""
    items = prod(chunk.shape)
    if isinstance(serializer, ShardingCodec):
        count = items // max(prod(serializer.chunk_shape), 1)
        inner = replace(chunk, shape=serializer.chunk_shape)
        return limit_of_encoder(
            "", count * (_limit_of_chain(serializer.codecs, inner) + _INDEX_ENTRY)
        )
    if isinstance(serializer, VLenUTF8Codec | VLenBytesCodec):
        return _TEXT + _TEXT_ITEM * items
    size = items * chunk.dtype.to_native_dtype().itemsize
    return size if isinstance(serializer, BytesCodec) else limit_of_encoder("", size)


def _limit_of_chain(codecs: Sequence[Codec], chunk: ArraySpec) -> int:
    """Return the most bytes that a whole chain makes of a chunk."""
    at = next(row for row, codec in enumerate(codecs) if isinstance(codec, ArrayBytesCodec))
    for codec in codecs[:at]:
        chunk = codec.resolve_metadata(chunk)
    return _Limit(codecs[at], tuple(map(_name, codecs[at + 1 :]))).of(chunk)


def _name(codec: Codec) -> str:
    return str(codec.to_dict()["name"])


def _limit_serializer(codec: ArrayBytesCodec) -> ArrayBytesCodec:
    if isinstance(codec, ShardingCodec):
        names = ("chunk_shape", "codecs", "index_codecs", "index_location", "subchunk_write_order")
        return _Shards(**{name: getattr(codec, name) for name in names})
    if isinstance(codec, VLenUTF8Codec | VLenBytesCodec):
        return _Text(codec)
    return _check_grib(codec)


def check_codecs(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return a chain of codecs that refuses what one of them is known to decode wrongly."""
    return tuple(
        _check_grib(codec) if isinstance(codec, ArrayBytesCodec) else codec for codec in codecs
    )


def _check_grib(codec: ArrayBytesCodec) -> ArrayBytesCodec:
    if _name(codec) != "gribberish":
        return codec
    from icevirt.wire.grib import CheckedGrib

    return codec if isinstance(codec, CheckedGrib) else CheckedGrib(codec)


@dataclass(frozen=True)
class _Decoder(WrappedCodec):
    """A codec whose decoding is limited; all else is its own."""

    def _encode_sync(self, chunk_data: Any, chunk_spec: ArraySpec) -> Buffer | None:
        encoded: Buffer | None = self.codec._encode_sync(chunk_data, chunk_spec)  # noqa: SLF001
        return encoded

    async def _encode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Buffer | None:
        return await run_in_thread(self._encode_sync, chunk_data, chunk_spec)


@dataclass(frozen=True)
class _Compressor(_Decoder, BytesBytesCodec):
    """A compressor that stops at the declared size."""

    decode_within: Decode
    limit: _Limit

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Let the codec take what it lacks from the array."""
        made = self.codec.evolve_from_array_spec(array_spec)
        return type(self)(made, self.decode_within, self.limit)

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        raw: Any = chunk_data.as_numpy_array()
        config: Any = getattr(self.codec, "codec_config", {})
        found = self.decode_within(raw, self.limit.of(chunk_spec), config)
        if found is None:
            decoded: Buffer = self.codec._decode_sync(chunk_data, chunk_spec)  # noqa: SLF001
            return decoded
        return chunk_spec.prototype.buffer.from_bytes(found)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await run_in_thread(self._decode_sync, chunk_data, chunk_spec)


@dataclass(frozen=True)
class _Text(_Decoder, ArrayBytesCodec):
    """Text or bytes of any length; a chunk has as many items as its shape says."""

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        raw = chunk_data.as_numpy_array()
        if len(raw) < _COUNT.size:
            raise ValueError("a chunk of text is cut short")
        if _COUNT.unpack_from(raw)[0] > prod(chunk_spec.shape):
            raise ValueError("a chunk holds more items than its array declares")
        decoded: NDBuffer = self.codec._decode_sync(chunk_data, chunk_spec)  # noqa: SLF001
        return decoded

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_data, chunk_spec)


class _Shards(ShardingCodec):
    """Shards whose inner chunks stop at their declared size, also after pickling."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(
            **{
                **fields,
                "codecs": limit_codecs(
                    tuple(
                        codec.codec if isinstance(codec, _Decoder) else codec
                        for codec in (fields["codecs"])
                    )
                ),
            }
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        object.__setattr__(self, "codecs", limit_codecs(self.codecs))


# -- one chunk, without a pipeline ----------------------------------------------------------------


def decoding_step(codec: Any, chunk: ArraySpec) -> Callable[[Any], Any]:
    """Return what undoes one codec of a chain of `bound_codecs`, from bytes to bytes."""
    if isinstance(codec, _Compressor):
        config = getattr(codec.codec, "codec_config", {})
        return partial(_decompress, codec, chunk, codec.limit.of(chunk), config)
    if _name(codec) == "numcodecs.shuffle" and codec.codec_config.get("elementsize", 0) > 1:
        return Unshuffle(codec.codec_config["elementsize"])
    return partial(_undo, codec, chunk)


def _decompress(
    codec: _Compressor, chunk: ArraySpec, limit: int, config: Mapping[str, Any], raw: Any
) -> Any:
    found = codec.decode_within(raw, limit, config)
    return _undo(codec.codec, chunk, raw) if found is None else found


def _undo(codec: Any, chunk: ArraySpec, raw: Any) -> Any:
    buffer = chunk.prototype.buffer.from_bytes(raw)
    return codec._decode_sync(buffer, chunk).as_numpy_array()  # noqa: SLF001


class Unshuffle:
    """Puts the bytes of elements together, which HDF5's shuffle filter stores apart.

    One byte of all elements at a time is several times faster than a transposition.
    """

    def __init__(self, size: int) -> None:
        self.size = size  # bytes of an element

    def __call__(self, raw: Any) -> Any:
        """Return the bytes of a chunk; what is behind the last whole element stays as it is."""
        whole = len(raw) - len(raw) % self.size
        if whole == len(raw):
            return self.of_chunks(raw, 1)
        return self.of_chunks(raw[:whole], 1).tobytes() + bytes(raw[whole:])

    def of_chunks(self, raw: Any, chunks: int) -> NDArray[np.uint8]:
        """Return the bytes of chunks of one length, of whole elements, one behind the other."""
        shuffled = np.frombuffer(raw, np.uint8).reshape(chunks, self.size, -1)
        found = np.empty((chunks, shuffled.shape[2], self.size), np.uint8)
        for at in range(self.size):
            found[:, :, at] = shuffled[:, at]
        return found.reshape(-1)


# -- decompressing up to a limit ------------------------------------------------------------------


class OverlongError(ValueError):
    """Encoded bytes decode to more than they may."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it decodes to more than the {limit:,} bytes that its array declares")


def decoder_of(name: str) -> Decode | None:
    """Return what decodes within a limit, by the name of a codec; None where none is needed."""
    return _DECODERS.get(name.removeprefix("numcodecs."))


def limit_of_encoder(name: str, limit: int) -> int:
    """Return the most bytes that an encoder makes of ``limit`` bytes, generously."""
    if name.removeprefix("numcodecs.") in _SAME_SIZE:
        return limit + 64
    return limit + limit // 8 + _SLACK


def _zlib(raw: bytes, limit: int, _config: Mapping[str, Any]) -> bytes | bytearray:
    if 0 < limit <= _AT_ONCE:
        with suppress(deflate.DeflateError):  # zlib decodes what is odd, or says what is wrong
            return deflate.zlib_decompress(raw, limit)
    stream = zlib.decompressobj()
    found = stream.decompress(raw, limit + 1)
    if len(found) <= limit and not stream.eof:
        raise ValueError("the compressed bytes end too early")
    _check(len(found), limit)
    return found


def _gzip(raw: bytes, limit: int, _config: Mapping[str, Any]) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        return _read(stream, limit)


def _bz2(raw: bytes, limit: int, _config: Mapping[str, Any]) -> bytes:
    with bz2.BZ2File(io.BytesIO(raw)) as stream:
        return _read(stream, limit)


def _lzma(raw: bytes, limit: int, config: Mapping[str, Any]) -> bytes:
    kind, filters = config.get("format", lzma.FORMAT_XZ), config.get("filters")
    with lzma.LZMAFile(io.BytesIO(raw), format=kind, filters=filters) as stream:
        return _read(stream, limit)


def _read(stream: IO[bytes] | Any, limit: int) -> bytes:
    found: bytes = stream.read(limit + 1)
    _check(len(found), limit)
    return found


def _zstd(raw: bytes, limit: int, _config: Mapping[str, Any]) -> None:
    if (declared := zstandard.frame_content_size(raw)) >= 0:
        _check(declared, limit)
        return
    # a frame that does not declare its size is measured first; writers of chunks make none
    with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        size = 0
        while part := stream.read(_PART):
            size += len(part)
            _check(size, limit)


def _blosc(raw: bytes, limit: int, _config: Mapping[str, Any]) -> None:
    if len(raw) < _BLOSC_HEADER.size:
        raise ValueError("the header of a blosc chunk is cut short")
    *_, decoded, _block, encoded = _BLOSC_HEADER.unpack_from(raw)
    if encoded > len(raw):
        raise ValueError("a blosc chunk is cut short")
    _check(decoded, limit)


def _lz4(raw: bytes, limit: int, _config: Mapping[str, Any]) -> None:
    if len(raw) < _LZ4_HEADER.size:
        raise ValueError("the header of an LZ4 chunk is cut short")
    _check(_LZ4_HEADER.unpack_from(raw)[0], limit)


def _lz4_of_hdf5(raw: bytes, limit: int, _config: Mapping[str, Any]) -> None:
    if len(raw) < _LZ4_OF_HDF5.size:
        raise ValueError("the header of an LZ4 chunk is cut short")
    _check(_LZ4_OF_HDF5.unpack_from(raw)[0], limit)


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise OverlongError(limit)


_DECODERS: dict[str, Decode] = {"zlib": _zlib, "gzip": _gzip, "bz2": _bz2, "lzma": _lzma}
_DECODERS |= {"zstd": _zstd, "blosc": _blosc, "lz4": _lz4}
_DECODERS |= {"imagecodecs_lz4h5": _lz4_of_hdf5, "imagecodecs_szip": _lz4}  # its header is the same
_SAME_SIZE = frozenset(("shuffle", "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"))
