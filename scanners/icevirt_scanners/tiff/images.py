"""Describe the image of a directory: its lengths, its type, and how it is cut and encoded."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from icevirt_scanners.tiff.directories import Directory, TiffDamageError

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
FILL_ORDER, STRIP_OFFSETS, SAMPLES, ROWS_PER_STRIP, STRIP_COUNTS = 266, 273, 277, 278, 279
PLANAR, PREDICTOR, COLOR_MAP, TILE_WIDTH, TILE_HEIGHT = 284, 317, 320, 322, 323
TILE_OFFSETS, TILE_COUNTS, EXTRA_SAMPLES, SAMPLE_FORMAT = 324, 325, 338, 339
IMAGE_DEPTH, TILE_DEPTH, LERC_PARAMETERS = 32997, 32998, 50674

NONE, LZW, DEFLATE, PACKBITS, OLD_DEFLATE, LERC, ZSTD = 1, 5, 8, 32773, 32946, 34887, 50000
LZMA = 34925
_READ = (NONE, LZW, DEFLATE, PACKBITS, OLD_DEFLATE, LERC, ZSTD, LZMA)
_OTHERS = {
    2: "CCITT, a fax",
    3: "CCITT, a fax",
    4: "CCITT, a fax",
    6: "JPEG of the old kind",
    7: "JPEG, whose decoders round each in its own way",
    9: "JBIG",
    10: "JBIG",
    33003: "JPEG 2000",
    33005: "JPEG 2000",
    34712: "JPEG 2000",
    34892: "lossy JPEG",
    50001: "WebP",
    50002: "JPEG XL",
    52546: "JPEG XL",
}
_KINDS = {1: "u", 2: "i", 3: "f", 4: "u", 6: "c"}
_NAMES = {5: "complex integers", 6: "complex numbers", 3: "floating-point numbers"}
_GRAYS_AND_COLORS = (0, 1, 2, 3, 4, 32803, 34892)  # others are converted by GDAL
_MOST_PACKED = 32  # bits
_SWAPPED = 24  # bits of packed samples that libtiff swaps as numbers; others are a stream of bits
_MOST_CHUNK = 1 << 32  # bytes of a chunk
_HORIZONTAL, _FLOATING = 2, 3


class UnreadImageError(Exception):
    """An image is one that readers of zarr do not decode; the text is the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image of ``samples`` bands, cut into pieces of ``rows`` and ``columns``."""

    height: int
    width: int
    samples: int
    dtype: np.dtype[Any]  # in native order
    bits: int  # of a sample in the file
    is_big: bool  # values are big-endian
    is_planar: bool  # bands are stored one by one
    is_tiled: bool
    rows: int
    columns: int
    compression: int
    within: int  # compression of what LERC made: 0, 1 (deflate) or 2 (zstd)
    predictor: int
    photometric: int

    @property
    def is_interleaved(self) -> bool:
        """Whether the samples of a pixel stand side by side."""
        return not self.is_planar and self.samples > 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Lengths of the array: bands, rows, columns."""
        return self.samples, self.height, self.width

    @property
    def chunk(self) -> tuple[int, int, int]:
        """Lengths of a piece, as `shape`."""
        return 1 if self.is_planar else self.samples, self.rows, self.columns

    @property
    def counts(self) -> tuple[int, int]:
        """How many pieces a plane has, down and across."""
        return -(-self.height // self.rows), -(-self.width // self.columns)

    @property
    def planes(self) -> int:
        """How many planes pieces are counted in."""
        return self.samples if self.is_planar else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a piece; rows of packed samples end with a whole byte."""
        return -(-self.chunk[0] * self.columns * self.bits // 8)

    @property
    def is_packed(self) -> bool:
        """Whether samples have other than whole bytes."""
        return self.bits != 8 * self.dtype.itemsize

    @property
    def last_rows(self) -> int:
        """Rows of the last strip, which may be shorter than the others; tiles are not."""
        rest = self.height % self.rows
        return self.rows if self.is_tiled or not rest else rest


def describe_image(directory: Directory) -> Image:
    """Return the image of a directory.

    Raises:
        UnreadImageError: No codec of zarr decodes it to the values that GDAL reads.
        TiffDamageError: The directory is damaged.
    """
    number = directory.integer
    width, height, samples = number(WIDTH), number(HEIGHT), number(SAMPLES, 1)
    if min(width, height, samples) < 1 or samples > 0xFFFF:
        raise TiffDamageError(f"an image of {width} × {height} pixels with {samples} samples")
    if number(IMAGE_DEPTH, 1) != 1 or number(TILE_DEPTH, 1) != 1:
        raise UnreadImageError("a volume (ImageDepth)")
    is_tiled = TILE_WIDTH in directory
    if is_tiled:
        rows, columns = number(TILE_HEIGHT), number(TILE_WIDTH)
    else:
        rows, columns = min(number(ROWS_PER_STRIP, height), height), width
    if min(rows, columns) < 1:
        raise TiffDamageError(f"pieces of {columns} × {rows} pixels")
    planar = number(PLANAR, 1)
    if planar not in (1, 2):
        raise TiffDamageError(f"the planar configuration {planar}")
    dtype, bits = _type_of(directory, samples)
    found = Image(
        height=height,
        width=width,
        samples=samples,
        dtype=dtype,
        bits=bits,
        is_big=directory.file.order == ">",
        is_planar=planar == 2 and samples > 1,
        is_tiled=is_tiled,
        rows=rows,
        columns=columns,
        compression=number(COMPRESSION, NONE),
        within=int(directory.integers(LERC_PARAMETERS)[1:2].sum()),
        predictor=number(PREDICTOR, 1),
        photometric=number(PHOTOMETRIC, 1),
    )
    _check_read(found, number(FILL_ORDER, 1))
    if found.compression == LERC:
        _check_lerc(found, has_alpha=bool(directory.integers(EXTRA_SAMPLES).any()))
    return found


def _type_of(directory: Directory, samples: int) -> tuple[np.dtype[Any], int]:
    """Return the type of values, of which all samples have to be, and their bits in the file."""
    bits = set(directory.integers(BITS).tolist() or [1])
    forms = set(directory.integers(SAMPLE_FORMAT).tolist() or [1])
    if len(bits) > 1 or len(forms) > 1:
        kinds = f"{sorted(bits)} bits, formats {sorted(forms)}"
        raise UnreadImageError(f"{samples} samples of several types: {kinds}")
    size, form = bits.pop(), forms.pop()
    kind = _KINDS.get(form)
    if kind is None:
        raise UnreadImageError(f"samples that are {_NAMES.get(form, f'of the format {form}')}")
    if form == 1 and 0 < size < _MOST_PACKED:
        return np.dtype(f"u{next(n for n in (1, 2, 4) if size <= 8 * n)}"), size
    widths = {"u": (8, 16, 32, 64), "i": (8, 16, 32, 64), "f": (16, 32, 64), "c": (64, 128)}
    if size not in widths[kind]:
        what = f" {_NAMES[form]}" if form in _NAMES else ""
        raise UnreadImageError(f"samples of {size} bits{what}")
    return np.dtype(f"{kind}{size // 8}"), size


def _check_lerc(image: Image, *, has_alpha: bool) -> None:
    """Raise `UnreadImageError` if LERC may leave out pixels, which its codec for zarr ignores."""
    if image.dtype.kind not in "ui" or has_alpha:
        raise UnreadImageError("LERC of floats or with alpha, which may leave out pixels")
    if image.is_packed or image.predictor != 1 or image.last_rows != image.rows:
        raise UnreadImageError("LERC of packed or predicted samples, or of a strip that is shorter")
    if image.is_big and image.dtype.itemsize > 1:
        raise UnreadImageError("LERC in a big-endian file, whose values are swapped before")
    if image.within > 2:
        raise UnreadImageError(f"LERC within the compression {image.within}")


def _check_read(image: Image, fill_order: int) -> None:
    """Raise `UnreadImageError` if values would not be those that GDAL reads."""
    if image.compression not in _READ:
        name = _OTHERS.get(image.compression, "a rare one")
        raise UnreadImageError(f"the compression {image.compression} ({name})")
    if image.photometric not in _GRAYS_AND_COLORS:
        raise UnreadImageError(
            f"colors that have to be converted (photometric {image.photometric})"
        )
    if image.bits == _SWAPPED and image.is_big:
        raise UnreadImageError(
            f"samples of {_SWAPPED} bits in a big-endian file, which are swapped"
        )
    if fill_order != 1:
        raise UnreadImageError("bits from the lowest to the highest (FillOrder 2)")
    kinds = {_HORIZONTAL: "uif", _FLOATING: "f"}
    if image.predictor != 1 and image.dtype.kind not in kinds.get(image.predictor, ""):
        raise UnreadImageError(f"the predictor {image.predictor} of {image.dtype.name}")
    if image.predictor != 1 and image.is_packed:
        raise UnreadImageError(f"the predictor {image.predictor} of samples of {image.bits} bits")
    if image.predictor != 1 and image.compression in (NONE, PACKBITS):
        raise UnreadImageError(f"a predictor with the compression {image.compression}")
    size = prod(image.chunk) * image.dtype.itemsize
    if size > _MOST_CHUNK:
        raise UnreadImageError(f"pieces of {size:,} bytes")
