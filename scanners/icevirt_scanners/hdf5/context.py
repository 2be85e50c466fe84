"""What the variables of one HDF5 file share while it is scanned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from icevirt_scanners.context import ScanContext
from icevirt_scanners.hdf5.raw.file import Header, RawFile


@dataclass(slots=True, kw_only=True)
class FileContext(ScanContext):
    """The scan of an open HDF5 file."""

    fid: Any  # h5py FileID
    raw: RawFile | None  # None where everything is left to libhdf5

    def header(self, address: int) -> Header | None:
        """Return the object header at an address, None where libhdf5 is to be asked."""
        return self.raw.header(address) if self.raw is not None else None
