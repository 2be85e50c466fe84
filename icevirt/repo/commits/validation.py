"""Check node metadata, with zarr's own classes, and chunk references before staging.

The official client accepts nearly anything and fails later, or for other readers.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from icevirt.errors import (
    InvalidInputError,
    MetadataError,
    NoContainerError,
    ZeroLengthError,
    check,
    refuse_no_text,
)
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config.containers import first_uncovered, prefixes_of
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.json import NaNError, loads
from icevirt.model.snapshot import grid_facts
from icevirt.versioning import chunk_tables

_U32 = 0xFFFFFFFF
_I64 = 0x7FFFFFFFFFFFFFFF
_REMEDY = "Write zarr v3 metadata as zarr itself would."


def check_metadata(path: str, zarr_json: bytes, *, any_codec: bool = False) -> str:
    """Check a zarr.json and return its node type, "group" or "array".

    With ``any_codec``, codecs and storage transformers may be unknown here.

    Raises:
        InvalidInputError: It is no zarr v3 document that readers of this repository can use.
    """
    document = _load(path, zarr_json)
    kind = document.get("node_type")
    if document.get("zarr_format") != 3 or kind not in ("group", "array"):
        raise MetadataError(
            "not the metadata of a zarr v3 group or array",
            do=_REMEDY,
            path=path,
            zarr_format=document.get("zarr_format"),
            node_type=kind,
        )
    try:
        _parse(_with_known_codecs(document) if any_codec else document)
    except InvalidInputError:
        raise
    except Exception as error:  # zarr raises many kinds
        raise MetadataError(
            f"zarr rejects this metadata: {error}", do=_REMEDY, path=path
        ) from error
    if kind == "array":
        _check_array(path, document)
    return str(kind)


def _load(path: str, zarr_json: bytes) -> dict[str, Any]:
    try:
        document = loads(zarr_json, nan=False)
    except NaNError as error:
        raise MetadataError(
            f"the metadata holds a bare {error}, which is not JSON",
            do="Write datasets with icevirt.xarray.to_icechunk, which keeps such numbers; or leave"
            ' the attribute out, or write text: "NaN" or "Infinity".',
            path=path,
        ) from error
    except ValueError as error:
        raise MetadataError(f"the metadata is not JSON: {error}", do=_REMEDY, path=path) from error
    if not isinstance(document, dict):
        raise MetadataError("the metadata is not a JSON object", do=_REMEDY, path=path)
    return document


def _parse(document: dict[str, Any]) -> None:
    """Let zarr read the document; whether a codec is specified already is not our concern."""
    if isinstance(document.get("attributes"), dict):  # whatever they hold
        document = {**document, "attributes": {}}
    _read_by_zarr(json.dumps(document))


@lru_cache(256)
def _read_by_zarr(document: str) -> None:
    """Let zarr read a document; arrays of a store are often alike but for their attributes."""
    from zarr.core.group import GroupMetadata
    from zarr.core.metadata import ArrayV3Metadata

    given = json.loads(document)  # zarr empties what it is given
    reader = GroupMetadata if given["node_type"] == "group" else ArrayV3Metadata
    with warnings.catch_warnings(), any_grid():
        warnings.simplefilter("ignore")
        reader.from_dict(given)


def _with_known_codecs(document: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with other codecs, if some are unknown here, and no storage transformers."""
    from zarr.registry import get_codec_class

    kept = {name: value for name, value in document.items() if name != "storage_transformers"}
    try:
        for codec in document.get("codecs") or ():
            get_codec_class(codec if isinstance(codec, str) else codec["name"])
    except (KeyError, TypeError, ValueError):
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        is_text = document.get("data_type") == "string"
        return {**kept, "codecs": [{"name": "vlen-utf8"} if is_text else little]}
    return kept


@contextmanager
def any_grid() -> Iterator[None]:
    """Let zarr read grids of chunks whose lengths differ, which is off by default."""
    import zarr

    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def _check_array(path: str, document: dict[str, Any]) -> None:
    facts = grid_facts(document)
    if any(not 0 <= edge <= _I64 for edge in facts.shape):
        raise MetadataError("the shape is out of range", path=path, shape=facts.shape)
    if any(chunks > _U32 for chunks in facts.num_chunks):
        raise MetadataError(
            "an axis has more chunks than the format can number",
            do="Use larger chunks.",
            path=path,
            num_chunks=facts.num_chunks,
        )
    names = facts.dimension_names
    if names is not None and len(names) != len(facts.shape):
        raise MetadataError(
            "the number of dimension names differs from the number of dimensions",
            do="Give a name or null for each dimension.",
            path=path,
            dimension_names=names,
            shape=facts.shape,
        )
    for name in filter(None, names or ()):
        refuse_no_text("the name of a dimension", name)
    encoding = document.get("chunk_key_encoding")
    named = encoding if isinstance(encoding, dict) else {"name": encoding}
    separator = (named.get("configuration") or {}).get("separator", "/")
    if named.get("name") != "default" or separator != "/":
        raise MetadataError(
            "Icechunk repositories support only chunk keys like c/0/1",
            do='Use the chunk key encoding "default" with the separator "/".',
            path=path,
            chunk_key_encoding=encoding,
        )


def check_chunks(
    config: RepositoryConfig, path: str, chunks: ChunkTable, *, any_location: bool = False
) -> None:
    """Check chunk references for what holds in any array.

    Raises:
        InvalidInputError: One has no bytes, or no container covers a location.
    """
    how = "Make one with ChunkTable.virtual or .inlined."
    check("chunks", chunks, ChunkTable, do=how)
    empty = (chunks.length == 0) & (chunks.kind != ChunkType.uninitialized)
    if empty.any():
        raise ZeroLengthError(
            "a chunk reference with no bytes cannot be read",
            do="Leave out the references of chunks that were never written.",
            path=path,
            chunk=tuple(chunks.index[int(empty.argmax())].tolist()),
        )
    if not chunks.count(ChunkType.virtual):
        return
    from icevirt.objects.locations import check_locations, check_urls

    urls = chunk_tables.compact(chunks).locations.url
    check_locations(urls)
    if any_location:
        check_urls(urls)
        return
    containers = config.virtual_chunk_containers.values()
    bad = first_uncovered(urls, prefixes_of(containers))
    if bad is None:
        return
    prefix, store = bad.rsplit("/", 1)[0] + "/", "ObjectStoreConfig(...)"
    if prefix.startswith("file://"):
        store = f'local_filesystem_store("{unquote(prefix.removeprefix("file://"))}")'
    raise NoContainerError(
        "no virtual chunk container of this repository covers a location",
        do="Add one and open a new session:"
        f' repo.config.set_virtual_chunk_container(VirtualChunkContainer("{prefix}", {store}));'
        " repo.save_config()",
        path=path,
        location=bad,
        containers=[container.url_prefix for container in containers],
    )
