"""What the variables of one HDF5 file share while it is scanned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from icevirt_scanners.context import ScanContext


@dataclass(slots=True, kw_only=True)
class FileContext(ScanContext):
    """The scan of an open HDF5 file."""

    fid: Any  # h5py FileID
