"""Find the scanner for a file by its content, or by the name that the user gave.

Scanners are discovered in the entry-point group ``icevirt.scanners``, so third parties plug in
without registration. The first bytes of a file decide its scanner, never its name. The user may
name a scanner instead: ``netcdf3`` by its entry point, ``package.module:Class`` without one, and
``virtualizarr:HDFParser`` passes the part after the colon to a scanner that accepts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from math import prod
from typing import Any

import numpy as np

from icevirt.archive.array_layouts import paths_of
from icevirt.archive.blocks.cutting import cut
from icevirt.archive.blocks.packing import Block
from icevirt.archive.joining import Fact, itemsize_of
from icevirt.archive.scanned import FactsBeside, ScannedArray, ScannedFile, Share
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.installation import install_command
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.planning.combine.hints import Recorded
from icevirt.planning.schedule.balance_scans import share_of
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.scan.contract import (
    ByteSource,
    Divisible,
    Oracle,
    Scanner,
    ScannerOptions,
    StoreByteSource,
    enforce,
)
from icevirt.scan.looks import refuse_unread
from icevirt.scan.places import with_places
from icevirt.scan.values import with_labels

GROUP = "icevirt.scanners"
HEAD = 4096  # bytes that scanners are shown
_LONG_HEAD = 1024 * 1024  # and where none knows those: HDF5 may begin behind a block of the user's

_NAMES = "Name one that is installed, or a class as package.module:Class."


@cache
def scanners() -> tuple[Scanner, ...]:
    """Return the installed scanners that load, in order of their names.

    Formats are installed by extras: what one of them needs is missing for its files alone.
    """
    return _load_each()[0]


def _load_each() -> tuple[tuple[Scanner, ...], tuple[EntryPoint, ...]]:
    """Return the scanners, and which of them an ImportError kept back."""
    loaded, lacking = [], []
    for entry in _entries().values():
        try:
            loaded.append(_load(entry)())
        except ScanError:
            lacking.append(entry)
    return tuple(loaded), tuple(lacking)


@cache
def find_named(text: str) -> Scanner:
    """Return the scanner of a name.

    Raises:
        InvalidInputError: There is none of that name.
        ScanError: It does not load, usually because an optional dependency is missing.
    """
    name, _, argument = text.partition(":")
    entries = _entries()
    if name in entries:
        make = _load(entries[name])
        scanner = make(argument) if argument else make()
    elif not argument:
        raise unknown_scanner(name)
    else:
        try:
            found = getattr(import_module(name), argument)
        except (ImportError, AttributeError, ValueError) as error:
            raise unknown_scanner(text, cause=str(error)) from error
        scanner = found() if isinstance(found, type) else found
    if not isinstance(scanner, Scanner):
        raise InvalidInputError("this is not a scanner", do=_NAMES, scanner=text)
    return scanner


def unknown_scanner(name: str, **facts: str) -> InvalidInputError:
    """Return the error for a name that no scanner has."""
    return InvalidInputError(
        "no such scanner", do=_NAMES, scanner=name, installed=sorted(_entries()), **facts
    )


def is_installed(name: str) -> bool:
    """Say whether a name is that of an installed scanner, and nothing else: it imports no more."""
    return name in _entries()


def in_use(options: ScannerOptions) -> tuple[Scanner, ...]:
    """Return the scanners among which a scan with these options chooses."""
    return (find_named(options.scanner),) if options.scanner else scanners()


def _entries() -> dict[str, EntryPoint]:
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name: entry for entry in entries}


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        raise ScanError(
            "a scanner cannot be loaded",
            do=f"Install what it needs, for HDF5: {install_command('hdf5')}",
            scanner=entry.name,
            cause=str(error),
        ) from error


def scanner_for(source: ByteSource) -> Scanner:
    """Return the scanner that accepts a file by its first bytes.

    Raises:
        ScanError: None does; the message says what the file looks like. Or one that may was kept
            back, because an optional dependency is missing.
    """
    if (found := _accepting(source)) is None:
        raise refuse_unread(source.read(0, HEAD), source.file.url)
    return found


def is_recognized(source: ByteSource) -> bool:
    """Say whether an installed scanner accepts a file by its first bytes."""
    return _accepting(source) is not None


def _accepting(source: ByteSource) -> Scanner | None:
    if isinstance(source, StoreByteSource):
        return next((each for each in scanners() if getattr(each, "reads_stores", False)), None)
    head = source.read(0, HEAD)
    for known in (HEAD, _LONG_HEAD):
        shown = head if known == HEAD or len(head) < HEAD else source.read(0, known)
        for scanner in scanners():
            if scanner.accepts(shown):
                return scanner
    for lacking in _load_each()[1]:
        _load(lacking)  # raises: it might have been the one
    return None


def oracle_for(source: ByteSource, named: str = "") -> Oracle:
    """Return the oracle for a file, given the scanner that described it if one was named.

    Raises:
        ScanError: No scanner reads the file.
        UnsupportedError: Its scanner has none.
    """
    scanner = find_named(named) if named else scanner_for(source)
    if isinstance(scanner, Oracle):
        return scanner
    raise UnsupportedError(
        "the scanner of this format cannot read values to compare with",
        do=write_remedy(
            "Check the ",
            write_code("references only", "references only: --references"),
            ".",
        ),
        file=source.file.url,
        scanner=scanner.name,
    )


def scan(source: ByteSource, options: ScannerOptions | None = None) -> ScannedFile:
    """Scan a file with the scanner that the options name, or that its content decides.

    Raises:
        ScanError: No scanner reads it, it is damaged, or it changed while it was scanned.
    """
    if options is None or not options.strict:
        options = replace(options or ScannerOptions(), strict=True)
    scanned = combine(record(source, options), options)
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
    """Scan share ``number`` of ``of`` of a file; return the share too.

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
    return find_named(options.scanner) if options.scanner else scanner_for(source)


