"""Hold what the variables of one HDF5 file share during a scan."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from icevirt.archive.scanned import SourceFile
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.context import ScanContext
from icevirt_scanners.hdf5.files import HeldFile
from icevirt_scanners.hdf5.hierarchy.walk import Handle
from icevirt_scanners.hdf5.raw.file import ObjectHeader, RawFile


@dataclass(slots=True, kw_only=True, eq=False)
class FileContext(ScanContext):
    """The scan of an open HDF5 file."""

    file: HeldFile
    raw: RawFile | None  # None where everything is left to libhdf5
    elsewhere: Elsewhere  # files beside the scanned one
    beside: dict[str, SourceFile] = field(default_factory=dict)  # those looked into, by URL
    parents: tuple[FileContext, ...] = ()  # files whose virtual datasets lead here
    above: list[tuple[str, int]] = field(default_factory=list)  # those datasets: file, address
    reopened: dict[int, Handle] = field(default_factory=dict)  # datasets with raw files, by address
    tally: dict[str, int] = field(default_factory=dict)  # see `ScannedFile`
    _known: dict[Any, Any] = field(default_factory=dict)

    @property
    def fid(self) -> Any:
        """The h5py FileID; libhdf5 opens the file where it did not yet."""
        return self.file.fid

    def header(self, address: int) -> ObjectHeader | None:
        """Return the object header at an address, None where libhdf5 is to be asked."""
        return self.raw.header(address) if self.raw is not None else None

    def once[T](
        self,
        header: ObjectHeader | None,
        kinds: tuple[int, ...],
        more: Hashable,
        make: Callable[[], T],
    ) -> T:
        """Make what messages of a header say, once for all objects with equal ones.

        ``more`` is what it depends on beside them.
        """
        key = header.key(kinds) if header is not None else None
        if key is None:
            return make()
        found: T | None = self._known.get((kinds, key, more))
        if found is None:
            found = self._known[kinds, key, more] = make()
        return found
