"""Write a session's references as kerchunk files: JSON, or a Parquet directory.

The references name source files by URL, offset and length. The checksums of the session are lost,
so readers of the files do not notice that a source file changed. One array's references are in
memory at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from icevirt.access.interop.export import INLINE_NATIVE, ExportedReferences, nodes_below, outgoing
from icevirt.access.interop.kerchunk_files import JsonWriter, ParquetWriter, ReferenceWriter
from icevirt.access.xarray.attributes import shown
from icevirt.archive.reports.relocation import ExportReport
from icevirt.connect.urls import as_local_path
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import FILL
from icevirt.model.json import JSON
from icevirt.model.snapshot import ArrayNode, Node, document_of
from icevirt.model.zarr_v2 import NoEquivalentError, decoding_of, document_v2
from icevirt.planning.combine.hints import is_named
from icevirt.repo.session import Session

type Format = Literal["json", "parquet"]

RECORD_SIZE = 100_000
"""References in a parquet file, by default."""
_RESERVED = {
    2: frozenset({".zarray", ".zattrs", ".zgroup", ".zmetadata"}),
    3: frozenset({"zarr.json"}),
}
_FORMATS = ("json", "parquet")
_NOTHING = (0, 0.0, False, "", [0.0, 0.0])  # fill values that v2 means where it says none


def to_kerchunk(
    session: Session,
    path: str,
    file: str | os.PathLike[str],
    *,
    format: Format = "json",  # noqa: A002 - as kerchunk and VirtualiZarr name it
    zarr_format: Literal[2, 3] = 2,
    variables: Sequence[str] = (),
    drop_variables: Sequence[str] = (),
    record_size: int = RECORD_SIZE,
    inline_native: int = INLINE_NATIVE,
) -> ExportReport:
    """Write the references of a group or an array in kerchunk's format.

    fsspec's reference file system reads them, and through it zarr and xarray
    (``engine="kerchunk"``). Checksums are lost.

    Args:
        session: Any session; uncommitted changes are included.
        path: The group, with everything below it, or one array.
        file: The JSON file, which is replaced, or the parquet directory, which must not exist.
        format: ``json``, or ``parquet`` for millions of references.
        zarr_format: Of the metadata. Version 3 holds every array, but only in JSON, and xarray's
            ``engine="kerchunk"`` reads version 2 alone.
        variables: Names or absolute paths of the only arrays to write, coordinates included.
        drop_variables: Names or absolute paths of arrays to leave out.
        record_size: References in a parquet file.
        inline_native: Maximum bytes per array of repository chunks to embed.

    Raises:
        NodeNotFoundError: There is no such node.
        UnsupportedError: An array has more bytes in the repository, or it or its name cannot
            be expressed in zarr v2 or on the file system.
        AlreadyExistsError: The directory exists.
        InvalidInputError: The format is unknown, or no array has a name given.
    """
    if format not in _FORMATS or record_size < 1 or zarr_format not in _RESERVED:
        raise InvalidInputError(
            "unknown format of references",
            do=f"Pass one of {_FORMATS}, zarr_format=2 or 3, and a record_size of at least 1.",
            format=format,
            zarr_format=zarr_format,
            record_size=record_size,
        )
    if format == "parquet" and zarr_format != 2:
        raise InvalidInputError(
            "kerchunk's parquet directories hold metadata of zarr v2 only",
            do="Write JSON (--format json), or leave out zarr_format.",
        )
    nodes = _selected(session, path, tuple(variables), tuple(drop_variables))
    out = Path(as_local_path(file))
    for inside, _ in nodes:
        _check_name(inside, _RESERVED[zarr_format])
    counts = _Counts()
    with _writer(out, format, zarr_format, record_size) as writer:
        for inside, node in nodes:
            found = outgoing(session, node, inline_native) if isinstance(node, ArrayNode) else None
            writer.add(inside, _documents(node, found, zarr_format), found)
            if found is not None:
                counts.add(found)
    return ExportReport(
        path=str(out),
        format=format,
        zarr_format=zarr_format,
        snapshot_id=None if session.has_uncommitted_changes else session.snapshot_id,
        group=paths.canonical(path),
        arrays=counts.arrays,
        references=counts.references,
        files=len(counts.urls),
        chunks_embedded=counts.chunks,
        bytes_embedded=counts.nbytes,
    )


@dataclass(slots=True)
class _Counts:
    """What was written."""

    arrays: int = 0
    references: int = 0
    chunks: int = 0
    nbytes: int = 0
    urls: set[str] = field(default_factory=set)

    def add(self, found: ExportedReferences) -> None:
        """Count an array."""
        self.arrays += 1
        self.references += len(found.index)
        self.chunks += len(found.bodies)
        self.nbytes += sum(map(len, found.bodies.values()))
        self.urls.update(found.urls)


def _writer(out: Path, form: Format, zarr_format: int, record_size: int) -> ReferenceWriter:
    return JsonWriter(out, zarr_format) if form == "json" else ParquetWriter(out, record_size)


def _selected(
    session: Session, path: str, variables: tuple[str, ...], dropped: tuple[str, ...]
) -> list[tuple[str, Node]]:
    """Return the nodes to write, by their names in the output; the first is a group."""
    nodes = nodes_below(session, path)
    there = [node.path for _, node in nodes if isinstance(node, ArrayNode)]
    if unknown := [n for n in (*variables, *dropped) if not any(is_named(p, (n,)) for p in there)]:
        raise InvalidInputError(
            "there is no such array",
            do="Name an existing array, or omit the name.",
            unknown=unknown,
            there=there,
        )
    if isinstance(nodes[0][1], ArrayNode):  # references begin with a group
        nodes.insert(0, ("/", session.node("/")))
    return [
        (inside.strip("/"), node)
        for inside, node in nodes
        if not isinstance(node, ArrayNode)
        or ((not variables or is_named(node.path, variables)) and not is_named(node.path, dropped))
    ]


def _documents(
    node: Node, found: ExportedReferences | None, zarr_format: int
) -> dict[str, dict[str, Any]]:
    if zarr_format == 3:
        return {"zarr.json": document_of(node)}
    if isinstance(node, ArrayNode) and found is not None:
        return array_documents(node, complete=found.complete)
    return group_documents(node)


def _check_name(path: str, reserved: Collection[str]) -> None:
    """Refuse a name that zarr reads as a path or keeps for its metadata."""
    for name in path.split("/") if path else ():
        if (why := paths.problem(name)) or name in reserved:
            raise UnsupportedError(
                "kerchunk references cannot hold a node of this name:"
                f" {why or 'Zarr v2 reserves it'}",
                do="Rename the node with `repo.rearrange_session`, or export other nodes.",
                path=path,
                name=name,
            )


def group_documents(node: Node) -> dict[str, dict[str, Any]]:
    """Return ``.zgroup`` and ``.zattrs`` of a group."""
    attributes = {name: _jsonable(value) for name, value in shown(document_of(node)).items()}
    return {".zgroup": {"zarr_format": 2}, ".zattrs": attributes}


def array_documents(node: ArrayNode, *, complete: bool) -> dict[str, dict[str, Any]]:
    """Return ``.zarray`` and ``.zattrs`` of an array.

    Readers of v2 take the fill value of an array for its missing value, so it is ``_FillValue``
    where there is one, and left open where there is none.

    Args:
        node: The array.
        complete: Whether all its chunks are there.

    Raises:
        UnsupportedError: v2 cannot say it.
    """
    document = document_of(node)
    try:
        plain = document_v2(document, None)
        dtype = decoding_of(plain).dtype
        attributes = shown(document, dtype)
        zarray = {**plain, "fill_value": _fill(document, attributes, dtype, complete=complete)}
    except NoEquivalentError as error:
        raise UnsupportedError(
            f"kerchunk's references use zarr v2, which cannot express this array: {error}",
            do="Leave the array out (drop_variables, --drop-variable), or write JSON with"
            " zarr_format=3 (--zarr-format 3).",
            path=node.path,
        ) from error
    held = {name: _jsonable(value) for name, value in attributes.items()}
    names = document.get("dimension_names") or []
    if len(names) == len(node.shape) and all(names):
        held["_ARRAY_DIMENSIONS"] = names
    return {".zarray": zarray, ".zattrs": held}


def _fill(
    document: dict[str, Any], attributes: dict[str, Any], dtype: np.dtype[Any], *, complete: bool
) -> JSON:
    """Return the fill value for ``.zarray``, and take ``_FillValue`` out of the attributes."""
    own: JSON = document["fill_value"]
    if dtype.kind in "iuf" and isinstance(attributes.get(FILL), int | float | np.number):
        missing = _spelt(dtype.type(attributes.pop(FILL)))
        if not complete and missing != own:
            raise NoEquivalentError("missing chunks that are not read as _FillValue")
        return missing
    is_zero = own in _NOTHING or (isinstance(own, str) and not own.strip("A="))  # base64 of zeros
    if not complete and not is_zero:
        raise NoEquivalentError("missing chunks of other values than 0, without a _FillValue")
    return None


def _spelt(value: Any) -> JSON:
    number = value.item()
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return number  # type: ignore[no-any-return]


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
