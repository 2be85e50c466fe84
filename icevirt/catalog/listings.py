"""Keep the list of files that a dataset is made of, beside the dataset.

A list is an immutable object named by a digest of all its files. A list that grew holds its new
files and the name of the list that it continues, until joining the two costs little: so a dataset
that grows by single files writes few bytes, and reading the list takes few objects. A list that
grew without a look at the files before is named by a digest of its own files and of the list that
it continues.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import batched
from operator import eq

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icevirt.archive.catalog import path_of
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.file_hashes import HASHES, hashes_of
from icevirt.catalog.parquet import (
    REQUESTED,
    damage_error,
    files_of,
    open_parquet,
    table_of,
    telling_damage,
)
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.storage.protocol import Storage
from icevirt.threads import Threads

_FOLDER = "listings"
_NAME = re.compile("[0-9a-f]{20}")
_BASE, _BEFORE = b"icevirt_base", b"icevirt_before"
_ROWS = 1 << 16  # that are encoded at a time
_CHAINED = b"icevirt_chained"
_MOST = 1 << 16  # files of pieces that are written once more where the others are not looked at
_WORTH = 2  # a piece that is at most so many times as long as what follows is written once more
_SCHEMA = pa.schema([(name, getattr(pa, kind)()) for name, kind in REQUESTED])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    """The files of a dataset, and the objects that hold them."""

    files: SourceFiles
    pieces: tuple[tuple[str, int], ...]  # name of each, and the row that it begins with
    whole: tuple[str, int] = ("", 0)  # the last one named by all files, and how many these are


def write_listing(
    storage: Storage, name: str, files: Sequence[SourceFile], *, grown: FileListing | None = None
) -> tuple[tuple[str, int], ...]:
    """Write the list of a dataset's files, unless it is there, and return its pieces.

    Lists of the same files may be cut otherwise. One that is there stays as it is: others count on
    what its pieces hold.

    Args:
        storage: The folder of icevirt in a repository.
        name: A digest of the files.
        files: All of them, in their order.
        grown: The list that these files begin with.
    """
    with suppress(ObjectNotFoundError, FormatError):  # what is damaged is written again
        there = read_listing(storage, name)
        if len(there.files) == len(files) and all(map(eq, there.files, files)):
            return there.pieces
    pieces = [] if grown is None else [*grown.pieces]
    begin = 0 if grown is None else len(grown.files)
    while pieces and begin - pieces[-1][1] <= _WORTH * (len(files) - begin):
        begin = pieces.pop()[1]
    base = pieces[-1][0] if pieces else ""
    objects = _objects(name, files[begin:] if begin else files, base, begin)
    for path, raw in objects.items():
        storage.put(path, raw)
    return (*pieces, (name, begin))


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownListing:
    """A list that continues another one, to be written."""

    pieces: tuple[tuple[str, int], ...]  # name of each, and the row that it begins with
    objects: Mapping[str, bytes]  # by path, in the order in which they are written


def grow_listing(
    storage: Storage, pieces: Sequence[tuple[str, int]], count: int, new: Sequence[SourceFile]
) -> GrownListing:
    """Return the list of a dataset's files that continues another one.

    Small pieces at the end will be written once more; large ones are never read.

    Args:
        storage: The folder of icevirt in a repository.
        pieces: Of the list that these files follow.
        count: How many files that has.
        new: The files that follow.

    Raises:
        FormatError: A piece is damaged.
    """
    left, begin, end = [*pieces], count, count + len(new)
    runs: list[Sequence[SourceFile]] = [new]
    while left and begin - left[-1][1] <= min(_MOST, _WORTH * (end - begin)):
        name, at = left[-1]
        table, held = _piece(storage, name)
        if _CHAINED not in held:
            break  # its name covers files that are not read here
        run = [*files_of(table)]
        with telling_damage(path_of(_FOLDER, name)):
            base = held[_BASE].decode()
        if at + len(run) != begin or _chain(base, at, run) != name:
            raise damage_error(path_of(_FOLDER, name), "its files do not agree with its name")
        runs.insert(0, run)
        left.pop()
        begin = at
    files = [file for run in runs for file in run]
    base = left[-1][0] if left else ""
    name = _chain(base, begin, files)
    objects = _objects(name, files, base, begin, chained=True)
    return GrownListing(pieces=(*left, (name, begin)), objects=objects)


def _chain(base: str, begin: int, files: Iterable[SourceFile]) -> str:
    """Return the name of a list that continues another one, by what it adds."""
    rows = [[file.url, file.size, file.etag, file.last_modified] for file in files]
    text = json.dumps([base, begin, rows], allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _objects(
    name: str,
    files: Sequence[SourceFile],
    base: str,
    begin: int,
    *,
    chained: bool = False,
) -> dict[str, bytes]:
    """Return a list and its index; the index is written first, as each list has one."""
    said = {_BASE: base.encode(), _BEFORE: str(begin).encode()} | (
        {_CHAINED: b"1"} if chained else {}
    )
    schema = _SCHEMA.with_metadata(said)
    sink = io.BytesIO()
    columns = [column for column, _ in REQUESTED]
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for some in batched(files, _ROWS):
            held = {column: [getattr(file, column) for file in some] for column in columns}
            writer.write_table(table_of(held, schema))
    return {index_path(name): index_of(files), path_of(_FOLDER, name): sink.getvalue()}


def read_listing(storage: Storage, name: str) -> FileListing:
    """Read the list of a dataset's files.

    The caller compares its digest with the name: anybody may have written it.

    Raises:
        FormatError: It is damaged.
        ObjectNotFoundError: It is not there.
    """
    tables: list[pa.Table] = []
    pieces: list[tuple[str, int]] = []
    whole, before = ("", 0), None
    while name:
        path = path_of(_FOLDER, name)
        table, held = _piece(storage, name)
        with telling_damage(path):
            base, begin = held[_BASE].decode(), int(held[_BEFORE])
        is_sound = begin == 0 if not base else begin > 0 and _NAME.fullmatch(base) is not None
        end = begin + table.num_rows
        is_sound &= not base or table.num_rows > 0  # else a list might continue itself
        if not is_sound or before not in (None, end):
            raise damage_error(path, "it does not fit the list that continues it")
        if _CHAINED not in held:
            whole = whole if whole[0] else (name, end)
        elif _chain(base, begin, files_of(table)) != name:
            raise damage_error(path, "its files do not agree with its name")
        tables.append(table)
        pieces.append((name, begin))
        name, before = base, begin
    files = SourceFiles(file for table in tables[::-1] for file in files_of(table))
    return FileListing(files=files, pieces=tuple(pieces[::-1]), whole=whole)


def _piece(storage: Storage, name: str) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Read one piece; return its files, and what it says of the list before."""
    path = path_of(_FOLDER, name)
    with telling_damage(path):
        file = open_parquet(storage.get(path))
        held = file.schema_arrow.metadata or {}
        table = file.read(columns=[column for column, _ in REQUESTED])
        is_whole = table.schema.equals(_SCHEMA) and not any(
            column.null_count for column in table.columns
        )
    if not is_whole:
        raise damage_error(path, "it is no list of files")
    return table, held


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPiece:
    """An object of a list: the files that it adds, and the list that it continues."""

    files: SourceFiles
    base: str  # "" where it begins the list


