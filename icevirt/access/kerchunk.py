"""Write a session's references as kerchunk files: JSON, or a Parquet directory.

The references name source files by URL, offset and length. The checksums of the session are lost,
so readers of the files do not notice that a source file changed. One array's references are in
memory at a time.
"""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any, Literal, Self
from urllib.parse import unquote

import numpy as np

from icevirt.access.references import INLINE_NATIVE, ExportedReferences, nodes_below, outgoing
from icevirt.access.xarray.datastore import file_attributes
from icevirt.archive.reports.relocation import ExportReport
from icevirt.connect.urls import PROVIDERS, as_local_path, local_path
from icevirt.errors import AlreadyExistsError, InvalidInputError, StorageError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import FILL
from icevirt.model.json import JSON
from icevirt.model.snapshot import ArrayNode, Node, document_of
from icevirt.model.zarr_v2 import NoEquivalentError, decoding_of, document_v2
from icevirt.planning.combine.hints import is_named
from icevirt.remedy_notation import write_code, write_remedy
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
            do=write_remedy(
                f"Pass one of {_FORMATS}, ",
                write_code("zarr_format=2 or 3", "--zarr-format 2 or 3"),
                ", and a record_size of at least 1.",
            ),
            format=format,
            zarr_format=zarr_format,
            record_size=record_size,
        )
    if format == "parquet" and zarr_format != 2:
        raise InvalidInputError(
            "kerchunk's parquet directories hold metadata of zarr v2 only",
            do=write_remedy(
                "Write ",
                write_code("JSON", "JSON (--format json)"),
                ", or leave out zarr_format.",
            ),
        )
    nodes = _select(session, path, tuple(variables), tuple(drop_variables))
    out = Path(as_local_path(file))
    for inside, _ in nodes:
        _check_name(inside, _RESERVED[zarr_format])
    writer = JsonWriter(out, zarr_format) if format == "json" else ParquetWriter(out, record_size)
    exported, urls = [], set[str]()
    with writer:
        for inside, node in nodes:
            found = outgoing(session, node, inline_native) if isinstance(node, ArrayNode) else None
            writer.add(inside, _documents(node, found, zarr_format), found)
            if found is not None:
                sizes = [len(body) for body in found.bodies.values()]
                exported.append((len(found.index), len(sizes), sum(sizes)))
                urls.update(found.urls)
    references, chunks, nbytes = (sum(column) for column in zip((0, 0, 0), *exported, strict=True))
    return ExportReport(
        path=str(out),
        format=format,
        zarr_format=zarr_format,
        snapshot_id=None if session.has_uncommitted_changes else session.snapshot_id,
        group=paths.canonical(path),
        arrays=len(exported),
        references=references,
        files=len(urls),
        chunks_embedded=chunks,
        bytes_embedded=nbytes,
    )


