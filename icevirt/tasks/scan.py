"""Run the scan stage: source files in, catalog parts out; only counts return to the driver.

Files are scanned in this process until one kills it: then the parts of the task are scanned again
in a child, which finds that file and scans the others. `copy_scans` puts what was scanned for a
build into another catalog, where it stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial

from icevirt.archive.catalog import CatalogPart, run_of
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import (
    DEFAULT,
    FactsBeside,
    ScanLimits,
    ScannedArray,
    ScannedFile,
    ScanOutcome,
)
from icevirt.archive.sources import SourceFile
from icevirt.catalog.facts_beside import fact_row, write_facts
from icevirt.catalog.parts import PartRows, ScanNotes, complete_parts, mark, write_part
from icevirt.errors import (
    NotFoundError,
    ScanCrashError,
    ScanError,
    ScanMemoryError,
    ScanTimeoutError,
    SourcesChangedError,
    StaleReferenceError,
)
from icevirt.model import paths
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access, in_force
from icevirt.planning.axes.differing import LabelsByPath, comparable, differing
from icevirt.planning.combine.hints import holds_labels
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import in_use
from icevirt.storage.protocol import Storage
from icevirt.tasks.forkserver import Apart, hold_to, in_worker
from icevirt.tasks.scan_file import Containment, attempt, attempt_as, prefetching
from icevirt.tasks.scan_pieces import Pieces
from icevirt.threads import Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """Some parts to scan, in order, into one catalog."""

    parts: tuple[CatalogPart, ...]
    options: ScannerOptions
    catalog: Storage
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files
    limits: ScanLimits = DEFAULT  # of a file

    @property
    def wanted(self) -> Callable[[ScannedArray], Fact]:
        """The function that says which facts are looked for."""
        return lambda array: self.options.wanted_of(array, ())


def run_scan(task: ScanTask) -> int:
    """Scan the parts of a task and return the number of their files.

    A part is written as soon as its last file is scanned, or by the task that scans the last piece
    of its huge file. What an earlier try of the task wrote before it died is left as it is.
    """
    journal = ScanNotes(task.catalog)
    done = {run_of(name) for name in complete_parts(task.catalog)}
    parts = [part for part in task.parts if part.name not in done]
    suspicious = journal.has_died_in(task.parts)
    with grant_access(task.access), _attempts(task, parts, suspicious=suspicious) as scan_file:
        for part in parts:
            with journal.scanning(part):
                if part.of == 1 or not _scan_piece(task, part, scan_file):
                    rows = PartRows(task.limits, task.wanted)
                    for file in part.files:
                        rows.add(scan_file(file, None))
                    write_part(task.catalog, part.name, rows.tables())
    return sum(len(part.files) for part in task.parts if not part.piece)


type _Attempt = Callable[[SourceFile, tuple[int, int] | None], ScanOutcome]


def _scan_piece(task: ScanTask, part: CatalogPart, scan_file: _Attempt) -> bool:
    """Scan a piece of a huge file, and join all where this was the last.

    False where they cannot be joined, and this task has to scan the file whole.
    """
    stored = task.options.max_native_bytes
    pieces = Pieces(
        catalog=task.catalog, part=part, limits=task.limits, max_stored=stored, wanted=task.wanted
    )
    if not pieces.is_there():
        (file,) = part.files
        pieces.write(scan_file(file, (part.piece, part.of)))
    return not pieces.wait_to_be_joined() or pieces.join()


@contextmanager
def _attempts(task: ScanTask, parts: list[CatalogPart], *, suspicious: bool) -> Iterator[_Attempt]:
    """Yield what scans a file: in a child if a file of this task may kill its process."""
    if suspicious:
        with Containment(task.options, task.limits) as containment:
            yield containment.attempt
        return

    in_use(task.options)  # what scanners import does not count as time of the first file

    with prefetching(file for part in parts for file in part.files) as ahead:

        def here(file: SourceFile, piece: tuple[int, int] | None) -> ScanOutcome:
            with hold_to(task.limits):
                return attempt(file, task.options, ahead.open, piece)

        yield here


# -- facts beside ---------------------------------------------------------------------------------


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
    with grant_access(task.access), ExitStack() as stack:
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
        with hold_to(task.limits):
            outcome = attempt(wanted.file, options)
    else:
        outcome = apart.call(wanted.file.url, attempt_as, in_force(), wanted.file, options)
    error = outcome.error
    if isinstance(error, StaleReferenceError | NotFoundError):
        raise SourcesChangedError(
            "a file changed since its scan, before facts that this plan needs were taken from it",
            do=write_remedy(
                "Build again when no other process writes to it, with ",
                write_option("rescan_changed"),
                " if a catalog is kept; nothing was committed.",
            ),
            files={wanted.file.url: str(error)},
        )
    if error is not None:
        raise error
    assert outcome.scanned is not None, "a file is scanned or bad"
    found = {each.path: replace(each, beside=_with_own(each)) for each in outcome.scanned.arrays}
    if lacking := [path for path, _ in wanted.arrays if path not in found]:
        raise ScanError(
            "a file lacks variables that its scan found",
            do="Scan it into a new catalog.",
            file=wanted.file.url,
            variables=lacking,
        )
    return found


def _with_own(array: ScannedArray) -> FactsBeside:
    """Return all facts of an array, wherever its scanner puts them."""
    beside = array.beside or FactsBeside()
    if beside.labels is None:
        beside = replace(beside, labels=array.labels, labels_dtype=array.labels_dtype)
    return replace(beside, digest=beside.digest or array.digest)


# -- the ends of a list ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The labels of the first good file from one end of a list, or the files to find it among."""

    labels: LabelsByPath | None
    parts: tuple[CatalogPart, ...] = ()  # of one file each


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsTask:
    """The two ends of a list of files whose dimensions are inferred."""

    ends: tuple[End, End]
    tolerance: tuple[tuple[str, float], ...]  # of coordinates that are the same
    options: ScannerOptions
    catalog: Storage
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files
    limits: ScanLimits = DEFAULT  # of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsFound:
    """What the ends of a list say."""

    dimensions: tuple[str, ...] | None  # None: no file could be scanned
    files: int = 0  # recorded


