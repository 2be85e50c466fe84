"""What the variables of one file share while it is scanned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from icevirt.archive.scanned import Finding, Severity
from icevirt.model.chunks import Locations
from icevirt.scan.contract import ByteSource, ScanOptions
from icevirt_scanners.hdf5.values import Budget


@dataclass(slots=True, kw_only=True)
class FileContext:
    """The file, the request and what was found so far."""

    source: ByteSource
    fid: Any
    options: ScanOptions
    location: Locations
    budget: Budget
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def of(cls, source: ByteSource, fid: Any, options: ScanOptions) -> FileContext:
        """Begin a scan of ``source``."""
        file = source.file
        return cls(
            source=source,
            fid=fid,
            options=options,
            location=Locations.one(
                file.url, etag=file.etag, last_modified=file.last_modified_seconds
            ),
            budget=Budget(options.max_native_bytes, file.url),
        )

    def tell(self, path: str, code: str, message: str, severity: Severity = Severity.note) -> None:
        """Add a finding."""
        self.findings.append(Finding(path=path, code=code, message=message, severity=severity))

    def warn(self, path: str, code: str, message: str) -> None:
        """Add a warning."""
        self.tell(path, code, message, Severity.warning)
