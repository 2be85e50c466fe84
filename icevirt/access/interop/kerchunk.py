"""Write a session's references as kerchunk files: JSON, or a Parquet directory.

The references name source files by URL, offset and length. The checksums of the session are lost,
so readers of the files do not notice that a source file changed.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from icevirt.access.interop.export import INLINE_NATIVE, ExportedReferences, nodes_below, outgoing
from icevirt.access.xarray.attributes import FILL, shown
from icevirt.connect.urls import as_local_path, local_path
from icevirt.errors import AlreadyExistsError, InvalidInputError, UnsupportedError
from icevirt.model.json import JSON
from icevirt.model.metadata import document_of
from icevirt.model.paths import problem
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.model.zarr_v2 import NoEquivalentError, decoding_of, document_v2
from icevirt.repo.session import Session

type Format = Literal["json", "parquet"]

RECORD_SIZE = 100_000
"""References in a parquet file, by default."""
_RESERVED = frozenset({".zarray", ".zattrs", ".zgroup", ".zmetadata"})
_FORMATS = ("json", "parquet")
_NOTHING = (0, 0.0, False, "", [0.0, 0.0])  # fill values that v2 means where it says none


def to_kerchunk(
    session: Session,
    path: str,
    file: str | os.PathLike[str],
    *,
    format: Format = "json",  # noqa: A002 - as kerchunk and VirtualiZarr name it
    record_size: int = RECORD_SIZE,
    inline_native: int = INLINE_NATIVE,
) -> None:
    """Write the references of a group or an array in kerchunk's format.

    fsspec's reference file system reads them, and through it zarr and xarray
    (``engine="kerchunk"``). Checksums are lost.

    Args:
        session: Any session; uncommitted changes are included.
        path: The group, with everything below it, or one array.
        file: The JSON file, which is replaced, or the parquet directory, which must not exist.
        format: ``json``, or ``parquet`` for millions of references.
        record_size: References in a parquet file.
        inline_native: Maximum bytes per array of repository chunks to embed.

    Raises:
        NodeNotFoundError: There is no such node.
        UnsupportedError: An array has more bytes in the repository, or it or its name cannot
            be expressed in zarr v2 or on the file system.
        AlreadyExistsError: The directory exists.
        InvalidInputError: The format is unknown.
    """
    if format not in _FORMATS or record_size < 1:
        raise InvalidInputError(
            "unknown format of references",
            do=f"Pass one of {_FORMATS}, and a record_size of at least 1.",
            format=format,
            record_size=record_size,
        )
    metadata: dict[str, dict[str, Any]] = {}
    arrays: dict[str, ExportedReferences] = {}
    nodes = nodes_below(session, path)
    if isinstance(nodes[0][1], ArrayNode):  # references begin with a group
        nodes.insert(0, ("/", session.node("/")))
    for inside, node in nodes:
        name = inside.strip("/")
        _check_name(name)
        documents = group_documents(node)
        if isinstance(node, ArrayNode):
            arrays[name] = outgoing(session, node, inline_native)
            documents = array_documents(node, complete=arrays[name].complete)
        metadata |= {f"{name}/{key}".lstrip("/"): held for key, held in documents.items()}
    write = _write_json if format == "json" else _write_parquet
    write(Path(as_local_path(file)), metadata, arrays, record_size)


def _check_name(path: str) -> None:
    """Refuse a name that Zarr v2 reads as a path or keeps for its metadata."""
    for name in path.split("/") if path else ():
        if (why := problem(name)) or name in _RESERVED:
            raise UnsupportedError(
                "kerchunk references cannot hold a node of this name:"
                f" {why or 'Zarr v2 reserves it'}",
                do="Rename the node with `repo.rearrange_session`, or export other nodes.",
                path=path,
                name=name,
            )


def _target(url: str) -> str:
    """Return a URL as fsspec takes it, which decodes nothing in the path of a local file."""
    return f"file://{local_path(url)}" if url.startswith("file://") else url


# -- JSON ------------------------------------------------------------------------------------------


def _write_json(
    file: Path, metadata: dict[str, dict[str, Any]], arrays: dict[str, ExportedReferences], _: int
) -> None:
    refs: dict[str, Any] = {
        key: json.dumps(document, ensure_ascii=False)  # zarr v2 has bare NaN in attributes
        for key, document in metadata.items()
    }
    for name, found in arrays.items():
        refs.update(_json_rows(name, found))
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps({"version": 1, "refs": refs}, allow_nan=False))
    draft.replace(file)


def _json_rows(name: str, found: ExportedReferences) -> Iterator[tuple[str, Any]]:
    urls = [_target(url) for url in found.urls]
    columns = (found.index, found.url, found.offset, found.length)
    for index, url, offset, length in zip(*(each.tolist() for each in columns), strict=True):
        yield _key(name, index), [urls[url], offset, length]
    for body_index, body in found.bodies.items():
        yield _key(name, body_index), "base64:" + base64.b64encode(body).decode()


def _key(name: str, index: Any) -> str:
    return f"{name}/{'.'.join(map(str, index)) or '0'}"


# -- parquet ---------------------------------------------------------------------------------------


def _write_parquet(
    folder: Path,
    metadata: dict[str, dict[str, Any]],
    arrays: dict[str, ExportedReferences],
    record_size: int,
) -> None:
    if find_spec("pyarrow") is None:
        raise InvalidInputError("pyarrow is not installed", do="Run `pip install pyarrow`.")
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise AlreadyExistsError(
            "the output path already exists", do="Name another path.", path=str(folder)
        ) from error
    for name, found in arrays.items():
        below = folder / name
        try:
            below.mkdir(parents=True, exist_ok=not name)
        except OSError as error:  # too long, or the name of another array where case is folded
            raise UnsupportedError(
                "the file system cannot make a directory for this array",
                do="Write JSON, or rename the array.",
                path=name,
                cause=str(error),
            ) from error
        _write_records(below, found, record_size)
    # last, because it makes the directory one of references
    held = {"metadata": metadata, "record_size": record_size}
    (folder / ".zmetadata").write_text(json.dumps(held))


def _write_records(folder: Path, found: ExportedReferences, size: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = _rows(found.index, found.grid)
    bodies = list(found.bodies.values())
    shape = (len(bodies), len(found.grid))
    inline = _rows(np.array(list(found.bodies), np.int64).reshape(shape), found.grid)
    urls: Any = pa.array([_target(url) for url in found.urls], pa.string())
    total = int(np.prod(found.grid, dtype=object))
    for number in range(-(-total // size)):
        low, high = np.searchsorted(rows, [number * size, (number + 1) * size]).tolist()
        at = rows[low:high] - number * size
        code, offset = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        length = np.zeros(size, np.int64)
        code[at] = found.url[low:high]
        offset[at], length[at] = found.offset[low:high], found.length[low:high]
        raw: list[bytes | None] = [None] * size
        for row, body in zip(inline.tolist(), bodies, strict=True):
            if number * size <= row < (number + 1) * size:
                raw[row - number * size] = body
        columns = {
            "path": urls.take(pa.array(code, mask=code < 0)),
            "offset": pa.array(offset),
            "size": pa.array(length),
            "raw": pa.array(raw, pa.binary()),
        }
        pq.write_table(pa.table(columns), folder / f"refs.{number}.parq", compression="zstd")


def _rows(index: Any, grid: tuple[int, ...]) -> Any:
    """Number chunks in C order of the grid; a table's order is the same."""
    if not grid or not len(index):
        return np.zeros(len(index), np.int64)
    return np.ravel_multi_index(tuple(index.astype(np.int64).T), grid).astype(np.int64)


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
            do="Export other arrays.",
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
