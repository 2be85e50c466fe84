"""Translate the filters of a dataset to codecs of zarr.

A filter whose output no codec undoes exactly gives the reason in ``not_plain``: the values are read
and stored. Zarr has no codec of LZF, SZIP and LZ4; those of imagecodecs stand in where the user
says that readers will have that package. They read what HDF5's filters wrote, with one exception:
LZF decodes no chunk to more than eight times its bytes, so chunks that are smaller are stored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from h5py import h5z
from numcodecs.registry import get_codec
from numpy.typing import NDArray

from icevirt.model.json import JSON
from icevirt.scan.contract import CodecPackage
from icevirt_scanners.hdf5.raw.header import Filter

BUILT_IN = frozenset({h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32})
"""Filters that need no plugin."""

IMAGECODECS = CodecPackage.imagecodecs.value

_ZSTD, _BLOSC, _BZIP2 = 32015, 32001, 307
_SZIP, _LZF, _LZ4 = h5z.FILTER_SZIP, 32000, 32004
_NAMES = {
    _SZIP: "szip",
    5: "n-bit",
    6: "scale-offset",
    _BZIP2: "bzip2",
    _LZF: "lzf",
    _BLOSC: "blosc",
    _LZ4: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    _ZSTD: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
    32033: "htj2k",
}
_BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", None, "zlib", "zstd")
_BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


BY_PACKAGE = "zarr has no codec of {}: the option codecs accepts that of imagecodecs"
"""Why values are stored that need not be, by the name of their filter."""


class _NoCodecError(Exception):
    """A filter has no codec that undoes it exactly; the message says which."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The filters of a dataset."""

    codecs: tuple[JSON | None, ...] = ()  # one for each filter; None where none is needed
    not_plain: str = ""  # why zarr cannot undo it
    undecodable: str = ""  # the filter for which this libhdf5 has no decoder
    least: int = 0  # bytes of a chunk below which the codecs do not decode it

    def keep(self, mask: int = 0) -> tuple[JSON, ...]:
        """Return the codecs of chunks for which the filters in ``mask`` were skipped."""
        return tuple(
            codec for n, codec in enumerate(self.codecs) if codec is not None and not mask >> n & 1
        )

    @property
    def needs_package(self) -> bool:
        """Whether readers need codecs that zarr does not bring."""
        return any(each["name"].startswith(f"{IMAGECODECS}_") for each in _named(self.keep()))

    def encode(self, raw: bytes) -> bytes | None:
        """Return a chunk as its codecs decode it; None where nothing here encodes for them."""
        for codec in _named(self.keep()):
            encode = _ENCODERS.get(codec["name"])
            if encode is None:
                return None
            try:
                raw = encode(raw, codec.get("configuration", {}))
            except ImportError:
                return None
        return raw


def _named(codecs: Iterable[JSON]) -> Iterator[Mapping[str, Any]]:
    """Yield codecs as the objects that `pipeline_of` makes of all of them."""
    return (codec for codec in codecs if isinstance(codec, Mapping))


def filters_of_plist(plist: Any) -> tuple[Filter, ...]:
    """Return the filters of a dataset's creation property list."""
    return tuple(map(plist.get_filter, range(plist.get_nfilters())))


def pipeline_of(
    filters: Iterable[Filter], chunk_bytes: int, packages: Collection[str] = ()
) -> Pipeline:
    """Translate the filters of a dataset whose chunks have ``chunk_bytes`` before encoding.

    ``packages`` are those of codecs that readers have beside zarr's.
    """
    codecs: list[JSON | None] = []
    reason = missing = ""
    length: int | None = chunk_bytes  # of what the next filter is fed; None when it varies
    least = 0
    for code, _, values, raw in filters:
        name = _NAMES.get(code) or raw.decode("utf-8", "replace") or f"filter {code}"
        if not h5z.filter_avail(code):
            missing = missing or f"{name} (filter {code})"
        try:
            least = _least(code, length, least)
            codec, length = _codec(code, values, length, packages)
        except _NoCodecError as error:
            reason = reason or str(error) or name
            codec, length = None, None
        codecs.append(codec)
    return Pipeline(tuple(codecs), reason, missing, least)


def _codec(
    code: int, values: Sequence[int], length: int | None, packages: Collection[str]
) -> tuple[JSON | None, int | None]:
    """Return a filter's codec, and how many bytes it hands on."""
    if code == h5z.FILTER_SHUFFLE:
        return _shuffle(values, length), length
    if code == h5z.FILTER_FLETCHER32:
        codec: JSON = {"name": "numcodecs.fletcher32", "configuration": {}}
        return codec, None if length is None else length + _CHECKSUM
    make = _COMPRESSORS.get(code)
    if make is None and (make := _BY_IMAGECODECS.get(code)) and IMAGECODECS not in packages:
        raise _NoCodecError(BY_PACKAGE.format(_NAMES[code]))
    if make is None:
        raise _NoCodecError
    return make(values), None


