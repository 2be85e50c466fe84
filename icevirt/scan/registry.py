"""Find the scanner for a file by its content.

Scanners are discovered in the entry-point group ``icevirt.scanners``, so third parties plug in
without registration. Which one scans a file is decided by its first bytes, never by its name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from icevirt.archive.scanned import ScannedFile
from icevirt.errors import ScanError
from icevirt.scan.contract import ByteSource, Scanner, ScanOptions
from icevirt.scan.unknown import refusal

GROUP = "icevirt.scanners"
HEAD = 4096  # bytes that scanners are shown


@cache
def scanners() -> tuple[Scanner, ...]:
    """Return the installed scanners, in order of their names.

    Raises:
        ScanError: One does not load, usually because an optional dependency is missing.
    """
    found: list[Scanner] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found.append(entry.load()())
        except ImportError as error:
            raise ScanError(
                "a scanner does not load",
                do="Install what it needs, for HDF5: pip install 'icevirt[hdf5]'.",
                scanner=entry.name,
                cause=str(error),
            ) from error
    return tuple(found)


def scanner_for(head: bytes, url: str) -> Scanner:
    """Return the scanner that accepts a file which begins with ``head``.

    Raises:
        ScanError: None does; the message says what the file looks like.
    """
    for scanner in scanners():
        if scanner.accepts(head):
            return scanner
    raise refusal(head, url)


def scan(source: ByteSource, options: ScanOptions | None = None) -> ScannedFile:
    """Scan a file with the scanner that its content asks for.

    Raises:
        ScanError: No scanner reads it, it is damaged, or it changed while it was scanned.
    """
    scanner = scanner_for(source.read(0, HEAD), source.file.url)
    scanned = scanner.scan(source, options or ScanOptions())
    source.check_unchanged()
    return scanned
