"""Scan what a catalog lacks, and infer the dimensions to concatenate along.

Dimensions are those whose labels differ between files. The first good file is compared with the
last: by the catalog where it describes them, else by a scan of these two before all others, which
takes what the dimensions need while both are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import batched, chain, islice, takewhile

import numpy as np
from numpy.typing import NDArray

from icevirt.amounts import plural
from icevirt.api.dataset.records import identity_of, options_of
from icevirt.api.events import tell, tell_bad_files
from icevirt.archive import catalog as schema
from icevirt.archive.catalog import parts_of
from icevirt.archive.facts import CatalogFacts, FileColumns
from icevirt.archive.joining import Form
from icevirt.archive.reports.build import BadFile, Progress, reason_of
from icevirt.archive.scanned import DEFAULT, ScanLimits
from icevirt.archive.schema import ArraySchema
from icevirt.archive.sources import SourceFile, SourceFiles, name_of_url
from icevirt.catalog import parts
from icevirt.catalog.facts_beside import BesideReader
from icevirt.catalog.facts_reader import ClosedCatalog, read_facts
from icevirt.catalog.lookup import (
    CatalogLookup,
    CatalogTables,
    KnownTables,
    forget,
    look_up_files,
)
from icevirt.catalog.parquet import damage_error
from icevirt.catalog.part_index import IndexWriter
from icevirt.catalog.parts import describe_scan, note_asked
from icevirt.errors import (
    BuildError,
    Fix,
    FormatError,
    IcevirtError,
    InvalidInputError,
    ObjectNotFoundError,
    ScanError,
    StorageError,
    UnsupportedError,
)
from icevirt.execution.executor import Executor, describe_jobs, reporter
from icevirt.model import paths
from icevirt.objects.source_access import in_force
from icevirt.planning.axes.candidates import merging
from icevirt.planning.axes.differing import (
    ComparedLabels,
    LabelsByPath,
    comparable,
    differing,
    of_many,
)
from icevirt.planning.combine.hints import holds_labels
from icevirt.planning.combine.needs import LackingFacts, resolve_needs
from icevirt.planning.combine.scalar_steps import with_scalars_as_steps
from icevirt.planning.meaning.equal_meaning import say_alike, with_equal_meaning
from icevirt.planning.remedies import instead, list_names, scan_fix
from icevirt.planning.schedule.balance_scans import deal_parts, pieces_of
from icevirt.remedy_notation import change, write_remedy
from icevirt.scan.contract import Policy, ScannerOptions
from icevirt.scan.elsewhere import prefixes_of
from icevirt.storage.protocol import Storage
from icevirt.tasks.scan import (
    End,
    EndsFound,
    EndsTask,
    FactsTask,
    ScanTask,
    WantedFacts,
    run_scan,
    run_scan_ends,
    run_take_facts,
)
from icevirt.tasks.scan_pieces import clear
from icevirt.tasks.source_values import Differences, Reading

_TASKS_PER_SLOT = 4
_ATTEMPTS = 3  # to take facts that another process deletes
_SHOWN = 5  # bad files in a message
_NAMED = 3  # bad files in a remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What is to be scanned, how, and into which catalog."""

    files: SourceFiles
    options: ScannerOptions
    catalog: Storage
    max_bad_files: int
    progress: Callable[[Progress], None] | None
    limits: ScanLimits = DEFAULT  # of a file; they decide nothing about the good ones
    unopened: int = 0  # files at the beginning that are only known by the catalog
    also: tuple[str, ...] = ()  # identities of scans that count, too
    known: KnownTables = field(default_factory=dict, repr=False)  # of the catalog, read already

    @property
    def identity(self) -> str:
        """A digest of what decides how a file is described: options and scanners."""
        return identity_of(self.options)

    def tolerates(self, closed: ClosedCatalog) -> bool:
        """Say whether no more files are bad than may be, and some are good."""
        return len(closed.bad) <= self.max_bad_files and len(closed.bad) < len(self.files)

    def settled(self, listed: CatalogTables | None = None) -> CatalogLookup:
        """Look up which of the files the catalog describes already, by default as it is now."""
        if listed is not None:
            with suppress(ObjectNotFoundError):  # maintenance joined parts meanwhile
                return self._look_up(listed)
        return self._look_up(None)

    def _look_up(self, listed: CatalogTables | None) -> CatalogLookup:
        writer = IndexWriter(self.catalog)
        return look_up_files(
            self.catalog,
            self.identity,
            self.files,
            self.limits,
            self.also,
            writer=writer,
            known=self.known,
            listed=listed,
        )


