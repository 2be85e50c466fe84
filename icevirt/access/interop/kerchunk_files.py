"""Write kerchunk's two forms of references, array by array: a JSON file, or a Parquet directory.

What is written appears when all of it is there: beside it first, under a hidden name.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any, Protocol, Self
from urllib.parse import unquote

import numpy as np

from icevirt.access.interop.export import ExportedReferences
from icevirt.connect.urls import PROVIDERS, local_path
from icevirt.errors import AlreadyExistsError, InvalidInputError, StorageError, UnsupportedError

_AT_ONCE = 1 << 14  # rows of a table that are Python objects


class ReferenceWriter(Protocol):
    """A context that writes references; leaving it without an error makes them appear."""

    def __enter__(self) -> Self:
        """Begin beside the output path."""

    def __exit__(self, kind: object, *_: object) -> None:
        """End: show what was written, or remove it after an error."""

    def add(
        self, name: str, documents: dict[str, dict[str, Any]], found: ExportedReferences | None
    ) -> None:
        """Write a node: its documents by key, and the references of an array."""


class JsonWriter:
    """Writes one JSON file, replacing another, reference by reference.

    Args:
        file: The file.
        zarr_format: 2 or 3, which decides the keys of chunks.
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
            self._put(_joined(name, key), json.dumps(json.dumps(document, ensure_ascii=False)))
        if found is not None:
            for index, value in _rows_as_json(found):
                self._put(_joined(name, self._key(index)), value)

    def _put(self, key: str, value: str) -> None:
        self._out.write(f"{self._separator}\n{json.dumps(key)}: {value}")
        self._separator = ","

    def _key(self, index: Any) -> str:
        if self._is_v3:
            return "/".join(("c", *map(str, index)))
        return ".".join(map(str, index)) or "0"


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
    """Writes a directory of Parquet files, which must not exist.

    Args:
        folder: The directory.
        record_size: References in a file.

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
        self._metadata |= {_joined(name, key): held for key, held in documents.items()}
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


def _joined(name: str, key: str) -> str:
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
