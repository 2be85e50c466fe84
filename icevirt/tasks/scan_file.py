"""Scan one file; anything wrong with it becomes its row in the catalog."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from icevirt.archive.scanned import ScannedFile, ScanOutcome, SourceFile
from icevirt.archive.shares import Share
from icevirt.errors import IcevirtError, ScanError, ScanMemoryError, StaleReferenceError
from icevirt.objects.answers import opaque
from icevirt.objects.opened import OpenedSource
from icevirt.objects.source import open_source
from icevirt.scan.contract import ByteSource, ScannerOptions
from icevirt.scan.registry import record, scan_share


def attempt(
    file: SourceFile,
    options: ScannerOptions,
    opening: Callable[[str], AbstractContextManager[OpenedSource]] = open_source,
    piece: tuple[int, int] | None = None,
) -> ScanOutcome:
    """Scan a file; errors are part of the outcome.

    Args:
        file: As it was listed.
        options: What is asked for.
        opening: Returns a file by its URL, opened; it may have opened it already.
        piece: The number of a share and how many there are, where this share alone is scanned.
    """
    begin = time.perf_counter()
    share, scanned, error = None, None, None
    cost = [0, 0]
    try:
        share, scanned = _scan(file, options, cost, opening, piece)
    except IcevirtError as refused:
        error = refused
    except MemoryError:
        error = ScanMemoryError(
            "the file needs more memory than its limit, or than is available",
            do="Leave it out, or raise file_memory (--file-memory).",
            file=file.url,
        )
    except Exception as bug:  # noqa: BLE001  # one odd file must not cost the other thousands
        error = ScanError(
            f"the scanner failed: {type(bug).__name__}: {bug}",
            do="Please report this file.",
            file=file.url,
        )
    return ScanOutcome(
        file=file,
        scanned=scanned,
        error=error,
        seconds=time.perf_counter() - begin,
        requests=cost[0],
        bytes_fetched=cost[1],
        share=share,
    )


def _scan(
    file: SourceFile,
    options: ScannerOptions,
    cost: list[int],
    opening: Callable[[str], AbstractContextManager[OpenedSource]],
    piece: tuple[int, int] | None,
) -> tuple[Share | None, ScannedFile]:
    """Scan the file; ``cost`` becomes the requests and bytes it took, also where the scan fails."""
    with opening(file.url) as source:
        try:
            return _scan_opened(source, file, options, piece)
        finally:
            cost[:] = source.requests, source.bytes_fetched


def _scan_opened(
    source: ByteSource, file: SourceFile, options: ScannerOptions, piece: tuple[int, int] | None
) -> tuple[Share | None, ScannedFile]:
    if not _is_same(source.file, file):
        raise StaleReferenceError(
            "the file changed after it was listed",
            do="Build again when it is no longer written to.",
            file=file.url,
        )
    return (None, record(source, options)) if piece is None else scan_share(source, options, *piece)


def _is_same(opened: SourceFile, listed: SourceFile) -> bool:
    """Compare by the stronger checksum; lists of sources may tell one and not the other."""
    if opened.size != listed.size:
        return False
    if opened.etag and listed.etag:
        return opaque(opened.etag) == opaque(listed.etag)
    return opened.last_modified == listed.last_modified
