"""Translate array metadata between zarr v2 and v3, for kerchunk's references.

Only metadata that reads equally under both is translated. The v3 spellings are those of icevirt's
scanners, so an array described in v2 joins a scanned one. Nothing is executed: a codec is known by
its name or refused, and a pickle in the metadata stays bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icevirt.model.json import JSON, JSONObject

_NUMBERS = {
    np.dtype(name).str[1:]: name
    for name in (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    )
}
_TYPESTRS = {name: typestr for typestr, name in _NUMBERS.items()}
_TIMES = {"M": "numpy.datetime64", "m": "numpy.timedelta64"}
_BYTES = {"S": "null_terminated_bytes", "V": "raw_bytes"}
_TEXT = {"vlen-utf8": "string", "vlen-bytes": "variable_length_bytes"}

# numcodecs that zarr v3 reads under the same name with this prefix
_PREFIX = "numcodecs."
_OF_ARRAYS = ("delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype")
_OF_BYTES = ("shuffle", "fletcher32", "crc32", "crc32c", "adler32", "jenkins_lookup3")
_COMPRESSORS = ("zlib", "bz2", "lzma", "lz4")
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


class NoEquivalentError(ValueError):
    """The other version of zarr cannot say this, or icevirt does not know that it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How an array decodes, in terms of v3."""

    data_type: JSON
    codecs: tuple[JSON, ...]
    fill_value: JSON  # of chunks that are not there
    dtype: np.dtype[Any]  # in memory; object for text of any length
    has_fill: bool  # v2 may leave the fill value open


# -- from v2 ---------------------------------------------------------------------------------------


def decoding_of(document: Mapping[str, Any]) -> Decoding:
    """Return what a ``.zarray`` document says.

    Raises:
        NoEquivalentError: It names a data type or codec that is not known.
        KeyError, TypeError: It is no such document.
    """
    filters = [dict(each) for each in document.get("filters") or ()]
    given = document["dtype"]
    if not isinstance(given, str):
        raise NoEquivalentError(f"the compound data type {given!r}")
    try:
        dtype = np.dtype(given)
    except TypeError as error:
        raise NoEquivalentError(f"the data type {given!r}") from error
    text = ""  # the codec of text, which v2 keeps as its first filter
    if dtype.kind == "O":
        text = str(filters.pop(0).get("id")) if filters else ""
        if text not in _TEXT:
            raise NoEquivalentError(f"Python objects encoded by {text or 'nothing'!r}")
    data_type = _TEXT[text] if text else _data_type(dtype)
    codecs: list[JSON] = []
    rank = len(document["shape"])
    if document.get("order", "C") == "F" and rank > 1:
        axes: list[JSON] = [*range(rank)][::-1]
        codecs.append({"name": "transpose", "configuration": {"order": axes}})
    while filters and filters[0].get("id") in _OF_ARRAYS:
        if dtype.byteorder == ">":
            raise NoEquivalentError(f"filter {filters[0]['id']!r} on big-endian values")
        codecs.append(_prefix(filters.pop(0)))
    if text:
        codecs.append({"name": text, "configuration": {}})
    elif dtype.kind in "SVb":
        codecs.append({"name": "bytes"})
    else:
        endian = "big" if dtype.byteorder == ">" else "little"
        codecs.append({"name": "bytes", "configuration": {"endian": endian}})
    compressor = document.get("compressor")
    codecs += [_codec(each, dtype) for each in (*filters, *([compressor] if compressor else ()))]
    fill = document.get("fill_value")
    return Decoding(
        data_type=data_type,
        codecs=tuple(codecs),
        fill_value=_default(dtype) if fill is None else _fill(fill, dtype),
        dtype=dtype.newbyteorder("="),
        has_fill=fill is not None,
    )


def _data_type(dtype: np.dtype[Any]) -> JSON:
    if dtype.kind in _TIMES:
        unit, count = np.datetime_data(dtype)
        return {
            "name": _TIMES[dtype.kind],
            "configuration": {"unit": unit, "scale_factor": count},
        }
    if dtype.kind in "SVU" and dtype.itemsize:
        name = _BYTES.get(dtype.kind, "fixed_length_utf32")
        return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}
    if dtype.str[1:] not in _NUMBERS:
        raise NoEquivalentError(f"the data type {dtype.str!r}")
    return _NUMBERS[dtype.str[1:]]


def _prefix(codec: Mapping[str, Any]) -> JSON:
    rest = {key: value for key, value in codec.items() if key != "id"}
    return {"name": f"{_PREFIX}{codec['id']}", "configuration": rest}


def _codec(codec: Mapping[str, Any], dtype: np.dtype[Any]) -> JSON:
    name = codec.get("id")
    if name in _OF_BYTES or name in _COMPRESSORS:
        return _prefix(codec)
    match name:
        case "gzip":
            return {"name": "gzip", "configuration": {"level": codec.get("level", 1)}}
        case "zstd":
            level, checksum = codec.get("level", 0), bool(codec.get("checksum", False))
            return {"name": "zstd", "configuration": {"level": level, "checksum": checksum}}
        case "blosc":
            shuffle = codec.get("shuffle", 1)
            if shuffle == -1:  # chosen by the encoder
                shuffle = 2 if dtype.itemsize == 1 else 1
            settings: JSON = {
                "cname": codec.get("cname", "lz4"),
                "clevel": codec.get("clevel", 5),
                "shuffle": _SHUFFLES[shuffle],
                "typesize": dtype.itemsize,
                "blocksize": codec.get("blocksize", 0),
            }
            return {"name": "blosc", "configuration": settings}
        case _:
            raise NoEquivalentError(f"the codec {name!r} at this place")


def _fill(given: Any, dtype: np.dtype[Any]) -> JSON:
    if dtype.kind in "fc" and not isinstance(given, str):
        return [_float(part) for part in given] if dtype.kind == "c" else _float(given)
    if dtype.kind in "iu":
        if int(given) != given:
            raise NoEquivalentError(f"the fill value {given!r} of integers")
        return int(given)
    if dtype.kind == "b":
        return bool(given)
    if dtype.kind in "SV" and given in {0, ""}:
        return base64.standard_b64encode(bytes(dtype.itemsize if dtype.kind == "V" else 0)).decode()
    if dtype.kind in "mM" and given == "NaT":
        return int(np.iinfo(np.int64).min)
    return given  # type: ignore[no-any-return]  # spelt alike in both


def _float(given: Any) -> JSON:
    """Spell a float; JSON as Python reads it may have bare NaN."""
    if isinstance(given, str) or math.isfinite(given):
        return given if isinstance(given, str) else float(given)
    return "NaN" if math.isnan(given) else "Infinity" if given > 0 else "-Infinity"


def _default(dtype: np.dtype[Any]) -> JSON:
    """Return what zarr reads where a chunk is missing and v2 names no fill value."""
    if dtype.kind in "SV":
        return _fill(0, dtype)
    if dtype.kind in "mM":
        return _fill("NaT", dtype)
    plain: dict[str, JSON] = {"b": False, "f": 0.0, "c": [0.0, 0.0], "U": "", "O": ""}
    return plain.get(dtype.kind, 0)


# -- to v2 -----------------------------------------------------------------------------------------


def document_v2(metadata: Mapping[str, Any], fill_value: JSON) -> JSONObject:
    """Return the ``.zarray`` document of a v3 array with another fill value; None leaves it open.

    Raises:
        NoEquivalentError: v2 cannot say it.
    """
    grid = metadata["chunk_grid"]
    if grid["name"] != "regular":
        raise NoEquivalentError(f"the chunk grid {grid['name']!r}")
    codecs: list[tuple[str, Mapping[str, Any]]] = [
        (codec, {})
        if isinstance(codec, str)
        else (str(codec["name"]), codec.get("configuration") or {})
        for codec in metadata["codecs"]
    ]
    order = "C"
    if codecs[0][0] == "transpose":
        if list(codecs.pop(0)[1]["order"]) != list(range(len(metadata["shape"])))[::-1]:
            raise NoEquivalentError("a transposition other than the reverse")
        order = "F"
    filters = []
    while codecs and codecs[0][0].removeprefix(_PREFIX) in _OF_ARRAYS:
        name, settings = codecs.pop(0)
        filters.append({"id": name.removeprefix(_PREFIX), **settings})
    if not codecs:
        raise NoEquivalentError("an array without a codec to bytes")
    serializer, settings = codecs.pop(0)
    if serializer in _TEXT:
        filters.append({"id": serializer})
    elif serializer != "bytes":
        raise NoEquivalentError(f"the codec {serializer!r}")
    rest = [_codec_v2(*codec) for codec in codecs]
    compressor = rest.pop() if rest and rest[-1]["id"] not in _OF_BYTES else None
    shape: list[JSON] = list(metadata["shape"])
    return {
        "zarr_format": 2,
        "shape": shape,
        "chunks": list(grid["configuration"]["chunk_shape"]),
        "dtype": _typestr(metadata["data_type"], settings.get("endian", "little")),
        "order": order,
        "filters": [*filters, *rest] or None,
        "compressor": compressor,
        "fill_value": fill_value,
        "dimension_separator": ".",
    }


def _codec_v2(name: str, settings: Mapping[str, Any]) -> dict[str, JSON]:
    plain = name.removeprefix(_PREFIX)
    if plain != name and (plain in _OF_BYTES or plain in _COMPRESSORS):
        return {"id": plain, **settings}
    if plain in {"zstd", "gzip"}:
        return {"id": plain, **settings}
    if name == "blosc":
        kept = {key: settings[key] for key in ("cname", "clevel", "blocksize") if key in settings}
        return {"id": "blosc", **kept, "shuffle": _SHUFFLES.index(settings["shuffle"])}
    raise NoEquivalentError(f"the codec {name!r}")


def _typestr(data_type: Any, endian: str) -> str:
    mark = ">" if endian == "big" else "<"
    if isinstance(data_type, str):
        if data_type in _TEXT.values():
            return "|O"
        if data_type not in _TYPESTRS:
            raise NoEquivalentError(f"the data type {data_type!r}")
        return np.dtype(mark + _TYPESTRS[data_type]).str
    name, settings = data_type["name"], data_type.get("configuration") or {}
    for kind, known in _TIMES.items():
        if name == known:
            return f"{mark}{kind}8[{settings['scale_factor']}{settings['unit']}]"
    for kind, known in {**_BYTES, "U": "fixed_length_utf32"}.items():
        if name == known:
            length = settings["length_bytes"]
            return f"{mark}U{length // 4}" if kind == "U" else f"|{kind}{length}"
    raise NoEquivalentError(f"the data type {name!r}")
