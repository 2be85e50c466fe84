"""The scan stage: source files in, catalog parts out; only counts come back to the driver."""

from __future__ import annotations

import time
from dataclasses import dataclass

from icevirt.archive.catalog import Part
from icevirt.archive.scanned import ScannedFile, SourceFile
from icevirt.errors import IcevirtError, ScanError, StaleReferenceError
from icevirt.objects.source import open_source
from icevirt.scan.contract import ScanOptions
from icevirt.scan.registry import scan
from icevirt.spark.catalog import write_part
from icevirt.spark.rows import Outcome, tables_of
from icevirt.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Some parts to scan, in order, into one catalog."""

    parts: tuple[Part, ...]
    options: ScanOptions
    catalog: Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCounts:
    """What a scan task says when it is done."""

    files: int
    bad: int
    references: int


def run_scan(task: ScanTask) -> ScanCounts:
    """Scan the parts of a task; a part is written as soon as its last file is scanned."""
    files = bad = references = 0
    for part in task.parts:
        outcomes = [_attempt(file, task.options) for file in part.files]
        write_part(task.catalog, part.name, tables_of(outcomes))
        files += len(outcomes)
        bad += sum(outcome.error is not None for outcome in outcomes)
        references += sum(
            len(array.references)
            for outcome in outcomes
            if outcome.scanned
            for array in outcome.scanned.arrays
        )
    return ScanCounts(files=files, bad=bad, references=references)


def _attempt(file: SourceFile, options: ScanOptions) -> Outcome:
    """Scan one file; whatever is wrong with it becomes its row in the catalog."""
    begin = time.perf_counter()
    scanned, error = None, None
    try:
        scanned = _scan(file, options)
    except IcevirtError as refused:
        error = refused
    except MemoryError:
        error = ScanError("the file needs more memory than there is", file=file.url)
    except Exception as bug:  # noqa: BLE001  # one odd file must not cost the other thousands
        error = ScanError(
            f"the scanner failed: {type(bug).__name__}: {bug}",
            do="Please report this file.",
            file=file.url,
        )
    return Outcome(file=file, scanned=scanned, error=error, seconds=time.perf_counter() - begin)


def _scan(file: SourceFile, options: ScanOptions) -> ScannedFile:
    with open_source(file.url) as source:
        if (source.file.size, source.file.last_modified) != (file.size, file.last_modified):
            raise StaleReferenceError(
                "the file changed between listing and scan",
                do="Build again when it is no longer written to.",
                file=file.url,
            )
        return scan(source, options)
