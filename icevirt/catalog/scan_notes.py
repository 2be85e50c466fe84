"""Keep what scans note in a catalog beside its tables: options, requested files, parts under way.

The rows of a catalog show what was scanned. They do not show what remained when a scan was killed,
or what is to be retried; a build over rows alone would silently omit that. So a scan records its
files, all at once, before it scans the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from icevirt.archive.catalog import CatalogPart, path_of, scan_of
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.parquet import REQUESTED, encode_table, read_table, telling_damage
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Below, Storage

_SCANS, _REQUESTED, _SCANNING = "scans", "asked", "opening"  # folders


def describe_scan(storage: Storage, identity: str, options: Mapping[str, Any]) -> None:
    """Record the options behind an identity in the names of parts."""
    storage.put(f"{_SCANS}/{identity}.json", json.dumps(options, indent=1).encode())


def described_scans(storage: Storage) -> dict[str, Any]:
    """Return the options of the scans of a catalog, by identity."""
    found = {}
    for info in storage.list(_SCANS):
        note = storage.get(info.path)
        with telling_damage(info.path):
            scan = json.loads(note)
            if not all(isinstance(scan[kind], dict) for kind in ("options", "scanners")):
                raise TypeError("it does not describe a scan")
        found[info.path.rpartition("/")[2].removesuffix(".json")] = scan
    return found


def note_asked(storage: Storage, identity: str, files: Sequence[SourceFile]) -> None:
    """Record which files a scan is about to scan, in their order."""
    if not files:
        return
    columns = {name: [getattr(file, name) for file in files] for name, _ in REQUESTED}
    note = encode_table(columns, REQUESTED)
    name = f"{identity}-{hashlib.blake2b(note, digest_size=16).hexdigest()}"
    storage.put(path_of(_REQUESTED, name), note)


def files_asked(storage: Storage, identity: str) -> tuple[SourceFile, ...]:
    """Return the files that scans of an identity requested, in the order of their first request.

    Each is described as it was listed the last time that it had to be scanned; it may have changed
    since.

    Raises:
        FormatError: A note is damaged.
    """
    found: dict[str, SourceFile] = {}
    names = [name for name, _ in REQUESTED]
    for info in sorted(storage.list(_REQUESTED), key=lambda info: (info.last_modified, info.path)):
        if scan_of(info.path.removeprefix(f"{_REQUESTED}/")) == identity:
            table = read_table(storage, info.path, names)
            columns = (table[name].to_pylist() for name in names)
            for url, size, etag, time in zip(*columns, strict=True):
                found[url] = SourceFile(url=url, size=size, etag=etag, last_modified=time)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class ScanNotes:
    """Marks of the parts that are being scanned, by which the next attempt notices a dead process.

    A part is marked when its scan begins, and the mark is removed when the scan ends, however it
    ends: only a process that died leaves one. Cost: a listing per task, two small writes per part.
    None waits for the disk: who cuts the power is known without them.
    """

    storage: Storage

    def died_in(self, parts: Sequence[CatalogPart]) -> bool:
        """Say whether an earlier scan of one of the parts died, or is still running elsewhere."""
        noted = {info.path for info in self.storage.list(_SCANNING)}
        return any(path_of(_SCANNING, part.label) in noted for part in parts)

    @contextmanager
    def scanning(self, part: CatalogPart) -> Iterator[None]:
        """Keep a mark of the part for as long as the block runs."""
        note, storage = path_of(_SCANNING, part.label), _without_waiting(self.storage)
        storage.put(note, b"")
        try:
            yield
        finally:
            storage.delete(note)


def _without_waiting(storage: Storage) -> Storage:
    """Return a storage whose writes return before the disk has them, where it is a local one."""
    if isinstance(storage, Below):
        return Below(_without_waiting(storage.storage), storage.prefix)
    return storage.not_waiting() if isinstance(storage, LocalStorage) else storage