def begin_scan(job: Scan) -> CatalogLookup:
    """Record what is scanned and how, and look up which files the catalog describes already."""
    parts.mark(job.catalog)
    describe_scan(job.catalog, job.identity, options_of(job.options))
    known = job.settled()
    if len(known.outgrown.row):
        forget(job.catalog, known.parts, known.outgrown)
        known = job.settled()
    missing = [*job.files.at(known.missing)]
    note_asked(job.catalog, job.identity, missing)
    if found := len(job.files) - len(missing):
        tell("resumed", phase="scan", found=found, total=len(job.files), unit="files")
    return known


def scan_missing(
    executor: Executor, job: Scan, known: CatalogLookup | None = None, *, ends: int = 0
) -> int:
    """Scan the files that are not in the catalog yet; return how many that were.

    ``known`` says which those are, where the scan has begun already, and ``ends`` how many files
    were scanned then.
    """
    known = begin_scan(job) if known is None else known
    missing = [*job.files.at(known.missing)]
    todo = schema.parts_of(
        missing, identity=job.identity, attempt=known.attempt, pieces=pieces_of(job.files)
    )
    tasks = [
        ScanTask(
            parts=pile,
            options=job.options,
            catalog=job.catalog,
            access=in_force(),
            limits=job.limits,
        )
        for pile in deal_parts(
            [piece for part in todo for piece in part.pieces()],
            executor.parallelism * _TASKS_PER_SLOT,
        )
    ]
    wanted = {part.name: part for part in todo}

    def look() -> Progress:
        complete = {*map(schema.run_of, parts.complete_parts(job.catalog))}
        done = [wanted[name] for name in wanted.keys() & complete]
        files = [file for part in done for file in part.files]
        return Progress(
            phase="scan",
            done=len(files) + ends,
            total=len(missing) + ends,
            found=ends,
            unit="files",
            files=len(files),
            bytes=sum(file.size for file in files),
        )

    watch = reporter(job.progress, look)
    with describe_jobs(f"scan: {plural(len(missing), 'file')}", job.catalog.url):
        scanned = sum(executor.run(run_scan, tasks, progress=watch, storage=job.catalog))
    clear(job.catalog)
    return scanned


def close_catalog(
    executor: Executor,
    job: Scan,
    closed: ClosedCatalog | None = None,
    *,
    before: CatalogFacts | None = None,
) -> ClosedCatalog:
    """Return the facts of the scan as the files will be combined; what is lacking is taken now.

    Args:
        executor: Takes what is lacking.
        job: The scan.
        closed: The facts, where they were read already.
        before: The facts of an earlier plan of the same files, whose values are read once for both.

    Raises:
        ScanError: More files are bad than may be; they are tried again by the next build.
        InvalidInputError: The options name a variable that no file has.
        SourcesChangedError: A file changed since its scan.
    """
    closed = read_catalog(job) if closed is None else closed
    if not job.tolerates(closed):
        raise _too_many(closed.bad, len(job.files))
    reading = Reading.of(job.options, job.limits)
    known = None if before is None else before.compare
    differences = Differences(
        closed.facts, reading, known if isinstance(known, Differences) else None
    )
    facts = replace(closed.facts, compare=differences, values=differences.values)
    return replace(closed, facts=combine_facts(executor, job, facts, closed.beside))


def combine_facts(
    executor: Executor, job: Scan, facts: CatalogFacts, beside: BesideReader
) -> CatalogFacts:
    """Return the facts as the files will be combined.

    Raises:
        UnsupportedError: A variable that its policy wants referenced has to be stored.
    """

    def is_referenced(path: str) -> bool:
        return job.options.policy_of(path) is Policy.reference

    dimensions = job.options.concat_dims
    facts = with_equal_meaning(with_scalars_as_steps(facts, dimensions), dimensions)
    for _ in range(_ATTEMPTS):
        found = resolve_needs(
            facts,
            beside.read(facts.files),
            job.options,
            is_referenced,
            affordable=job.options.max_native_bytes,
        )
        if isinstance(found, CatalogFacts):
            _refuse_stored(found, is_referenced)
            # other variables are described as files have them
            told = say_alike(with_scalars_as_steps(found, dimensions), facts.alike)
            return with_equal_meaning(told, dimensions)  # which may add variables
        _take_facts(executor, job, facts, found)
    raise BuildError(
        "facts that were just taken from files are not in the catalog",
        do="Stop whatever deletes objects of the catalog, and build again.",
        catalog=job.catalog.url,
    )