def run_scan_ends(task: EndsTask) -> EndsFound:
    """Scan the first good file and the last, and infer the dimensions along which they differ.

    Files stay open until it is clear which facts are needed, so that none is opened again.
    """
    parts = [part for end in task.ends for part in end.parts]
    journal = ScanNotes(task.catalog)
    if not in_worker() and not journal.has_died_in(parts):
        return _scan_ends(task, journal)
    try:
        with grant_access(task.access), Apart(task.limits) as apart:
            return apart.call(parts[0].files[0].url, _scan_ends, task)
    except (ScanCrashError, ScanTimeoutError, ScanMemoryError):
        return EndsFound(dimensions=None)  # the scan of all files finds out which one it was


def _scan_ends(task: EndsTask, journal: ScanNotes | None = None) -> EndsFound:
    tried: dict[str, tuple[CatalogPart, ScanOutcome]] = {}
    with grant_access(task.access), ExitStack() as stack:
        opened = cache(lambda url: stack.enter_context(open_source(url)))

        def attempt_file(file: SourceFile, dimensions: tuple[str, ...] = ()) -> ScanOutcome:
            options = replace(task.options, concat_dim=dimensions or None)
            return attempt(file, options, lambda url: nullcontext(opened(url)))

        def labels_of(end: End) -> LabelsByPath | None:
            for part in end.parts:
                (file,) = part.files
                if file.url not in tried:
                    with nullcontext() if journal is None else journal.scanning(part):
                        tried[file.url] = part, attempt_file(file)
                if (scanned := tried[file.url][1].scanned) is not None:
                    return _labels(scanned, partial(attempt_file, file))
            return end.labels

        first, last = map(labels_of, task.ends)
        if first is None or last is None:
            return EndsFound(dimensions=None)
        found = differing(first, last, dict(task.tolerance))
        options = replace(task.options, concat_dim=found)
        whole = [each for each in tried.values() if each[0].of == 1]
        for part, outcome in whole:
            rows = PartRows(task.limits, lambda array: options.wanted_of(array, ()))
            is_plain = outcome.scanned is None or not found
            rows.add(outcome if is_plain else attempt_file(outcome.file, found))
            write_part(task.catalog, part.name, rows.tables())
    return EndsFound(dimensions=found, files=len(whole))


def _labels(scanned: ScannedFile, again: Callable[[tuple[str, ...]], ScanOutcome]) -> LabelsByPath:
    """Return the labels of a file's dimensions; those that are rarely needed are taken now."""
    found = _coordinates(scanned)
    if any(array.labels is None for array in found):  # a file of references, or a large one
        outcome = again(tuple(paths.name(array.path) for array in found))
        found = [] if outcome.scanned is None else _coordinates(outcome.scanned)
    labelled = ((array, _with_own(array)) for array in found)
    return {
        array.path: comparable(beside.labels, beside.labels_dtype, array.attributes)
        for array, beside in labelled
        if beside.labels is not None
    }


def _coordinates(scanned: ScannedFile) -> list[ScannedArray]:
    return [
        each
        for each in scanned.arrays
        if holds_labels(each.path, each.dimension_names, each.data_type)
    ]


_TABLES = ("scans", "refs", "arrays", "more")  # of a part, which counts once its files are there

_AT_ONCE = 8  # objects


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyScansTask:
    """Some objects of a catalog."""

    source: Storage
    into: Storage
    paths: tuple[str, ...]


def copy_scans(task: CopyScansTask) -> int:
    """Copy the objects; return how many."""

    def copy(path: str) -> None:
        task.into.put(path, task.source.get(path))

    with Threads(_AT_ONCE, "icevirt-copy") as pool:
        return sum(1 for _ in pool.map(copy, task.paths))


def scans_to_copy(source: Storage, into: Storage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make the target a catalog; return the objects that it lacks, and those that come last."""
    mark(into)
    there = {info.path for info in into.list()}
    first, last = (
        tuple(
            sorted(
                info.path
                for table in tables
                for info in source.list(table)
                if info.path not in there
            )
        )
        for tables in (_TABLES, ("files",))
    )
    return first, last