def pieces_of(storage: Storage, names: Iterable[str]) -> dict[str, ListPiece]:
    """Return each object that these lists need, by its name; each is read once.

    Lists that are not there are left out.

    Raises:
        FormatError: One is damaged.
    """
    found: dict[str, ListPiece] = {}
    left = [name for name in names if _NAME.fullmatch(name)]
    while left:
        if (name := left.pop()) in found:
            continue
        try:
            table, held = _piece(storage, name)
        except ObjectNotFoundError:
            continue
        with telling_damage(path_of(_FOLDER, name)):
            base = held[_BASE].decode()
        found[name] = ListPiece(files=SourceFiles(files_of(table)), base=base)
        left += [base] if _NAME.fullmatch(base) else []
    return found


_KNOWN = "known"
_WHOLE = 1 << 14  # entries that are read at once
_SPREAD = 8  # standard deviations that a hash lies from its place at most
_AT_ONCE = 16  # requests


class Known(Enum):
    """What an index says of a file."""

    no = "no"
    yes = "yes"
    perhaps_changed = "perhaps changed"


def index_path(piece: str) -> str:
    """Return where the index of a piece lies."""
    return f"{_KNOWN}/{piece}"


def index_of(files: Iterable[SourceFile]) -> bytes:
    """Return the index of a piece of the list."""
    raw: bytes = np.sort(hashes_of(SourceFiles(files)), order="url").tobytes()
    return raw


def look_up(
    storage: Storage, pieces: Sequence[tuple[str, int]], files: Sequence[SourceFile]
) -> list[Known]:
    """Say which files are in the list.

    Args:
        storage: The folder of icevirt in a repository.
        pieces: Of the list: the name of each, and how many files it holds.
        files: Those that are looked for.

    Raises:
        ObjectNotFoundError: A piece has no index.
        FormatError: An index is damaged.
    """
    wanted = hashes_of(SourceFiles(files))
    listed, same = np.zeros(len(files), np.bool_), np.zeros(len(files), np.bool_)
    ranges = [
        (piece, count, low, high)
        for piece, count in pieces
        for low, high in _ranges(count, wanted["url"])
    ]
    with Threads(_AT_ONCE, "icevirt-known") as pool:
        read = pool.map(lambda each: _read_entries(storage, *each), ranges)
        for held in read:
            first = np.searchsorted(held["url"], wanted["url"], side="left")
            last = np.searchsorted(held["url"], wanted["url"], side="right")
            listed |= last > first
            same |= (last > first) & np.isin(wanted["state"], held["state"])
    return [
        Known.no if not there else Known.yes if alike else Known.perhaps_changed
        for there, alike in zip(listed.tolist(), same.tolist(), strict=True)
    ]


def _ranges(count: int, urls: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return which entries of an index hold some URLs if any do: few ranges, or all of it."""
    around = _SPREAD * math.isqrt(count) + _SPREAD
    if count <= _WHOLE or len(urls) * 2 * around >= count:
        return [(0, count)]
    places = sorted(int(url) * count >> 64 for url in urls.tolist())
    found: list[tuple[int, int]] = []
    for place in places:
        low, high = max(0, place - around), min(count, place + around)
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def _read_entries(
    storage: Storage, piece: str, count: int, low: int, high: int
) -> NDArray[np.void]:
    size = HASHES.itemsize
    raw = storage.get_range(index_path(piece), offset=low * size, length=(high - low) * size)
    held = np.frombuffer(raw, HASHES)
    if (held["url"][1:] < held["url"][:-1]).any():
        raise FormatError(
            "the index of a list of files is damaged",
            do=f"Delete {index_path(piece)}; files are then looked up in the list itself.",
            path=index_path(piece),
            files=count,
        )
    return held
