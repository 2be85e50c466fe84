"""The scan stage: source files in, catalog parts out; only counts come back to the driver.

Files are scanned in this process until one was seen to kill it: then the parts of the task are
scanned again in a child, which finds out what file it is and brings home the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from icevirt.archive.catalog import Part
from icevirt.archive.scanned import SourceFile
from icevirt.objects.grants import SourceAccess, granted
from icevirt.scan.contract import ScanOptions
from icevirt.spark.attempt import Outcome, attempt
from icevirt.spark.catalog import write_part
from icevirt.spark.containment import Containment, Limits
from icevirt.spark.journal import Journal
from icevirt.spark.rows import tables_of
from icevirt.spark.watch import deadline
from icevirt.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Some parts to scan, in order, into one catalog."""

    parts: tuple[Part, ...]
    options: ScanOptions
    catalog: Storage
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files
    limits: Limits = field(default_factory=Limits)  # of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCounts:
    """What a scan task says when it is done."""

    files: int
    bad: int
    references: int


def run_scan(task: ScanTask) -> ScanCounts:
    """Scan the parts of a task; a part is written as soon as its last file is scanned."""
    files = bad = references = 0
    journal = Journal(task.catalog)
    with granted(task.access), _attempts(task, suspicious=journal.died_in(task.parts)) as scan_file:
        for part in task.parts:
            with journal.scanning(part):
                outcomes = [scan_file(file) for file in part.files]
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


@contextmanager
def _attempts(task: ScanTask, *, suspicious: bool) -> Iterator[Callable[[SourceFile], Outcome]]:
    """Yield what scans a file: in a child if a file of this task may kill its process."""
    if suspicious:
        with Containment(task.options, task.limits) as containment:
            yield containment.attempt
        return

    def here(file: SourceFile) -> Outcome:
        with deadline(task.limits.seconds):
            return attempt(file, task.options)

    yield here