def _refuse_stored(facts: CatalogFacts, is_referenced: Callable[[str], bool]) -> None:
    arrays = facts.arrays
    if arrays.form is None:
        return
    stored = np.flatnonzero(arrays.form == Form.beside)
    for code in arrays.path.find_used(arrays.path.codes[stored]).tolist():
        if is_referenced(path := arrays.path.values[code]):
            raise UnsupportedError(
                "a variable that its policy wants referenced has to be stored",
                fixes=[
                    scan_fix("its values are copied", variable_policy={path: "native"}),
                    scan_fix(f"the dataset lacks {path}", drop_variables=[path]),
                ],
                variable=path,
                cause="its values order the files",
            )


def _take_facts(executor: Executor, job: Scan, facts: CatalogFacts, lacking: LackingFacts) -> None:
    """Take facts from files, each of which is opened once, into new objects of the catalog."""
    files = facts.files
    if (lacking.file < job.unopened).any():
        raise BuildError("facts are lacking of files that are not to be opened")
    order = np.lexsort((lacking.file, files.part[lacking.file]))
    rows = lacking.file[order]
    cuts = np.flatnonzero(np.diff(files.part[rows])) + 1
    options = replace(job.options, equal=lacking.equal, tolerant=lacking.tolerant)

    def tasks() -> Iterator[FactsTask]:
        for run in np.split(order, cuts):
            yield FactsTask(
                part=files.parts[int(files.part[lacking.file[run[0]]])],
                files=tuple(_group_wanted(files, lacking, run)),
                options=options,
                catalog=job.catalog,
                access=in_force(),
                limits=job.limits,
            )

    tell("taking-facts", files=len(np.unique(rows)), facts=len(rows))
    with describe_jobs(f"facts: {plural(len(np.unique(rows)), 'file')}", job.catalog.url):
        executor.run(run_take_facts, tasks(), storage=job.catalog)


def _group_wanted(
    files: FileColumns, lacking: LackingFacts, run: NDArray[np.int64]
) -> Iterator[WantedFacts]:
    """Yield the files of a part, with the facts that are lacking of each."""
    file = lacking.file[run]
    for some in np.split(run, np.flatnonzero(np.diff(file)) + 1):
        at = int(lacking.file[some[0]])
        yield WantedFacts(
            row=int(files.row[at]),
            file=SourceFile(
                url=files.url[at],
                size=int(files.size[at]),
                etag=files.etag[at],
                last_modified=int(files.last_modified[at]),
            ),
            arrays=tuple((lacking.path[each], int(lacking.fact[each])) for each in some.tolist()),
        )


def read_catalog(job: Scan) -> ClosedCatalog:
    """Read the facts of the scan, however many files are bad.

    Raises:
        BuildError: Files are missing that were scanned.
        InvalidInputError: The options name a variable that no file has.
    """
    known = job.settled()
    if len(known.missing):
        _refuse_tampered(job, known)
        raise BuildError(
            "the catalog lacks files that were just scanned",
            do="Find and stop the process that deletes objects of the catalog, and build again.",
            catalog=job.catalog.url,
            first=job.files[int(known.missing[0])].url,
        )
    names, chosen = known.chosen
    closed = read_facts(job.catalog, job.files, names, chosen)
    _refuse_led_astray(job, closed)
    tell_bad_files(closed.bad)
    if job.tolerates(closed):
        _refuse_unknown(job.options, closed)
    else:
        forget(job.catalog, names, closed.bad_rows)
    return closed


def _refuse_tampered(job: Scan, known: CatalogLookup) -> None:
    """Refuse parts that do not hold the files which their names say: no scan makes them anew.

    Raises:
        FormatError: There is one.
    """
    missing = [*job.files.at(known.missing)]
    found = schema.parts_of(
        missing, identity=job.identity, attempt=known.attempt, pieces=pieces_of(job.files)
    )
    names = {part.name for part in found}  # but for their content
    there = [name for name in known.parts if schema.run_of(name) in names]
    if there:
        raise damage_error(
            schema.path_of("files", there[0]),
            "its rows do not match the digest in its name",
        )


