"""Take facts that a plan lacks from files, each of which is opened once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from icevirt.archive.joining import Fact
from icevirt.archive.limits import DEFAULT, ScanLimits
from icevirt.archive.outcome import ScanOutcome
from icevirt.archive.scanned import FactsBeside, ScannedArray, SourceFile
from icevirt.catalog.facts_beside import fact_row, write_facts
from icevirt.errors import (
    IcevirtError,
    NotFoundError,
    ScanError,
    SourcesChangedError,
    StaleReferenceError,
)
from icevirt.objects.source_access import SourceAccess, granted, in_force
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.protocol import Storage
from icevirt.tasks.limit_enforcement import held_to, in_worker
from icevirt.tasks.scan_file import attempt
from icevirt.tasks.scan_subprocess import Apart, attempt_as


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFacts:
    """The facts that are wanted of one file."""

    row: int  # of the file in its part
    file: SourceFile  # as it was scanned
    arrays: tuple[tuple[str, int], ...]  # path, and of `Fact`


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsTask:
    """Files of one part of the catalog, and the facts that are wanted of each."""

    part: str
    files: tuple[WantedFacts, ...]
    options: ScannerOptions
    catalog: Storage
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files
    limits: ScanLimits = DEFAULT  # of a file


def run_take_facts(task: FactsTask) -> int:
    """Take the facts of a task, write them beside their part, and return the number of files.

    Raises:
        SourcesChangedError: A file is not what was scanned.
        ScanError: Values cannot be read.
        UnsupportedError: Values cannot be stored.
    """
    rows = []
    with granted(task.access), ExitStack() as stack:
        apart = stack.enter_context(Apart(task.limits)) if in_worker() else None
        for each in task.files:
            found = _arrays(task, each, apart)
            rows += [fact_row(each.row, found[path], Fact(fact)) for path, fact in each.arrays]
    write_facts(task.catalog, task.part, rows)
    return len(task.files)


def _arrays(task: FactsTask, wanted: WantedFacts, apart: Apart | None) -> dict[str, ScannedArray]:
    options = replace(task.options, variables=tuple(path for path, _ in wanted.arrays), strict=True)
    outcome: ScanOutcome
    if apart is None:
        with held_to(task.limits):
            outcome = attempt(wanted.file, options)
    else:
        outcome = apart.call(wanted.file.url, attempt_as, in_force(), wanted.file, options)
    if outcome.error is not None:
        raise _refusal(outcome.error, wanted.file.url)
    assert outcome.scanned is not None, "a file is scanned or bad"
    found = {array.path: _with_own(array) for array in outcome.scanned.arrays}
    if lacking := [path for path, _ in wanted.arrays if path not in found]:
        raise ScanError(
            "a file lacks variables that its scan found",
            do="Scan it into a new catalog.",
            file=wanted.file.url,
            variables=lacking,
        )
    return found


def _with_own(array: ScannedArray) -> ScannedArray:
    """Return an array with all facts beside, wherever its scanner puts them."""
    beside = array.beside or FactsBeside()
    digest = beside.digest or array.digest
    if beside.labels is None:
        beside = replace(beside, labels=array.labels, labels_dtype=array.labels_dtype)
    return replace(array, beside=replace(beside, digest=digest))


def _refusal(error: IcevirtError, url: str) -> IcevirtError:
    if not isinstance(error, StaleReferenceError | NotFoundError):
        return error
    return SourcesChangedError(
        "a file changed since its scan, before facts that this plan needs were taken from it",
        do="Build again when nobody writes to it, with rescan_changed (--rescan-changed) if a"
        " catalog is kept; nothing was committed.",
        files={url: str(error)},
    )
