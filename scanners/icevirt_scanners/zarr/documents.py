"""Find the metadata of a store: documents of its nodes, or what its root consolidates.

zarr-python believes consolidated metadata. So a store whose documents say otherwise is refused: it
was written to, or partly deleted, after they were consolidated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.strings import Strings
from icevirt.scan.contract import StoreByteSource
from icevirt_scanners.kerchunk.document import parse

V3, CONSOLIDATED = "zarr.json", ".zmetadata"
V2 = (".zarray", ".zgroup", ".zattrs")
_SHOWN = 5  # keys in a message
# of an array or group; what else documents hold is spelled in more ways than one
_COMPARED = (
    *("zarr_format", "node_type", "shape", "chunks", "chunk_grid", "dtype", "data_type"),
    *("order", "dimension_separator", "chunk_key_encoding"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The documents of a store."""

    documents: Mapping[str, dict[str, Any]]  # by key
    rows: Mapping[str, int]  # of the objects that are documents of this format, by key
    is_v3: bool


def read_metadata(source: StoreByteSource) -> Metadata:
    """Read the metadata of all nodes.

    Raises:
        ScanError: It is damaged, or what is consolidated is not what the documents say.
    """
    url, is_v3 = source.file.url, source.document == V3
    rows = document_rows(source)
    root = V3 if is_v3 else CONSOLIDATED
    at = rows.get(root)
    held = None if at is None else parse_document(source.read_objects([at])[0], url, root)
    consolidated = None if held is None else _expand(held, url, is_v3=is_v3)
    if consolidated is None:
        bodies = source.read_objects(list(rows.values()))
        # equal texts are one document, of which each decision is made once
        known: dict[bytes, dict[str, Any]] = {}
        for key, body in zip(rows, bodies, strict=True):
            if body not in known:
                known[body] = parse_document(body, url, key)
        documents = {key: known[body] for key, body in zip(rows, bodies, strict=True)}
        return Metadata(documents=documents, rows=rows, is_v3=is_v3)
    assert at is not None
    _refuse_stale(source, consolidated, rows, at)
    return Metadata(documents=consolidated, rows=rows, is_v3=is_v3)


def document_rows(source: StoreByteSource) -> dict[str, int]:
    """Return the rows of objects that are documents of this format, by key."""
    keys = source.objects.keys
    names = (V3,) if source.document == V3 else V2
    found = sorted({row for name in names for row in _named(keys, name).tolist()})
    rows = {keys[row]: row for row in found}
    if source.document != V3 and (at := _row_of(keys, CONSOLIDATED)) is not None:
        rows[CONSOLIDATED] = at
    return rows


def _named(keys: Strings, name: str) -> NDArray[np.int64]:
    """Return the rows whose last name this is."""
    raw = name.encode()
    ends, lengths = keys.starts[1:], keys.lengths
    rows = np.flatnonzero(lengths >= len(raw))
    for back, byte in enumerate(reversed(raw), 1):
        rows = rows[keys.data[ends[rows] - back] == byte]
    inside = lengths[rows] > len(raw)
    kept = ~inside
    kept[inside] = keys.data[ends[rows[inside]] - len(raw) - 1] == ord("/")
    return rows[kept]


def _row_of(keys: Strings, key: str) -> int | None:
    rows = np.flatnonzero(keys.lengths == len(key))
    rows = rows[keys.begin_with(key.encode(), rows)]
    return int(rows[0]) if len(rows) else None


def parse_document(body: bytes, url: str, key: str) -> dict[str, Any]:
    """Return the document that an object holds. Raises `ScanError`."""
    try:
        held = parse(body, url)
    except ScanError as error:
        raise damaged(url, key=key, cause=str(error.facts.get("cause"))) from error
    if not isinstance(held, dict):
        raise damaged(url, key=key, cause="metadata is not a JSON object")
    return held


