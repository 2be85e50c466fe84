"""Spell how pieces of an image are encoded as codecs of zarr, and fill up strips that are short.

Codecs of zarr and numcodecs are taken where they decode the same, the others are of the package
imagecodecs, whose entry points are in imagecodecs-zarr. Decoded values were compared with those of
rasterio and tifffile, bit for bit (``tests/scanners/tiff``).

Predictors count along the rows of a piece: the horizontal one adds up values of one sample, in the
order of bytes of the file. The one of floating-point numbers has an order of bytes of its own,
whichever the file has, so that nothing else says one.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable

import zstandard

from icevirt.model.json import JSON
from icevirt_scanners.encoding import bytes_codec
from icevirt_scanners.tiff.directories import TiffDamageError
from icevirt_scanners.tiff.images import (
    DEFLATE,
    LERC,
    LZMA,
    LZW,
    NONE,
    OLD_DEFLATE,
    PACKBITS,
    ZSTD,
    Image,
    UnreadImageError,
)

_ZLIB: JSON = {"name": "numcodecs.zlib", "configuration": {"level": 6}}
_COMPRESSORS: dict[int, tuple[JSON, ...]] = {
    NONE: (),
    LZW: ({"name": "imagecodecs_lzw"},),
    DEFLATE: (_ZLIB,),
    OLD_DEFLATE: (_ZLIB,),
    PACKBITS: ({"name": "imagecodecs_packbits"},),
    LZMA: (
        {
            "name": "numcodecs.lzma",  # the filters stand in the container
            "configuration": {"format": 1, "check": -1, "preset": None, "filters": None},
        },
    ),
    ZSTD: ({"name": "zstd", "configuration": {"level": 9, "checksum": False}},),
}
_WITHIN_LERC = ((), _COMPRESSORS[DEFLATE], _COMPRESSORS[ZSTD])
_TURNED: JSON = {"name": "transpose", "configuration": {"order": [1, 2, 0]}}


def codecs_of(image: Image) -> tuple[JSON, ...]:
    """Return the codecs of an image, from values to bytes."""
    along: JSON = {"axis": -2 if image.is_interleaved else -1, "dist": 1}
    chain: list[JSON] = [_TURNED] if image.is_interleaved else []
    if image.compression == LERC:
        return (*chain, {"name": "imagecodecs_lerc"}, *_WITHIN_LERC[image.within])
    if image.is_packed:
        run = image.columns * (image.samples if image.is_interleaved else 1)
        packed: JSON = {"bitspersample": image.bits, "runlen": run}
        chain.append({"name": "imagecodecs_packints", "configuration": packed})
    elif image.predictor == 3:
        chain.append({"name": "imagecodecs_floatpred", "configuration": along})
    else:
        if image.predictor == 2:
            chain.append({"name": "imagecodecs_delta", "configuration": along})
        chain.append(bytes_codec(image.dtype, "big" if image.is_big else "little"))
    return (*chain, *_COMPRESSORS[image.compression])


def fill_up(image: Image, raw: bytes) -> bytes | None:
    """Return a short last strip with rows of zeros behind it; None if it is as long as the others.

    Rows are predicted each by itself, so that none has to be decoded for that.

    Raises:
        TiffDamageError: It has other than its rows.
        UnreadImageError: A package that decodes it is not installed.
    """
    whole, short = (rows * image.row_bytes for rows in (image.rows, image.last_rows))
    decode, encode = _find_codec(image.compression)
    try:
        decoded = decode(raw, whole)
    except Exception as error:  # whatever a decoder raises
        raise TiffDamageError(f"the last strip does not decode: {error}") from error
    if len(decoded) == whole:
        return None
    if len(decoded) != short:
        raise TiffDamageError(f"the last strip has {len(decoded):,} bytes instead of {short:,}")
    return encode(decoded + bytes(whole - short))


def _find_codec(
    compression: int,
) -> tuple[Callable[[bytes, int], bytes], Callable[[bytes], bytes]]:
    """Return what decodes up to a length and one byte, and what encodes."""
    if compression == NONE:
        return (lambda raw, most: raw[: most + 1]), bytes
    if compression in (DEFLATE, OLD_DEFLATE):
        return _inflate, zlib.compress
    if compression == LZMA:
        return (lambda raw, most: lzma.LZMADecompressor().decompress(raw, most + 1)), lzma.compress
    if compression == ZSTD:
        return _unzstd, zstandard.ZstdCompressor(level=9).compress
    try:
        import imagecodecs
    except ImportError as error:
        raise UnreadImageError("the package imagecodecs is not installed") from error
    if compression == LZW:
        return (lambda raw, most: bytes(imagecodecs.lzw_decode(raw, out=most + 1))), (
            lambda raw: bytes(imagecodecs.lzw_encode(raw))
        )
    return (lambda raw, most: bytes(imagecodecs.packbits_decode(raw, out=most + 1))), (
        lambda raw: bytes(imagecodecs.packbits_encode(raw))
    )


def _inflate(raw: bytes, most: int) -> bytes:
    return zlib.decompressobj().decompress(raw, most + 1)


def _unzstd(raw: bytes, most: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        return stream.read(most + 1)
