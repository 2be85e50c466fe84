"""Decide which readers can decode an array, from its data type, codecs, shape and chunk grid.

Two readers are distinguished, because all others that open Icechunk repositories are built on them.

*zarr-python* 3.4 with what it installs (numcodecs, google-crc32c); over icevirt, or over the
official icechunk client, which hands chunks on as they are. It has the codecs of its entry points
``zarr.codecs``, ``numcodecs.*`` among them, of which two need a package of their own. Source: the
registries of zarr 3.4.2, with which ``tests/unit/planning/test_readers.py`` compares the tables.

*GDAL* 3.14, whose Icechunk driver (``doc/source/drivers/raster/icechunk.rst``) leaves decoding to
the Zarr driver. Sources: ``frmts/zarr/zarr_v3_codec_sequence.cpp`` (codecs by name; ``numcodecs.*``
are none of them, which its issue 14917 asks for), ``zarr_v3_array.cpp`` (``ParseDtypeV3``: data
types; only the regular chunk grid, no storage transformers, no empty shapes),
``zarr_v3_codec_vlen_utf8.cpp`` (text is cut after ``ZARR_VLEN_STRING_MAX_LENGTH`` bytes, 256).
Builds of GDAL may lack zstd or blosc; nothing here knows that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icevirt.amounts import size_of
from icevirt.archive.reports.build import GDAL, Readers
from icevirt.model.codec_packages import DECODING_ONLY, PREFIXES, package_of
from icevirt.model.json import JSON

if TYPE_CHECKING:
    from icevirt.archive.scanned import Finding, ScannedFile
    from icevirt.model.attributes import Attributes

CORE = dict.fromkeys(
    (
        *("blosc", "bytes", "cast_value", "crc32c", "endian", "gzip", "scale_offset"),
        *("sharding_indexed", "transpose", "vlen-utf8", "zstd"),
    ),
    True,
) | {"vlen-bytes": False}
"""Codecs that zarr-python brings itself, and whether GDAL has them."""

NUMCODECS = (
    *("adler32", "astype", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta"),
    *("fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits"),
    *("pcodec", "quantize", "shuffle", "zfpy", "zlib", "zstd"),
)
"""Codecs that zarr-python has under these names behind ``numcodecs.``; GDAL has none."""

DATA_TYPES = dict.fromkeys(
    (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128", "string"),
        *("fixed_length_utf32", "null_terminated_bytes"),
        *("numpy.datetime64", "numpy.timedelta64"),
    ),
    True,
) | dict.fromkeys(("raw_bytes", "struct", "variable_length_bytes"), False)
"""Data types that zarr-python has, and whether GDAL has them."""

_LONG_TEXT = "strings of more than 256 bytes"
_GDAL_MOST = 10 << 20  # bytes of a fixed-length string
_SHOWN = 3  # names in a line

RECTILINEAR = "array.rectilinear_chunks"
"""The setting of zarr without which it does not read chunks of different lengths."""


def readers_of(
    data_type: JSON, codecs: Iterable[JSON], *, shape: Sequence[int] = (), grid: str = "regular"
) -> Readers:
    """Return who decodes an array.

    Args:
        data_type: As zarr.json spells it: a name, or an object with one.
        codecs: As zarr.json spells them; those inside of shards count too.
        shape: Lengths, in elements.
        grid: Name of the chunk grid.
    """
    zarr: list[str] = []
    gdal: list[str] = []
    name = name_of(data_type)
    if name not in DATA_TYPES:
        zarr.append(f"an extension for the data type {name}")
    if not _gdal_has(data_type):
        gdal.append(f"the data type {name}")
    if name == "string":
        gdal.append(_LONG_TEXT)
    if grid != "regular":
        zarr.append(f"the setting {RECTILINEAR}")
        gdal.append(f"{grid} chunk grids")
    if not all(shape):
        gdal.append("arrays without elements")
    for codec in _all(codecs):
        known = CORE.get(codec)
        if package := package_of(codec):
            zarr.append(package)
        elif known is None and codec.removeprefix("numcodecs.") not in NUMCODECS:
            zarr.append(f"an extension for the codec {codec}")
        if not known:
            gdal.append(f"the codec {codec}")
    return Readers(zarr_lacks=tuple(dict.fromkeys(zarr)), gdal_lacks=tuple(dict.fromkeys(gdal)))


def readers_of_json(zarr_json: bytes) -> Readers:
    """Return who decodes the array that a zarr.json describes."""
    return readers_of_document(json.loads(zarr_json))


def readers_of_document(metadata: Mapping[str, Any]) -> Readers:
    """Return who decodes the array of a zarr.json."""
    return readers_of(
        metadata["data_type"],
        metadata["codecs"],
        shape=metadata["shape"],
        grid=name_of(metadata["chunk_grid"]),
    )


def can_encode(codecs: Iterable[JSON]) -> bool:
    """Say whether codecs, as zarr.json spells them, have encoders: that of GRIB has none."""
    return DECODING_ONLY.isdisjoint(_all(codecs))


def readers_of_schema(text: str) -> Readers:
    """Return who decodes arrays of a catalog, from the JSON of `ArraySchema`."""
    schema = json.loads(text)
    return readers_of(schema["data_type"], schema["codecs"])


def describe_readers(readers: Mapping[str, Readers]) -> Iterator[str]:
    """Yield a line for each want that arrays have in common, by path of arrays."""
    total = len(readers)
    for wants, paths in _alike({path: each.zarr_lacks for path, each in readers.items()}):
        yield f"zarr-python reads {_list(paths, total)} only with {_and(wants)}"
    for wants, paths in _alike({path: each.gdal_lacks for path, each in readers.items()}):
        yield f"{GDAL} cannot read {_list(paths, total)}: it lacks {_and(wants)}"


def describe_savings(arrays: Mapping[str, tuple[bytes, int]]) -> Iterator[str]:
    """Yield a line for each accepted package of codecs: what need not be copied.

    Args:
        arrays: The zarr.json and the bytes that stay in the files, by path.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for path, (zarr_json, nbytes) in arrays.items():
        codecs = _all(json.loads(zarr_json)["codecs"]) if nbytes else ()
        for prefix in {codec.partition("_")[0] for codec in codecs}:
            if package := PREFIXES.get(f"{prefix}_"):
                found.setdefault(package, []).append((path, nbytes))
    for package, some in found.items():
        names = _list([path for path, _ in some], len(arrays))
        total = size_of(sum(nbytes for _, nbytes in some))
        yield f"{total} of {names} stay in the files, because readers have {package}"


