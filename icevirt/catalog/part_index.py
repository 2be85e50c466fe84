"""Index the files of a catalog's parts by hashes, so that a few are found without reading tables.

An index covers many parts of one scan and is one object: a head, and an entry for each file, sorted
by the hash of its URL. The head says which tables are covered, and where each block of entries
begins with which hash, so that files are looked up in a few blocks. Nothing depends on an index:
parts that none covers are looked up in their tables, and a table that was replaced since is
covered no more. A scan that finds many parts uncovered writes an index of them. Small indexes are
merged into it and deleted; a reader that misses one reads tables.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.catalog.file_hashes import WantedFiles
from icevirt.catalog.parquet import damage_error
from icevirt.errors import ObjectNotFoundError
from icevirt.storage.protocol import ObjectInfo, Storage
from icevirt.threads import Threads

FOLDER = "known"
FEWEST = 64
"""Parts without an index that are worth one; reading fewer tables takes no longer."""

_VERSION = 1
_MAGIC = b"ICVINDEX"
_HEAD = struct.Struct("<8sIIQQ")  # magic, version, entries of a block, entries, parts
_PART = np.dtype([("table", "V16"), ("may_stop", "u1")])
_BLOCK = np.dtype([("first", "<u8"), ("digest", "V8")])
_ENTRY = np.dtype([*((name, "<u8") for name in ("url", "state")), ("part", "<u4"), ("row", "<u4")])
_ROWS = 512  # entries of a block
_MOST = 1 << 20  # entries of an index that is made of others
_NEAR = 8  # blocks that are read rather than requested apart from others
_RUN = 256  # blocks of a request at most
_AT_ONCE = 16  # requests
_NAME = re.compile(rf"{FOLDER}/(.+)-([0-9a-f]{{32}})-([0-9]{{1,9}})")


def table_of(info: ObjectInfo) -> bytes:
    """Return what identifies a stored table of files: another one of its name has another."""
    text = f"{info.path} {info.size} {info.last_modified}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartIndex:
    """One index, of which the head was read."""

    storage: Storage
    path: str
    scan: str  # identity
    begin: int  # of the entries, in bytes
    count: int  # of entries
    tables: tuple[bytes, ...]  # that it covers, as `table_of` identifies them
    may_stop: NDArray[np.bool_]  # (tables,) has files that limits stopped: more depends on these
    first: NDArray[np.uint64]  # (blocks,) the first hash of each block
    digests: tuple[bytes, ...]  # of each block

    def find(
        self, wanted: WantedFiles
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.uint32]]]:
        """Yield files that are here, the tables that describe them, and their rows in these.

        Raises:
            ObjectNotFoundError: The index was deleted meanwhile.
            FormatError: It is damaged.
        """
        with Threads(_AT_ONCE, "icevirt-known") as pool:
            for entries in pool.map(self._read, self._runs(wanted)):
                at, row = wanted.among(entries)
                yield at, entries["part"][row], entries["row"][row]

    def entries(self) -> NDArray[np.void]:
        """Return all entries; raises as `found` does."""
        return self._read((0, len(self.first))) if self.count else np.zeros(0, _ENTRY)

    def _runs(self, wanted: WantedFiles) -> list[tuple[int, int]]:
        """Return which blocks hold files if any do, as few ranges of them."""
        urls = wanted.urls
        begin = np.searchsorted(urls, self.first, side="left")
        end = np.append(np.searchsorted(urls, self.first[1:], side="right"), len(urls))
        runs: list[tuple[int, int]] = []
        for block in np.flatnonzero(end > begin).tolist():
            low, high = runs[-1] if runs else (0, -_NEAR - 1)
            if block - high <= _NEAR and block - low < _RUN:
                runs[-1] = (low, block + 1)
            else:
                runs.append((block, block + 1))
        return runs

    def _read(self, run: tuple[int, int]) -> NDArray[np.void]:
        low, high = run
        begin, end = low * _ROWS, min(high * _ROWS, self.count)
        size = _ENTRY.itemsize
        raw = self.storage.get_range(
            self.path, offset=self.begin + begin * size, length=(end - begin) * size
        )
        found = np.frombuffer(raw, _ENTRY)
        digests = _digests(found)
        if digests != self.digests[low:high] or found["part"].max(initial=0) >= len(self.tables):
            raise damage_error(self.path, "a block has another checksum")
        return found


def read_indexes(storage: Storage, scans: Collection[str] | None = None) -> list[PartIndex]:
    """Return the indexes of a catalog, the largest first.

    Those of later versions are left out, and those that vanish meanwhile.

    Args:
        storage: The catalog.
        scans: Identities of scans; None: all.

    Raises:
        FormatError: One is damaged.
    """
    there = []
    for info in storage.list(FOLDER):
        name = _NAME.fullmatch(info.path)
        if name is not None and (scans is None or name[1] in scans):
            there.append((info, name[1], name[2], int(name[3])))
    if not there:
        return []
    with Threads(_AT_ONCE, "icevirt-known") as pool:
        found = [*filter(None, pool.map(lambda each: _open(storage, *each), there))]
    return sorted(found, key=lambda index: (-index.count, index.path))


def _open(
    storage: Storage, info: ObjectInfo, scan: str, digest: str, length: int
) -> PartIndex | None:
    if length > info.size:
        raise damage_error(info.path, "it is cut short")
    try:
        head = storage.get_range(info.path, offset=0, length=length)
    except ObjectNotFoundError:
        return None
    if hashlib.blake2b(head, digest_size=16).hexdigest() != digest:
        raise damage_error(info.path, "its head has another checksum")
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise damage_error(info.path, "it is no index")
    _, version, rows, count, parts = _HEAD.unpack_from(head)
    if version != _VERSION:
        return None
    sizes = parts * _PART.itemsize, -(-count // _ROWS) * _BLOCK.itemsize
    is_whole = length == _HEAD.size + sum(sizes)
    if rows != _ROWS or not is_whole or info.size != length + count * _ENTRY.itemsize:
        raise damage_error(info.path, "its sizes do not agree")
    tables = np.frombuffer(head[_HEAD.size :][: sizes[0]], _PART)
    held = np.frombuffer(head[_HEAD.size + sizes[0] :], _BLOCK)
    return PartIndex(
        storage=storage,
        path=info.path,
        scan=scan,
        begin=len(head),
        count=count,
        tables=tuple(each.tobytes() for each in tables["table"]),
        may_stop=tables["may_stop"] > 0,
        first=held["first"].copy(),
        digests=tuple(each.tobytes() for each in held["digest"]),
    )


@dataclass(slots=True)
class _Gathered:
    """What an index will hold."""

    tables: list[bytes]
    may_stop: list[bool]
    entries: list[NDArray[np.void]]
    count: int = 0

    def add(
        self, tables: Sequence[bytes], may_stop: Sequence[bool], entries: NDArray[np.void]
    ) -> None:
        """Add tables, and entries whose parts are numbered among these."""
        entries["part"] += len(self.tables)
        self.tables += tables
        self.may_stop += may_stop
        self.entries.append(entries)
        self.count += len(entries)


class IndexWriter:
    """Writes indexes of parts whose tables are being read anyway.

    Args:
        storage: The catalog.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held: dict[str, _Gathered] = defaultdict(lambda: _Gathered([], [], []))

    def add(
        self,
        info: ObjectInfo,
        hashes: NDArray[np.void],
        rows: NDArray[np.int32],
        *,
        may_stop: bool,
    ) -> None:
        """Take the files of a part.

        Args:
            info: Of its table of files, as it was listed before it was read.
            hashes: Of its files.
            rows: Of the same files in the part.
            may_stop: Limits stopped some of them.
        """
        entries = np.zeros(len(rows), _ENTRY)
        entries["url"], entries["state"] = hashes["url"], hashes["state"]
        entries["row"] = rows
        scan = catalog.scan_of(info.path.removeprefix("files/"))
        held = self._held[scan]
        held.add([table_of(info)], [may_stop], entries)
        if held.count >= _MOST:
            self._write(scan, self._held.pop(scan))

    def close(self, before: Sequence[PartIndex], there: Collection[bytes]) -> None:
        """Write what was added, with small indexes that were there before.

        Args:
            before: All indexes of these scans.
            there: The tables of the catalog, as `table_of` identifies them.
        """
        for scan, held in self._held.items():
            going: list[PartIndex] = []
            for index in sorted((e for e in before if e.scan == scan), key=lambda e: e.count):
                current = np.array([table in there for table in index.tables], np.bool_)
                is_small = index.count <= 2 * held.count or 2 * current.sum() <= len(current)
                if is_small and held.count + index.count <= _MOST:
                    try:
                        _merge(held, index, current)
                    except ObjectNotFoundError:  # another scan merged it at the same time
                        continue
                    going.append(index)
            self._write(scan, held)
            if going:
                self._storage.delete_many([index.path for index in going])

    def _write(self, scan: str, held: _Gathered) -> None:
        entries = np.concatenate(held.entries)
        entries = entries[np.argsort(entries["url"], kind="stable")]
        tables = np.zeros(len(held.tables), _PART)
        tables["table"] = np.frombuffer(b"".join(held.tables), "V16")
        tables["may_stop"] = held.may_stop
        digests = _digests(entries)
        blocks = np.zeros(len(digests), _BLOCK)
        blocks["first"] = entries["url"][::_ROWS]
        blocks["digest"] = np.frombuffer(b"".join(digests), "V8")
        fixed = _HEAD.pack(_MAGIC, _VERSION, _ROWS, len(entries), len(tables))
        head = fixed + tables.tobytes() + blocks.tobytes()
        name = f"{scan}-{hashlib.blake2b(head, digest_size=16).hexdigest()}-{len(head)}"
        self._storage.put(f"{FOLDER}/{name}", head + entries.tobytes())


def _merge(held: _Gathered, index: PartIndex, current: NDArray[np.bool_]) -> None:
    """Add the entries of an index but for those of tables that are there no more."""
    entries = index.entries()
    entries = entries[current[entries["part"]]]
    number = np.cumsum(current, dtype=np.uint32) - 1
    entries["part"] = number[entries["part"]]
    tables = [index.tables[at] for at in np.flatnonzero(current).tolist()]
    held.add(tables, index.may_stop[current].tolist(), entries)


def _digests(entries: NDArray[np.void]) -> tuple[bytes, ...]:
    """Return the checksums of blocks."""
    return tuple(
        hashlib.blake2b(entries[low : low + _ROWS].tobytes(), digest_size=8).digest()
        for low in range(0, len(entries), _ROWS)
    )