def _expand(root: dict[str, Any], url: str, *, is_v3: bool) -> dict[str, dict[str, Any]] | None:
    """Return consolidated documents by their keys; None where a root holds none."""
    if is_v3:
        held = root.get("consolidated_metadata")
        if held is None:
            return None
        if not isinstance(held, dict) or held.get("kind") != "inline":
            raise damaged(url, key=V3, cause="consolidated metadata of an unknown kind")
    else:
        held = root
    metadata = held.get("metadata")
    if not isinstance(metadata, dict) or not all(isinstance(e, dict) for e in metadata.values()):
        raise damaged(url, key=V3 if is_v3 else CONSOLIDATED, cause="no 'metadata'")
    metadata = _share_equal(metadata)
    if not is_v3:
        return metadata
    own = {key: value for key, value in root.items() if key != "consolidated_metadata"}
    return {V3: own, **{f"{path}/{V3}": document for path, document in metadata.items()}}


def _share_equal(documents: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return documents, those of equal texts as one."""
    known: dict[str, dict[str, Any]] = {}
    return {key: known.setdefault(json.dumps(each), each) for key, each in documents.items()}


def _refuse_stale(
    source: StoreByteSource,
    consolidated: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, int],
    at: int,
) -> None:
    """Compare consolidated metadata with the documents that are there, and with newer ones."""
    url = source.file.url
    there = {key for key in rows if key != CONSOLIDATED}
    if missing := sorted(consolidated.keys() - there):
        raise ScanError(
            "metadata that a Zarr store consolidates is not there: it is partly deleted",
            do="Restore it, or run zarr.consolidate_metadata if that was meant.",
            file=url,
            missing=missing[:_SHOWN],
            count=len(missing),
        )
    newer = _newer(source, rows, at)
    added = sorted(there - consolidated.keys())
    bodies = source.read_objects([rows[key] for key in newer])
    changed = [
        key
        for key, body in zip(newer, bodies, strict=True)
        if key in consolidated and _differ(consolidated[key], parse_document(body, url, key), key)
    ]
    if wrong := [*added, *changed]:
        raise ScanError(
            "the consolidated metadata of a Zarr store is older than its nodes, so readers see "
            "another store than it is",
            do="Run zarr.consolidate_metadata on it.",
            file=url,
            nodes=wrong[:_SHOWN],
            count=len(wrong),
        )


def _newer(source: StoreByteSource, rows: Mapping[str, int], at: int) -> list[str]:
    times = source.objects.times
    return [key for key, row in rows.items() if row != at and times[row] >= times[at]]


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    if key.endswith(".zattrs"):
        return one != other
    names = (*_COMPARED, "attributes")
    return any((one.get(name) or None) != (other.get(name) or None) for name in names)


def damaged(url: str, **facts: Any) -> ScanError:
    """Return the error of a store that is not what it should be."""
    return ScanError(
        "a damaged Zarr store",
        do="Restore it, or leave what is damaged out with drop_variables.",
        file=url,
        **facts,
    )


def refuse_extensions(documents: Mapping[str, Mapping[str, Any]], url: str) -> None:
    """Refuse documents with fields that a reader must understand, and this one does not.

    Raises:
        UnsupportedError: There is one.
    """
    for key, document in documents.items():
        if document.get("storage_transformers"):
            raise UnsupportedError(
                "a Zarr array with storage transformers",
                do="Leave it out with drop_variables.",
                file=url,
                key=key,
            )
        if odd := [name for name in document if name not in _FIELDS and _must(document[name])]:
            raise UnsupportedError(
                "Zarr metadata with an extension that a reader must understand",
                do="Leave the array out with drop_variables, or read it with what wrote it.",
                file=url,
                key=key,
                fields=odd,
            )


_FIELDS = frozenset(
    {
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
        *("fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"),
        "consolidated_metadata",
    }
)


def _must(value: Any) -> bool:
    return not (isinstance(value, Mapping) and value.get("must_understand") is False)


def first_keys(keys: Iterable[str]) -> list[str]:
    """Return some keys for a message."""
    return [key for key, _ in zip(keys, range(_SHOWN), strict=False)]