def _select(
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
        return _array_documents(node, complete=found.complete)
    attributes = {
        name: _jsonable(value) for name, value in file_attributes(document_of(node)).items()
    }
    return {".zgroup": {"zarr_format": 2}, ".zattrs": attributes}


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


def _array_documents(node: ArrayNode, *, complete: bool) -> dict[str, dict[str, Any]]:
    """Return ``.zarray`` and ``.zattrs`` of an array; ``complete`` if all its chunks are there.

    Readers of v2 take the fill value of an array for its missing value, so it is ``_FillValue``
    where there is one, and left open where there is none.

    Raises:
        UnsupportedError: v2 cannot say it.
    """
    document = document_of(node)
    try:
        plain = document_v2(document, None)
        dtype = decoding_of(plain).dtype
        attributes = file_attributes(document, dtype)
        zarray = {**plain, "fill_value": _fill(document, attributes, dtype, complete=complete)}
    except NoEquivalentError as error:
        raise UnsupportedError(
            f"kerchunk's references use zarr v2, which cannot express this array: {error}",
            do=write_remedy(
                "Leave the array out (drop_variables, --drop-variable), or write JSON with ",
                write_code("zarr_format=3", "--zarr-format 3"),
                ".",
            ),
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
        missing = _spell(dtype.type(attributes.pop(FILL)))
        if not complete and missing != own:
            raise NoEquivalentError("missing chunks that are not read as _FillValue")
        return missing
    is_zero = own in _NOTHING or (isinstance(own, str) and not own.strip("A="))  # base64 of zeros
    if not complete and not is_zero:
        raise NoEquivalentError("missing chunks of other values than 0, without a _FillValue")
    return None


def _spell(value: Any) -> JSON:
    number = value.item()
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return number  # type: ignore[no-any-return]


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_AT_ONCE = 1 << 14  # rows of a table that are Python objects


class JsonWriter:
    """Writes one JSON file, replacing another, reference by reference.

    Leaving its context without an error makes it appear.
    """

    def __init__(self, file: Path, zarr_format: int) -> None:
        self._file, self._is_v3 = file, zarr_format == 3
        self._draft = _beside(file)

    def __enter__(self) -> Self:
        with _writing(self._file):
            self._out = self._draft.open("w")
        self._out.write('{"version": 1, "refs": {')
        self._separator = ""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._out:
            if kind is None:
                self._out.write("}}")
        if kind is None:
            self._draft.replace(self._file)
        else:
            self._draft.unlink()

    def add(
        self, name: str, documents: dict[str, dict[str, Any]], found: ExportedReferences | None
    ) -> None:
        """Write a node."""
        for key, document in documents.items():
            # zarr v2 has bare NaN in attributes
            self._put(_join(name, key), json.dumps(json.dumps(document, ensure_ascii=False)))
        for index, value in () if found is None else _rows_as_json(found):
            plain = ".".join(map(str, index)) or "0"
            at = "/".join(("c", *map(str, index))) if self._is_v3 else plain
            self._put(_join(name, at), value)

    def _put(self, key: str, value: str) -> None:
        self._out.write(f"{self._separator}\n{json.dumps(key)}: {value}")
        self._separator = ","


def _rows_as_json(found: ExportedReferences) -> Iterator[tuple[Any, str]]:
    urls = [json.dumps(target(url)) for url in found.urls]
    columns = (found.index, found.url, found.offset, found.length)
    for begin in range(0, len(found.index), _AT_ONCE):
        part = (each[begin : begin + _AT_ONCE].tolist() for each in columns)
        for index, url, offset, length in zip(*part, strict=True):
            yield index, f"[{urls[url]}, {offset}, {length}]"
    for body_index, body in found.bodies.items():
        yield body_index, f'"base64:{base64.b64encode(body).decode()}"'


class ParquetWriter:
    """Writes a directory of Parquet files, which must not exist, of so many references each.

    Raises:
        AlreadyExistsError: The directory exists.
        InvalidInputError: pyarrow is not installed.
    """

    def __init__(self, folder: Path, record_size: int) -> None:
        if find_spec("pyarrow") is None:
            raise InvalidInputError("pyarrow is not installed", do="Run `pip install pyarrow`.")
        self._folder, self._size = folder, record_size
        self._metadata: dict[str, Any] = {}
        self._draft = _beside(folder)

    def __enter__(self) -> Self:
        self._refuse_existing()
        with _writing(self._folder):
            self._draft.mkdir(parents=True)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                held = {"metadata": self._metadata, "record_size": self._size}
                (self._draft / ".zmetadata").write_text(json.dumps(held))
                self._refuse_existing()
                self._draft.rename(self._folder)
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)

    def add(
        self, name: str, documents: dict[str, dict[str, Any]], found: ExportedReferences | None
    ) -> None:
        """Write a node. Raises `UnsupportedError` where the disk cannot hold its name."""
        self._metadata |= {_join(name, key): held for key, held in documents.items()}
        if found is None:
            return
        below = self._draft / name
        try:
            below.mkdir(parents=True, exist_ok=not name)
        except OSError as error:  # too long, or the name of another array where case is folded
            raise UnsupportedError(
                "the file system cannot make a directory for this array",
                do="Write JSON, or rename the array.",
                path=name,
                cause=str(error),
            ) from error
        _write_records(below, found, self._size)

    def _refuse_existing(self) -> None:
        if os.path.lexists(self._folder):
            raise AlreadyExistsError(
                "the output path already exists", do="Name another path.", path=str(self._folder)
            )


def _write_records(folder: Path, found: ExportedReferences, size: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = _rows(found.index, found.grid)
    bodies: Any = pa.array(list(found.bodies.values()), pa.binary())
    shape = (len(bodies), len(found.grid))
    inline = _rows(np.array(list(found.bodies), np.int64).reshape(shape), found.grid)
    order = np.argsort(inline, kind="stable")
    inline = inline[order]
    urls: Any = pa.array([target(url) for url in found.urls], pa.string())
    total = int(np.prod(found.grid, dtype=object))
    for number in range(-(-total // size)):
        ends = [number * size, (number + 1) * size]
        low, high = np.searchsorted(rows, ends).tolist()
        at = rows[low:high] - number * size
        code, body = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
        offset, length = np.zeros(size, np.int64), np.zeros(size, np.int64)
        code[at] = found.url[low:high]
        offset[at], length[at] = found.offset[low:high], found.length[low:high]
        first, last = np.searchsorted(inline, ends).tolist()
        body[inline[first:last] - number * size] = order[first:last]
        columns = {
            "path": urls.take(pa.array(code, mask=code < 0)),
            "offset": pa.array(offset),
            "size": pa.array(length),
            "raw": bodies.take(pa.array(body, mask=body < 0)),
        }
        pq.write_table(pa.table(columns), folder / f"refs.{number}.parq", compression="zstd")


def _rows(index: Any, grid: tuple[int, ...]) -> Any:
    """Number chunks in C order of the grid; a table's order is the same."""
    if not grid or not len(index):
        return np.zeros(len(index), np.int64)
    return np.ravel_multi_index(tuple(index.astype(np.int64).T), grid).astype(np.int64)


def target(url: str) -> str:
    """Return a URL as fsspec takes it, which decodes nothing in paths and keys."""
    if url.startswith("file://"):
        return f"file://{local_path(url)}"
    scheme, _, rest = url.partition("://")
    return url if PROVIDERS.get(scheme, "http") == "http" else f"{scheme}://{unquote(rest)}"


def _join(name: str, key: str) -> str:
    return f"{name}/{key}".lstrip("/")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say what keeps references from being written at a path."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            "the references cannot be written here",
            do=f"Make the folder with mkdir -p {quote(str(path.parent))}, or name another place.",
            path=str(path),
            reason=error.strerror,
        ) from error


def _beside(path: Path) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink() if draft.is_file() else shutil.rmtree(draft)
    return draft