def _refuse_led_astray(job: Scan, closed: ClosedCatalog) -> None:
    """Refuse what a catalog says of files that refer to others, if no scan would say it.

    Raises:
        FormatError: References lead to where the options do not let them.
    """
    if closed.facts.places is closed.facts.files.url:
        return
    own = {url.rpartition("/")[0] + "/" for url in closed.facts.files.url}
    allowed = tuple(prefixes_of(job.options.allow_references_to))
    astray = [
        place
        for place in closed.facts.places
        if not place.startswith(allowed)
        and own.isdisjoint(place[: at + 1] for at, letter in enumerate(place) if letter == "/")
    ]
    if astray:
        raise FormatError(
            "the catalog contains references into directories that are not allowed",
            do="Name another directory for the catalog, and scan again.",
            catalog=job.catalog.url,
            places=astray[:_SHOWN],
        )


def _refuse_unknown(options: ScannerOptions, closed: ClosedCatalog) -> None:
    """Refuse names of variables that no file has; one that some lack may be meant for the rest."""
    there = {*closed.facts.arrays.path.values, *closed.left_out}
    if unknown := options.unknown(there):
        fixes = [
            each
            for name in unknown[:1]
            for option in ("variables", "drop_variables")
            if name in getattr(options, option)
            for each in instead(option, name, there, of="scan_options")
        ]
        raise InvalidInputError(
            "no file has this variable",
            fixes=fixes,
            do="You can also name another variable that is there.",
            unknown=list(unknown),
            there=sorted(there),
        )


def _too_many(bad: tuple[BadFile, ...], total: int) -> ScanError:
    first = change(reason_of(bad[0].error, bad[0].url), lambda text: text.removesuffix("."))
    files = list_names([name_of_url(file.url) for file in bad], _NAMED)
    fixes: list[Fix] = []
    which = ":" if len(bad) == 1 else "; the first:"
    do = "Check that these are the files you meant."
    if len(bad) < total:
        do = f"You can also repair or remove {'it' if len(bad) == 1 else 'them'}."
        fixes = [scan_fix(f"leaves out {files}", max_bad_files=len(bad))]
    if all(each.impossible for each in bad):
        names = [*dict.fromkeys(name for each in bad for name in each.impossible)]
        lost = list_names(names, _NAMED)
        fixes.insert(0, scan_fix(f"the dataset lacks {lost}", drop_variables=names))
    unreadable = sum(each.code == StorageError.code for each in bad)  # the storage failed
    return ScanError(
        write_remedy(f"{len(bad)} of {total} files cannot be scanned{which} ", first),
        fixes=(*bad[0].fixes, *fixes),
        do=do,
        bad_files=[file.url for file in bad[:_SHOWN]],
        **({"unreadable": unreadable} if unreadable else {}),
    )


_TRIED = 64  # files from each end, among which a good one is looked for


def scan_and_infer(
    executor: Executor, job: Scan, tolerance: Mapping[str, float] | None
) -> tuple[Scan, int]:
    """Scan the files that are not in the catalog yet; infer the dimensions where none is named.

    Args:
        executor: Runs the tasks.
        job: The scan.
        tolerance: How far coordinates may differ that are the same. None: nothing is inferred, and
            the options of the scan hold.

    Returns:
        The scan with its dimensions, and the number of files scanned.
    """
    if tolerance is None or job.options.concat_dims or len(job.files) < 2:
        return job, scan_missing(executor, job)
    known = begin_scan(job)
    found = _compare_ends(executor, job, known, tolerance)
    later = job if found.dimensions is None else _along(job, found.dimensions)
    known = job.settled() if found.files else known
    scanned = found.files + scan_missing(executor, later, known, ends=found.files)
    if found.dimensions is None:  # no file near an end is good, or one ends its process
        found = _compare_ends(executor, job, job.settled(), tolerance)
    if not found.dimensions:
        found = EndsFound(dimensions=_among_all(executor, job, tolerance))
    return _along(job, found.dimensions), scanned


def _along(job: Scan, dimensions: tuple[str, ...] | None) -> Scan:
    """Return the scan along dimensions; one name is kept as it is, as where a person gives it."""
    found = dimensions or ()
    concat_dim = found if len(found) > 1 else next(iter(found), None)
    return replace(job, options=replace(job.options, concat_dim=concat_dim))


