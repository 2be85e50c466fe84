"""Hold the chunk references of one kerchunk array as columns, and as a chunk table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable
from icevirt.scan.elsewhere import Targets
from icevirt_scanners.kerchunk.document import damaged, inline_bytes
from icevirt_scanners.sizes import wrong_size

WHOLE = -1  # as a length: all of the file
_LAST_CHUNK = 2**32 - 1
_INDEX = re.compile(r"[0-9]+(?:[./][0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceColumns:
    """References of one array in any order: those into files, and those that are bytes."""

    index: NDArray[np.int64]  # (n, ndim) of references into files
    name: NDArray[np.int64]  # (n,) row in ``names``
    names: tuple[str, ...]  # of files, as written
    offset: NDArray[np.int64]  # (n,)
    length: NDArray[np.int64]  # (n,) or WHOLE
    inline_index: NDArray[np.int64]  # (m, ndim)
    inline: tuple[bytes, ...]  # (m,)


def of_json(chunks: Mapping[str, Any], ndim: int, url: str, path: str) -> ReferenceColumns:
    """Sort out the references of an array by their chunk keys, like ``0.3``, ``0/3`` or ``c/0/3``.

    Raises:
        ScanError: A key is no chunk's, or a reference has not the form of one.
    """
    keys: list[str] = []
    rows: list[tuple[str, int, int]] = []
    inline_keys: list[str] = []
    inline: list[bytes] = []
    for key, value in chunks.items():
        match value:
            case str():
                inline_keys.append(key)
                inline.append(inline_bytes(value, url, key))
            case [str(name)]:
                keys.append(key)
                rows.append((name, 0, WHOLE))
            case [str(name), int(offset), int(length)] if offset >= 0 and length >= 0:
                keys.append(key)
                rows.append((name, offset, length))
            case _:
                raise damaged(url, variable=path, key=key, cause="no reference")
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(name, len(numbers)) for name, _, _ in rows]
    return ReferenceColumns(
        index=_indices(keys, ndim, url, path),
        name=np.array(codes, np.int64),
        names=tuple(numbers),
        offset=_integers([row[1] for row in rows], url, path),
        length=_integers([row[2] for row in rows], url, path),
        inline_index=_indices(inline_keys, ndim, url, path),
        inline=tuple(inline),
    )


def _integers(values: Sequence[int], url: str, path: str) -> NDArray[np.int64]:
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise damaged(url, variable=path, cause=str(error)) from error


def _indices(keys: Sequence[str], ndim: int, url: str, path: str) -> NDArray[np.int64]:
    if ndim == 0:
        if any(key not in {"0", "c"} for key in keys):
            raise damaged(url, variable=path, cause="a chunk key of another rank", keys=keys[:3])
        return np.zeros((len(keys), 0), np.int64)
    numbers: list[str] = []
    for key in keys:
        parts = key.removeprefix("c/").replace("/", ".").split(".")
        if len(parts) != ndim or not _INDEX.fullmatch(key.removeprefix("c/")):
            raise damaged(url, variable=path, key=key, cause="not a chunk key")
        numbers += parts
    if any(len(number) > 10 for number in numbers):
        raise damaged(url, variable=path, cause="a chunk key of too many digits")
    return np.array(numbers, np.int64).reshape(len(keys), ndim)


def table_of(
    columns: ReferenceColumns,
    grid: Sequence[int],
    find: Callable[[Sequence[str]], Targets],
    url: str,
    path: str,
    *,
    nbytes: int | None = None,
) -> tuple[ChunkTable, Targets]:
    """Make the chunk table, with the files found and all references checked.

    Args:
        columns: Of the array.
        grid: How many chunks it has along each axis.
        find: Returns the files of names.
        url: Of the file that holds the references.
        path: Path of the array.
        nbytes: How many bytes each chunk must have, where that is known.

    Raises:
        ScanError: A reference leaves its file, a chunk is outside the array or there twice, or it
            has other bytes than its array needs.
        UnsupportedError: A file may not be referred to.
    """
    targets = find(columns.names)
    size = targets.size[columns.name] if len(columns.name) else np.zeros(0, np.int64)
    whole = columns.length == WHOLE
    if bool((whole & (size < 0)).any()):
        raise damaged(url, variable=path, cause="a whole remote file of unknown length")
    length = np.where(whole, size, columns.length)
    outside = (size >= 0) & (columns.offset + length > size)
    if outside.any():
        row = int(np.argmax(outside))
        raise damaged(
            url,
            variable=path,
            cause="a chunk lies outside its file",
            target=columns.names[int(columns.name[row])],
            offset=int(columns.offset[row]),
            length=int(length[row]),
            size=int(size[row]),
        )
    for index in (columns.index, columns.inline_index):
        beyond = np.any(index >= np.array(grid, np.int64), axis=1) if len(index) else np.zeros(0)
        if len(index) and int(index.max(initial=0)) > _LAST_CHUNK:
            raise damaged(url, variable=path, cause="more chunks than Icechunk can number")
        if beyond.any():
            chunk = index[int(np.argmax(beyond))].tolist()
            raise damaged(url, variable=path, cause="a chunk outside the array", chunk=chunk)
    for held in (length, [len(body) for body in columns.inline]):
        wrong = wrong_size(held, nbytes)
        if wrong is not None:
            cause = "a chunk of another length than its array has"
            raise damaged(url, variable=path, cause=cause, length=wrong, expected=nbytes)
    try:
        table = ChunkTable.concatenate(
            [
                ChunkTable.virtual(
                    index=columns.index,
                    offset=columns.offset,
                    length=length,
                    locations=targets.locations,
                    source=columns.name,
                ),
                ChunkTable.inlined(index=columns.inline_index, chunks=columns.inline),
            ]
        )
    except ValueError as error:  # a chunk that is there twice
        raise damaged(url, variable=path, cause=str(error)) from error
    return table, targets
