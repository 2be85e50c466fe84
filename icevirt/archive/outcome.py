"""Describe the result of trying to scan one file: what was found, or what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from icevirt.archive.scanned import ScannedFile, SourceFile
from icevirt.archive.shares import Share
from icevirt.errors import IcevirtError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOutcome:
    """One file after the attempt to scan it."""

    file: SourceFile
    scanned: ScannedFile | None
    error: IcevirtError | None
    seconds: float
    requests: int = 0  # to the file's server
    bytes_fetched: int = 0
    share: Share | None = None  # what of the file was scanned, where not all of it
