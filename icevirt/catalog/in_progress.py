"""Mark catalog parts as being scanned, so that the next attempt notices a dead process.

A part is marked when its scan begins, and the mark is removed when the scan ends, however it ends:
only a process that died leaves one. Cost: a listing per task, two small writes per part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from icevirt.archive import catalog
from icevirt.archive.catalog import CatalogPart
from icevirt.storage.protocol import Storage

_FOLDER = "opening"


@dataclass(frozen=True, slots=True)
class ScanNotes:
    """The notes of one catalog."""

    storage: Storage

    def died_in(self, parts: Sequence[CatalogPart]) -> bool:
        """Say whether an earlier scan of one of the parts died, or is still running elsewhere."""
        noted = {info.path for info in self.storage.list(_FOLDER)}
        return any(catalog.path_of(_FOLDER, part.label) in noted for part in parts)

    @contextmanager
    def scanning(self, part: CatalogPart) -> Iterator[None]:
        """Keep a note of the part for as long as the block runs."""
        note = catalog.path_of(_FOLDER, part.label)
        self.storage.put(note, b"")
        try:
            yield
        finally:
            self.storage.delete(note)
