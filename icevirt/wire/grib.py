"""Check messages of GRIB 2 before and after a codec decodes them: damage is an error.

gribberish 1.9.0 reads zeros where a stream of CCSDS ends early, nothing but NaN where a bitmap has
other than as many ones as there are values, and does not return from some JPEG 2000 that is cut
short. What is looked at here are headers, bitmaps and markers. Values are looked at where they may
be those zeros. A field whose bitmap leaves out all points is no damage, and is not decoded: the
codec does not return from its JPEG 2000, which is empty, and fails where it is packed otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer

from icevirt.model.grib_packings import BITS, CCSDS
from icevirt.wire.wrapped_codec import WrappedCodec

type Decode = Callable[[bytes], Awaitable[NDArray[Any]]]

_HEAD, _END = 16, b"7777"
_LEAST = {3: 14, 5: 20, 6: 6}  # bytes of the sections that are looked at
_JPEG, _SPECTRAL = 40, (50, 51, 53)  # templates of section 5
_OWN_BITMAP, _FIRST_EDITION = 0, b"\x01"
_PLACES = ("latitude", "longitude")  # that the codec computes from a grid
# of JPEG 2000 (ISO/IEC 15444-1, annex A): where markers lie that begin and end it and its parts
_START, _SIZE, _PART, _STOP = 0xFF4F, 0xFF51, 0xFF90, 0xFFD9
_MARKER, _EXTENTS, _LENGTH = struct.Struct(">HH"), struct.Struct(">4I"), struct.Struct(">I")
_MORE = 1024  # bytes that are put behind a stream; a block has at most 64 values of 32 bits


@dataclass(frozen=True)
class CheckedGrib(WrappedCodec, ArrayBytesCodec):
    """A codec that decodes a message, if it is not damaged; all else is its own."""

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        encoded: Buffer | None = await self.codec._encode_single(chunk_data, chunk_spec)  # noqa: SLF001
        return encoded

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        raw = chunk_data.to_bytes()
        if raw[:4] == b"GRIB" and raw[7:8] == _FIRST_EDITION:  # has none of these sections
            first: NDBuffer = await self.codec._decode_single(chunk_data, chunk_spec)  # noqa: SLF001
            return first
        check_message(raw)
        if self.codec.var not in _PLACES:
            _check_bits(raw)
        if self._is_void(raw):
            dtype, prototype = chunk_spec.dtype.to_native_dtype(), chunk_spec.prototype
            shape: Any = chunk_spec.shape
            return prototype.nd_buffer.create(shape=shape, dtype=dtype, fill_value=np.nan)
        found: NDBuffer = await self.codec._decode_single(chunk_data, chunk_spec)  # noqa: SLF001
        decode = partial(self._decode, chunk_spec)
        await check_values(raw, found.as_numpy_array(), decode)
        return found

    def _is_void(self, raw: bytes) -> bool:
        """Say whether values are asked for, and the bitmap of a sound message leaves out all."""
        held = _sections(raw)
        begin, _ = held[6]
        values, template, _ = _packing(raw, held)
        is_about_values = self.codec.var not in _PLACES and template not in _SPECTRAL
        return is_about_values and not values and raw[begin + 5] == _OWN_BITMAP

    async def _decode(self, chunk_spec: ArraySpec, raw: bytes) -> NDArray[Any]:
        buffer = chunk_spec.prototype.buffer.from_bytes(raw)
        found: NDBuffer = await self.codec._decode_single(buffer, chunk_spec)  # noqa: SLF001
        return found.as_numpy_array()


def check_message(raw: bytes) -> None:
    """Look at the first field of a message. Raises `ValueError` if it is damaged."""
    held = _sections(raw)
    values, template, bits = _packing(raw, held)
    if template in _SPECTRAL:
        return
    begin, end = held[6]
    if raw[begin + 5] == _OWN_BITMAP:
        ones = int(np.bitwise_count(np.frombuffer(raw[begin + 6 : end], np.uint8)).sum())
        if ones != values:
            raise ValueError(f"a bitmap with {ones:,} ones for {values:,} values")
    if template == _JPEG and bits and values:
        begin, end = held[7]
        _check_jpeg(raw[begin + 5 : end], values)


def _check_bits(raw: bytes) -> None:
    """Raise `ValueError` for values that the codec would read as others.

    Scans refuse them, but for those that a list of messages did not say.
    """
    _, template, bits = _packing(raw, _sections(raw))
    least, most = BITS.get(template, (0, 255))
    if bits and not least <= bits <= most:
        raise ValueError(f"packing 5.{template} of {bits} bits, which gribberish reads wrongly")


async def check_values(raw: bytes, values: NDArray[Any], decode: Decode) -> None:
    """Look at the values of a sound message. Raises `ValueError` if some are not in it.

    Where a stream of CCSDS ends early the last value is 0, as it may be in a sound field. Bytes
    that are put behind the stream change the values of the former only. With a bitmap that stands
    for other than as many values as were read, none is left.
    """
    count, template, bits = _packing(raw, _sections(raw))
    read = values[~np.isnan(values)] if np.isnan(values.flat[-1:]).any() else values.reshape(-1)
    if template != CCSDS or not bits or not count or (read[-1:] != 0).any():
        return
    if not read.size:
        raise ValueError("its data section ends early")
    for fill in (b"\xff", b"\0"):
        try:
            found = await decode(_lengthen(raw, fill * _MORE))
        except Exception as error:
            raise ValueError("its data section ends early") from error
        if not np.array_equal(found, values, equal_nan=True):
            raise ValueError("its data section ends early")


def _sections(raw: bytes) -> dict[int, tuple[int, int]]:
    """Return where the sections of the first field begin and end."""
    at, end, held = _HEAD, len(raw) - len(_END), dict[int, tuple[int, int]]()
    if raw[:4] != b"GRIB" or raw[end:] != _END or int.from_bytes(raw[8:16], "big") != len(raw):
        raise ValueError("it is not one whole message of GRIB 2")
    while 7 not in held:
        extent, kind = int.from_bytes(raw[at : at + 4], "big"), int(raw[at + 4])
        if not _LEAST.get(kind, 5) <= extent <= end - at:
            raise ValueError(f"a section {kind} of {extent} bytes")
        held[kind] = at, at + extent
        at += extent
    if not _LEAST.keys() <= held.keys():
        raise ValueError("a message that lacks sections")
    return held


def _packing(raw: bytes, held: dict[int, tuple[int, int]]) -> tuple[int, int, int]:
    """Return the number of values, the template of their packing, and bits of a value."""
    begin, _ = held[5]
    return (
        int.from_bytes(raw[begin + 5 : begin + 9], "big"),
        int.from_bytes(raw[begin + 9 : begin + 11], "big"),
        raw[begin + 19],
    )


def _check_jpeg(stream: bytes, values: int) -> None:
    """Follow the markers of JPEG 2000 from its beginning to its end."""
    at, points = 2, 0
    try:
        if _MARKER.unpack_from(stream)[:1] != (_START,):
            raise ValueError("a data section that is not JPEG 2000")
        while True:
            (marker,) = struct.unpack_from(">H", stream, at)
            if marker == _STOP:
                break
            _, length = _MARKER.unpack_from(stream, at)
            if marker == _SIZE:
                right, low, left, top = _EXTENTS.unpack_from(stream, at + 6)
                points = (right - left) * (low - top)
            if marker == _PART:
                length = _LENGTH.unpack_from(stream, at + 6)[0] - 2
                if length < 0:  # it lasts until the end
                    length = len(stream.rstrip(b"\0")) - 4 - at
            at += 2 + max(length, 2)
    except struct.error as error:
        raise ValueError("its JPEG 2000 ends early") from error
    if points != values:
        raise ValueError(f"{points:,} points in its JPEG 2000 for {values:,} values")


def _lengthen(raw: bytes, more: bytes) -> bytes:
    """Return a message whose first data section has more bytes behind its own."""
    begin, end = _sections(raw)[7]
    return b"".join(
        (
            raw[:8],
            (len(raw) + len(more)).to_bytes(8, "big"),
            raw[_HEAD:begin],
            (end - begin + len(more)).to_bytes(4, "big"),
            raw[begin + 4 : end],
            more,
            raw[end:],
        )
    )