def _compare_ends(
    executor: Executor, job: Scan, known: CatalogLookup, tolerance: Mapping[str, float]
) -> EndsFound:
    """Compare the first good file and the last; those that the catalog lacks are scanned."""
    places = range(len(job.files))
    first, last = (_end(executor, job, known, order) for order in (places, places[::-1]))
    if first.parts or last.parts:
        task = EndsTask(
            ends=(first, last),
            tolerance=tuple(tolerance.items()),
            options=job.options,
            catalog=job.catalog,
            access=in_force(),
            limits=job.limits,
        )
        with describe_jobs("scan: the first and the last file", job.catalog.url):
            (found,) = executor.run(run_scan_ends, [task], storage=job.catalog)
        return found
    if first.labels is None or last.labels is None:
        return EndsFound(dimensions=None)
    return EndsFound(dimensions=differing(first.labels, last.labels, tolerance))


def _end(executor: Executor, job: Scan, known: CatalogLookup, order: range) -> End:
    """Return what the catalog says of the first good file in an order, or which it may be."""
    done = 0
    for some in chain([order[:1]], batched(order[1:], _TRIED)):
        there = [*takewhile(lambda at: known.part[at] >= 0, some)]
        facts = _facts(job, known, there)
        if facts is not None and len(facts.files):
            (labels,) = _labels_of_all(executor, job, facts.only(np.zeros(1, np.int64)))
            return End(labels=labels)
        done += len(there)
        if len(there) < len(some):
            missing = takewhile(lambda at: known.part[at] < 0, order[done:])
            return _unknown(job, known.attempt, islice(missing, _TRIED))
    return End(labels=None)


def _unknown(job: Scan, attempt: int, places: Iterable[int]) -> End:
    """Return files that the catalog does not describe, each as a part."""
    files = [job.files[at] for at in places]
    pieces = pieces_of(job.files) if pieces_of(files) else {}
    parts = (
        parts_of([file], identity=job.identity, attempt=attempt, pieces=pieces) for file in files
    )
    return End(labels=None, parts=tuple(chain.from_iterable(parts)))


def _facts(job: Scan, known: CatalogLookup, places: list[int]) -> CatalogFacts | None:
    """Read the facts of some files, of which the catalog describes all."""
    if not places:
        return None
    names, chosen = replace(known, part=known.part[places], row=known.row[places]).chosen
    files = SourceFiles(job.files[at] for at in places)
    return read_facts(job.catalog, files, names, chosen).facts


def _labels_of_all(executor: Executor, job: Scan, facts: CatalogFacts) -> list[LabelsByPath]:
    """Return the labels of files' dimensions; those that their scan did not take are taken now."""
    arrays = facts.arrays
    schemas = [ArraySchema.loads(text) for text in arrays.schema.values]
    kinds, kind = np.unique(
        np.stack([arrays.path.codes, arrays.schema.codes]), axis=1, return_inverse=True
    )
    holds = [
        holds_labels(
            arrays.path.values[path], schemas[code].dimension_names, schemas[code].data_type
        )
        for path, code in kinds.T.tolist()
    ]
    rows = np.flatnonzero(np.array(holds, np.bool_)[kind.reshape(-1)])
    facts = replace(facts, arrays=arrays.take(rows))
    along = replace(
        job.options, concat_dim=tuple(dict.fromkeys(map(paths.name, facts.arrays.path.values)))
    )
    with suppress(IcevirtError):  # the plan says what is wrong with values that cannot be taken
        beside = BesideReader(job.catalog)
        facts = combine_facts(executor, replace(job, options=along), facts, beside)
    found: list[dict[str, ComparedLabels]] = [{} for _ in range(len(facts.files))]
    for at, row in enumerate(rows.tolist()):
        if (kept := facts.arrays.labels.get(at)) is not None:
            attributes = schemas[arrays.schema.codes[row]].attributes
            labels = comparable(kept.tobytes(), kept.dtype.str, attributes)
            found[int(facts.arrays.file[at])][facts.arrays.path[at]] = labels
    return [*found]


def _among_all(executor: Executor, job: Scan, tolerance: Mapping[str, float]) -> tuple[str, ...]:
    """Compare all files that were scanned, where the first and the last say nothing."""
    known = job.settled()
    there = np.flatnonzero(known.part >= 0).tolist()
    facts = _facts(job, known, there)
    if facts is None:
        return ()
    labels = _labels_of_all(executor, job, facts)
    return of_many(labels, tolerance) or (merging(facts) if len(facts.files) > 1 else ())