def _scan(scanner: Scanner, source: ByteSource, options: ScannerOptions) -> ScannedFile:
    found = scanner.scan(source, options)
    check_paths(found)
    enforce(found, options.policy)
    found = with_places(found, options, lambda more: scanner.scan(source, more))
    scanned = with_labels(found, source, options)
    source.check_unchanged()
    return scanned


def refuse_unknown(options: ScannerOptions, scanned: ScannedFile) -> None:
    """Check that the variables which the options name are in the file.

    Raises:
        InvalidInputError: One is not; the message lists what is there.
    """
    arrays, findings = (a.path for a in scanned.arrays), (f.path for f in scanned.findings)
    there = {*arrays, *findings, *scanned.left_out} - {paths.ROOT}
    if unknown := options.unknown(there):
        raise InvalidInputError(
            "the file has no such variable",
            do="Name an existing variable, or omit the name.",
            file=scanned.source.url,
            unknown=list(unknown),
            there=sorted(there),
        )


def check_paths(scanned: ScannedFile) -> None:
    """Refuse a description in which two nodes share a path, or a path is not valid in Zarr.

    Raises:
        UnsupportedError: Names in the file become one name in Zarr.
        ScanError: The scanner describes a hierarchy that cannot be.
    """
    groups = tuple(group.path for group in scanned.groups)
    named = paths_of(scanned.arrays)
    if _fit(groups, named):
        return
    url, arrays = scanned.source.url, {*named}
    found = Counter([*groups, *named])
    if twice := sorted(path for path, count in found.items() if count > 1):
        raise UnsupportedError(
            "several variables or groups would have the same name in Zarr",
            do=write_remedy(
                "Leave the variables out: ",
                write_option("drop_variables", twice),
                "; or rename them in the file.",
            ),
            file=url,
            paths=twice,
        )
    for path in found:
        try:
            fits = _is_node(path, arrays)
        except InvalidInputError as error:
            raise _unfit(scanned, path, str(error)) from error
        if not fits:
            raise _unfit(scanned, path, "it is not canonical, or lies below an array")


@lru_cache(64)
def _fit(groups: tuple[str, ...], arrays: tuple[str, ...]) -> bool:
    """Say whether these are paths of one hierarchy; files of an archive have the same ones."""
    found, leaves = {*groups, *arrays}, {*arrays}
    try:
        are_nodes = all(_is_node(path, leaves) for path in found)
    except InvalidInputError:
        return False
    return are_nodes and len(found) == len(groups) + len(arrays)


def _is_node(path: str, arrays: Collection[str]) -> bool:
    """Say whether a path is canonical, and not below an array."""
    return paths.creatable(path) == path and (
        path == paths.ROOT or paths.parent(path) not in arrays
    )


def _unfit(scanned: ScannedFile, path: str, cause: str) -> ScanError:
    return ScanError(
        "the scanner returned a node that Zarr cannot store",
        do="Fix the scanner: icevirt.model.paths.node_name escapes names.",
        file=scanned.source.url,
        scanner=scanned.scanner,
        path=path,
        cause=cause,
    )


def combine(scanned: ScannedFile, options: ScannerOptions) -> ScannedFile:
    """Return the file with its arrays in the form that they have beside those of other files."""
    return replace(scanned, arrays=tuple(_combine(array, options) for array in scanned.arrays))


def _combine(array: ScannedArray, options: ScannerOptions) -> ScannedArray:
    beside = array.beside or FactsBeside()
    wanted = options.wanted_of(array, ())
    labels = array if array.labels is not None else beside
    has_labels = Fact.labels in wanted
    digest = array.digest or beside.digest
    if Fact.values in wanted and beside.values is not None:
        array = beside.values
    facts: dict[str, Any] = {
        "digest": "" if array.whole and Fact.digest not in wanted else digest,
        "labels": labels.labels if has_labels else None,
        "labels_dtype": labels.labels_dtype if has_labels else "",
        "beside": None,
    }
    if any(getattr(array, name) != value for name, value in facts.items()):
        array = replace(array, **facts)
    return _cut(array, options)


def _cut(array: ScannedArray, options: ScannerOptions) -> ScannedArray:
    if array.whole or not array.contiguous:
        return array
    size = itemsize_of(array.data_type)
    edges = options.cut(Recorded.of(array.path, array.shape, array.chunk_shape, array))
    if edges == array.chunk_shape:
        return array
    table = array.references
    if len(table):
        table = _cut_table(table, prod(edges) * size, array.shape[0])
    return replace(array, chunk_shape=edges, references=table)


def _cut_table(table: ChunkTable, step: int, extent: int) -> ChunkTable:
    block = Block(
        file=np.zeros(len(table), np.int32),
        index=table.index,
        kind=table.kind,
        offset=table.offset,
        length=table.length,
        data=table.inline,
        source=table.source + np.uint32(1),
        targets=table.locations if len(table.locations) else Locations.none(),
    )
    rows = np.arange(len(block))
    found = cut(block, rows, step, np.full(len(rows), extent, np.int64))
    return ChunkTable(
        index=found.index,
        kind=found.kind,
        source=np.where(found.source > 0, found.source - 1, 0).astype(np.uint32),
        offset=found.offset,
        length=found.length,
        locations=found.targets,
        inline=found.data,
    ).sort()
