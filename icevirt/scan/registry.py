"""Find the scanner for a file by its content, or by the name that the user gave.

Scanners are discovered in the entry-point group ``icevirt.scanners``, so third parties plug in
without registration. The first bytes of a file decide its scanner, never its name. The user may
name a scanner instead: ``netcdf3`` by its entry point, ``package.module:Class`` without one, and
``virtualizarr:HDFParser`` passes the part after the colon to a scanner that accepts it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from icevirt.archive.scanned import ScannedFile
from icevirt.archive.shares import Share
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.model import paths
from icevirt.planning.schedule.balance_scans import share_of
from icevirt.scan.combined import combined
from icevirt.scan.contract import ByteSource, Divisible, Scanner, ScannerOptions
from icevirt.scan.distinct import check_paths
from icevirt.scan.label_values import with_labels
from icevirt.scan.policy import enforce
from icevirt.scan.unknown import refusal

GROUP = "icevirt.scanners"
HEAD = 4096  # bytes that scanners are shown
_LONG_HEAD = 1024 * 1024  # and where none knows those: HDF5 may begin behind a block of the user's

_NAMES = "Name one that is installed, or a class as package.module:Class."


@cache
def scanners() -> tuple[Scanner, ...]:
    """Return the installed scanners, in order of their names.

    Raises:
        ScanError: One does not load, usually because an optional dependency is missing.
    """
    return tuple(_load(entry)() for entry in _entries().values())


@cache
def named(text: str) -> Scanner:
    """Return the scanner that a person named.

    Raises:
        InvalidInputError: There is none of that name.
        ScanError: It does not load, usually because an optional dependency is missing.
    """
    name, _, argument = text.partition(":")
    entries = _entries()
    if name in entries:
        make = _load(entries[name])
        scanner = make(argument) if argument else make()
    else:
        found = _imported(name, argument)
        scanner = found() if isinstance(found, type) else found
    if not isinstance(scanner, Scanner):
        raise InvalidInputError("this is not a scanner", do=_NAMES, scanner=text)
    return scanner


def in_use(options: ScannerOptions) -> tuple[Scanner, ...]:
    """Return the scanners among which a scan with these options chooses."""
    return (named(options.scanner),) if options.scanner else scanners()


def _entries() -> dict[str, EntryPoint]:
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name: entry for entry in entries}


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        raise ScanError(
            "a scanner cannot be loaded",
            do="Install what it needs, for HDF5: pip install 'icevirt[hdf5]'.",
            scanner=entry.name,
            cause=str(error),
        ) from error


def _imported(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            "no such scanner",
            do=_NAMES,
            scanner=f"{module}:{name}" if name else module,
            installed=sorted(_entries()),
            cause=str(error),
        ) from error


def scanner_for(source: ByteSource) -> Scanner:
    """Return the scanner that accepts a file by its first bytes.

    Raises:
        ScanError: None does; the message says what the file looks like.
    """
    head = source.read(0, HEAD)
    for known in (HEAD, _LONG_HEAD):
        shown = head if known == HEAD or len(head) < HEAD else source.read(0, known)
        for scanner in scanners():
            if scanner.accepts(shown):
                return scanner
    raise refusal(head, source.file.url)


def scan(source: ByteSource, options: ScannerOptions | None = None) -> ScannedFile:
    """Scan a file with the scanner that was named, or that its content asks for.

    Raises:
        ScanError: No scanner reads it, it is damaged, or it changed while it was scanned.
    """
    options = replace(options or ScannerOptions(), strict=True)
    scanned = combined(record(source, options), options)
    enforce(scanned, options.policy)
    return scanned


def record(source: ByteSource, options: ScannerOptions) -> ScannedFile:
    """Scan a file for a catalog: its description, and beside it the facts that the hints name.

    Raises:
        ScanError: As `scan` does.
    """
    return _scan(_scanner(source, options), source, options)


def scan_share(
    source: ByteSource, options: ScannerOptions, number: int, of: int
) -> tuple[Share, ScannedFile]:
    """Scan share ``number`` of ``of`` of a file, and return what of it that is.

    Raises:
        ScanError: As `scan` does.
        UnsupportedError: The scanner of this file scans whole files only.
    """
    scanner = _scanner(source, options)
    if not isinstance(scanner, Divisible):
        raise UnsupportedError(
            "the scanner of this file can only scan whole files",
            do="Scan the file in one task.",
            file=source.file.url,
            scanner=scanner.name,
        )
    share = share_of(scanner.outline(source, options), number, of)
    if number and not share.whole and not share.runs:
        source.check_unchanged()
        return share, ScannedFile(
            source=source.file,
            scanner=scanner.name,
            scanner_version=scanner.version,
            groups=(),
            arrays=(),
        )
    found = _scan(scanner, source, replace(options, share=share))
    left_out = (p for p in found.left_out if share.covers(p) or not options.wants(p))
    return share, replace(found, left_out=tuple(left_out))


def _scanner(source: ByteSource, options: ScannerOptions) -> Scanner:
    return named(options.scanner) if options.scanner else scanner_for(source)


def _scan(scanner: Scanner, source: ByteSource, options: ScannerOptions) -> ScannedFile:
    found = scanner.scan(source, options)
    check_paths(found)
    enforce(found, options.policy)
    scanned = with_labels(found, source, options)
    source.check_unchanged()
    return scanned


def refuse_unknown(options: ScannerOptions, scanned: ScannedFile) -> None:
    """Check that the variables which the options name are in the file.

    Raises:
        InvalidInputError: One is not; the message lists what is there.
    """
    arrays, told = (each.path for each in scanned.arrays), (f.path for f in scanned.findings)
    there = {*arrays, *told, *scanned.left_out} - {paths.ROOT}
    if unknown := options.unknown(there):
        raise InvalidInputError(
            "the file has no such variable",
            do="Name an existing variable, or omit the name.",
            file=scanned.source.url,
            unknown=list(unknown),
            there=sorted(there),
        )