def _least(code: int, length: int | None, least: int) -> int:
    """Return the fewest bytes that a chunk has behind a filter, so that it can be decoded."""
    if code == _LZF:
        if length is None:
            raise _NoCodecError("lzf behind a filter that changes the length")
        return -(-length // _LZF_MOST)
    if least and code != h5z.FILTER_FLETCHER32:
        raise _NoCodecError("a filter behind lzf")
    return least + _CHECKSUM if least else 0


def _shuffle(values: Sequence[int], length: int | None) -> JSON | None:
    size = values[0] if values else 1
    if size <= 1:
        return None  # HDF5 leaves the bytes as they are
    if length is None or length % size:
        # HDF5 leaves the rest behind the last whole element alone, numcodecs refuses it
        raise _NoCodecError("shuffle behind a filter that changes the length")
    return {"name": "numcodecs.shuffle", "configuration": {"elementsize": size}}


def _codec_of_level(name: str, default: int, values: Sequence[int]) -> JSON:
    return {"name": name, "configuration": {"level": values[0] if values else default}}


def _zstd(values: Sequence[int]) -> JSON:
    level = values[0] if values else 3
    level = level - (1 << 32) if level >= 1 << 31 else level  # negative levels are legal
    return {"name": "zstd", "configuration": {"level": level, "checksum": False}}


def _blosc(values: Sequence[int]) -> JSON:
    given = [*values, *(0, 0, 0, 0, 5, 1, 0)[len(values) :]]
    _, _, size, _, level, shuffle, compressor = given[:7]
    name = _BLOSC_COMPRESSORS[compressor] if compressor < len(_BLOSC_COMPRESSORS) else None
    if name is None:
        raise _NoCodecError("blosc with a compressor that numcodecs lacks")
    return {
        "name": "blosc",
        "configuration": {
            "cname": name,
            "clevel": min(level, 9),
            "shuffle": _BLOSC_SHUFFLES[shuffle if shuffle < len(_BLOSC_SHUFFLES) else 0],
            "typesize": max(size, 1),
            "blocksize": 0,
        },
    }


_COMPRESSORS: dict[int, Callable[[Sequence[int]], JSON]] = {
    h5z.FILTER_DEFLATE: partial(_codec_of_level, "numcodecs.zlib", 1),
    _ZSTD: _zstd,
    _BZIP2: partial(_codec_of_level, "numcodecs.bz2", 9),
    _BLOSC: _blosc,
}


def _szip(values: Sequence[int]) -> JSON:
    if len(values) < len(_SZIP_OPTIONS):
        raise _NoCodecError("szip without its options")
    named = dict(zip(_SZIP_OPTIONS, values, strict=False))
    return {"name": "imagecodecs_szip", "configuration": {**named, "header": True}}


def _lzf(_values: Sequence[int]) -> JSON:
    return {"name": "imagecodecs_lzf", "configuration": {"header": False}}


def _lz4(_values: Sequence[int]) -> JSON:
    return {"name": "imagecodecs_lz4h5"}  # each chunk states the size of its blocks


_BY_IMAGECODECS: dict[int, Callable[[Sequence[int]], JSON]] = {
    _SZIP: _szip,
    _LZF: _lzf,
    _LZ4: _lz4,
}
_SZIP_OPTIONS = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
_LZF_MOST = 8  # bytes that the codec makes of one
_CHECKSUM = 4  # bytes

# -- chunks that are stored beside referenced ones ------------------------------------------------

_UNIT = 8  # bytes that one step of LZF writes
_LITERAL, _REPEAT = bytes([_UNIT - 1]), bytes([(_UNIT - 2) << 5, _UNIT - 1])


def _by_numcodecs(name: str, raw: bytes, configuration: Any) -> bytes:
    encoded: bytes = bytes(get_codec({"id": name, **configuration}).encode(raw))
    return encoded


def encode_lzf(raw: bytes, _configuration: Any = None) -> bytes:
    """Encode as LZF, to a quarter of the bytes at the least, so that the codec decodes it.

    Eight bytes are those before them, or stand there as they are.
    """
    whole = len(raw) - len(raw) % _UNIT
    units = np.frombuffer(raw, np.uint8, whole).reshape(-1, _UNIT)
    repeats = np.zeros(len(units), bool)
    repeats[1:] = (units[1:] == units[:-1]).all(axis=1)
    lengths = np.where(repeats, len(_REPEAT), 1 + _UNIT)
    ends = np.cumsum(lengths)
    encoded = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for some, words in (
        (repeats, np.broadcast_to(np.frombuffer(_REPEAT, np.uint8), (int(repeats.sum()), 2))),
        (~repeats, _with_length(units[~repeats])),
    ):
        at = (ends - lengths)[some, None] + np.arange(words.shape[1])
        encoded[at] = words
    rest = raw[whole:]
    return encoded.tobytes() + (bytes([len(rest) - 1]) + rest if rest else b"")


def _with_length(units: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.insert(units, 0, _LITERAL[0], axis=1)


def _store_lz4(raw: bytes, _configuration: Any) -> bytes:
    """Frame bytes as HDF5's LZ4 does that compresses nothing: one block."""
    return struct.pack(">QII", len(raw), len(raw), len(raw)) + raw


def _encode_szip(raw: bytes, configuration: Any) -> bytes:
    from imagecodecs import szip_encode

    encoded: bytes = bytes(szip_encode(raw, **configuration))
    return encoded


_ENCODERS: dict[str, Callable[[bytes, Any], bytes]] = {
    "numcodecs.shuffle": partial(_by_numcodecs, "shuffle"),
    "numcodecs.fletcher32": partial(_by_numcodecs, "fletcher32"),
    "imagecodecs_lzf": encode_lzf,
    "imagecodecs_lz4h5": _store_lz4,
    "imagecodecs_szip": _encode_szip,
}