def describe_unseen(kinds: Iterable[tuple[str, Attributes, JSON]]) -> Iterator[str]:
    """Yield a line if some arrays have missing values that other readers cannot be told.

    Args:
        kinds: Of arrays: path, attributes, data type.
    """
    from icevirt.model.attributes import is_unseen

    found = [path for path, attributes, kind in kinds if is_unseen(attributes, kind)]
    if found:
        yield (
            f"readers other than icevirt do not mask all of missing_value of {_and(found)}:"
            " JSON has no such numbers"
        )


def findings(scanned: ScannedFile) -> tuple[Finding, ...]:
    """Return findings about the readers of the arrays of one file."""
    from icevirt.archive.scanned import Finding, Severity

    found = {
        array.path: readers_of(array.data_type, array.codecs, shape=array.shape)
        for array in scanned.arrays
    }
    lines = [
        ("/", "missing-value-unseen", text)
        for text in describe_unseen(
            (each.path, each.attributes, each.data_type) for each in scanned.arrays
        )
    ]
    for path, readers in found.items():
        lacks = {path: Readers(zarr_lacks=readers.zarr_lacks)}
        lines += [(path, "needs-package", text) for text in describe_readers(lacks)]
    warnings = [
        Finding(path=path, code=code, message=text, severity=Severity.warning)
        for path, code, text in lines
    ]
    lacks = {path: Readers(gdal_lacks=each.gdal_lacks) for path, each in found.items()}
    texts = describe_readers(lacks)
    return (*warnings, *(Finding(path="/", code="not-for-gdal", message=text) for text in texts))


def name_of(value: JSON) -> str:
    """Return the name of a data type, codec or grid, which is a string or an object with one."""
    return str(value.get("name")) if isinstance(value, Mapping) else str(value)


def _alike(wants: Mapping[str, tuple[str, ...]]) -> Iterable[tuple[tuple[str, ...], list[str]]]:
    """Return what is wanted, and the paths that want just that."""
    paths: dict[tuple[str, ...], list[str]] = {}
    for path, lacking in wants.items():
        if lacking:
            paths.setdefault(lacking, []).append(path)
    return paths.items()


def _all(codecs: Iterable[JSON]) -> Iterator[str]:
    """Yield the names of codecs, those inside of shards included."""
    for codec in codecs:
        yield name_of(codec)
        configuration = codec.get("configuration") if isinstance(codec, Mapping) else None
        if name_of(codec) == "sharding_indexed" and isinstance(configuration, Mapping):
            for inner in (configuration.get("codecs"), configuration.get("index_codecs")):
                yield from _all(inner if isinstance(inner, list | tuple) else ())


def _gdal_has(data_type: JSON) -> bool:
    configuration = data_type.get("configuration") if isinstance(data_type, Mapping) else None
    length = configuration.get("length_bytes", 1) if isinstance(configuration, Mapping) else 1
    is_short = isinstance(length, int) and 0 < length <= _GDAL_MOST
    return is_short and DATA_TYPES.get(name_of(data_type), False)


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _list(names: Sequence[str], total: int) -> str:
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return f"{len(names)} of {total} arrays ({', '.join(names[:_SHOWN])}, ...)"
