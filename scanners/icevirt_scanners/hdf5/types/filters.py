"""Translate HDF5 filter pipelines to zarr codecs that undo them exactly.

The codecs follow the array-to-bytes codec in encoding order. A pipeline without an exact
translation (szip, lzf, scale-offset, n-bit, filters from plugins, orders that numcodecs undoes
wrongly) is not an error here: the translation gives the reason, and the values are read and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from h5py import h5z

from icevirt.model.json import JSON
from icevirt_scanners.hdf5.raw.file import Filter

BUILT_IN = frozenset({h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32})
"""Filters that need no plugin."""

_ZSTD, _BLOSC, _BZIP2 = 32015, 32001, 307
_NAMES = {
    4: "szip",
    5: "n-bit",
    6: "scale-offset",
    _BZIP2: "bzip2",
    32000: "lzf",
    _BLOSC: "blosc",
    32004: "lz4",
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


class _NoCodecError(Exception):
    """A filter has no codec that undoes it exactly; the message says which."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The filters of a dataset."""

    codecs: tuple[JSON | None, ...] = ()  # one for each filter; None where none is needed
    not_plain: str = ""  # why zarr cannot undo it
    undecodable: str = ""  # the filter for which this libhdf5 has no decoder

    def kept(self, mask: int = 0) -> tuple[JSON, ...]:
        """Return the codecs of chunks for which the filters in ``mask`` were skipped."""
        return tuple(
            codec for n, codec in enumerate(self.codecs) if codec is not None and not mask >> n & 1
        )


def filters_of_plist(plist: Any) -> tuple[Filter, ...]:
    """Return the filters of a dataset's creation property list."""
    return tuple(map(plist.get_filter, range(plist.get_nfilters())))


def pipeline_of(filters: Iterable[Filter], chunk_bytes: int) -> Pipeline:
    """Translate the filters of a dataset whose chunks have ``chunk_bytes`` before encoding."""
    codecs: list[JSON | None] = []
    reason = missing = ""
    length: int | None = chunk_bytes  # of what the next filter is fed; None when it varies
    for code, _, values, raw in filters:
        name = _NAMES.get(code) or raw.decode("utf-8", "replace") or f"filter {code}"
        if not h5z.filter_avail(code):
            missing = missing or f"{name} (filter {code})"
        try:
            codec, length = _codec(code, values, length)
        except _NoCodecError as error:
            reason = reason or str(error) or name
            codec, length = None, None
        codecs.append(codec)
    return Pipeline(tuple(codecs), reason, missing)


def _codec(code: int, values: Sequence[int], length: int | None) -> tuple[JSON | None, int | None]:
    """Return a filter's codec, and how many bytes it hands on."""
    if code == h5z.FILTER_SHUFFLE:
        return _shuffle(values, length), length
    if code == h5z.FILTER_FLETCHER32:
        codec: JSON = {"name": "numcodecs.fletcher32", "configuration": {}}
        return codec, None if length is None else length + 4
    make = _COMPRESSORS.get(code)
    if make is None:
        raise _NoCodecError
    return make(values), None


def _shuffle(values: Sequence[int], length: int | None) -> JSON | None:
    size = values[0] if values else 1
    if size <= 1:
        return None  # HDF5 leaves the bytes as they are
    if length is None or length % size:
        # HDF5 leaves the rest behind the last whole element alone, numcodecs refuses it
        raise _NoCodecError("shuffle behind a filter that changes the length")
    return {"name": "numcodecs.shuffle", "configuration": {"elementsize": size}}


def _leveled(name: str, default: int, values: Sequence[int]) -> JSON:
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
    h5z.FILTER_DEFLATE: partial(_leveled, "numcodecs.zlib", 1),
    _ZSTD: _zstd,
    _BZIP2: partial(_leveled, "numcodecs.bz2", 9),
    _BLOSC: _blosc,
}
