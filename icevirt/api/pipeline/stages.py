"""Run the stages of a build: scan what is missing, and write what is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from icevirt.api.arguments import identity_of, recorded_options
from icevirt.api.pipeline.events import tell, tell_bad_files
from icevirt.api.pipeline.target import Target
from icevirt.archive import catalog as schema
from icevirt.archive.facts import CatalogFacts, FileColumns
from icevirt.archive.joining import Form
from icevirt.archive.plan import BuildPlan, FileRows, ManifestTask, WriteResult
from icevirt.archive.reports.build import BadFile, Progress, reason_of
from icevirt.archive.reports.card import plural
from icevirt.archive.scanned import SourceFile
from icevirt.archive.shares import DEFAULT, ScanLimits
from icevirt.archive.sources import SourceFiles
from icevirt.catalog import parts
from icevirt.catalog.facts_beside import BesideReader
from icevirt.catalog.facts_reader import ClosedCatalog, read_facts
from icevirt.catalog.lookup import CatalogLookup, forget, settled
from icevirt.catalog.parquet import damaged
from icevirt.catalog.part_index import IndexWriter
from icevirt.catalog.scan_notes import describe_scan, note_asked
from icevirt.errors import (
    BuildError,
    Fix,
    FormatError,
    InvalidInputError,
    ScanError,
    SourcesChangedError,
    StorageError,
    UnsupportedError,
)
from icevirt.execution.executor import Executor, described, reporter
from icevirt.ids import ObjectId12
from icevirt.objects.source_access import in_force
from icevirt.planning.combine.needs import LackingFacts, resolved
from icevirt.planning.remedies import instead, listed, scan_fix
from icevirt.planning.schedule.balance_scans import dealt, pieces_of
from icevirt.planning.schedule.write_tasks import Route, bundles, drafts, route_of, write_items
from icevirt.planning.schedule.write_tasks import dealt as dealt_items
from icevirt.repo.layout import chunk, manifest
from icevirt.scan.contract import Policy, ScannerOptions
from icevirt.scan.elsewhere import prefixes_of
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.compare_files import TargetTask, look_at_targets
from icevirt.tasks.scan import FactsTask, ScanTask, WantedFacts, run_scan, run_take_facts
from icevirt.tasks.scan_pieces import clear
from icevirt.tasks.shuffle import Needs, run_map
from icevirt.tasks.source_values import Differences, Reading
from icevirt.tasks.write_manifests import (
    PackedTasks,
    WriteTask,
    record_path,
    recorded_chunks,
    run_write,
    run_write_shuffled,
)
from icevirt.wire.manifests.encoding import ManifestEncoding

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

    @property
    def identity(self) -> str:
        """A digest of what decides how a file is described: options and scanners."""
        return identity_of(self.options)

    def tolerates(self, closed: ClosedCatalog) -> bool:
        """Say whether no more files are bad than may be, and some are good."""
        return len(closed.bad) <= self.max_bad_files and len(closed.bad) < len(self.files)

    def settled(self) -> CatalogLookup:
        """Look up which of the files the catalog describes already."""
        writer = IndexWriter(self.catalog)
        return settled(
            self.catalog, self.identity, self.files, self.limits, self.also, writer=writer
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One build: its scan, where it goes, and where it keeps what is finished."""

    build_id: str
    scan: Scan
    target: Target
    record: Below
    led: tuple[str, ...] = ()  # URL prefixes into which references of the files may lead


def begin_scan(job: Scan) -> CatalogLookup:
    """Record what is scanned and how, and look up which files the catalog describes already."""
    parts.mark(job.catalog)
    describe_scan(job.catalog, job.identity, recorded_options(job.options))
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
        for pile in dealt(
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
    with described(f"scan: {plural(len(missing), 'file')}", job.catalog.url):
        scanned = sum(executor.run(run_scan, tasks, progress=watch, storage=job.catalog))
    clear(job.catalog)
    return scanned


def closed_catalog(
    executor: Executor, job: Scan, closed: ClosedCatalog | None = None
) -> ClosedCatalog:
    """Return the facts of the scan as the files will be combined; what is lacking is taken now.

    ``closed`` holds the facts where they were read already.

    Raises:
        ScanError: More files are bad than may be; they are tried again by the next build.
        InvalidInputError: The options name a variable that no file has.
        SourcesChangedError: A file changed since its scan.
    """
    closed = scanned_catalog(job) if closed is None else closed
    if not job.tolerates(closed):
        raise _too_many(closed.bad, len(job.files))
    reading = Reading(group=job.options.group, limits=job.limits, access=in_force())
    differences = Differences(closed.facts, reading)
    facts = replace(closed.facts, compare=differences, values=differences.values)
    return replace(closed, facts=combined_facts(executor, job, facts, closed.beside))


def combined_facts(
    executor: Executor, job: Scan, facts: CatalogFacts, beside: BesideReader
) -> CatalogFacts:
    """Return the facts as the files will be combined.

    Raises:
        UnsupportedError: A variable that its policy wants referenced has to be stored.
    """

    def is_referenced(path: str) -> bool:
        return job.options.policy_of(path) is Policy.reference

    for _ in range(_ATTEMPTS):
        found = resolved(
            facts,
            beside.read(facts.files),
            job.options,
            is_referenced,
            affordable=job.options.max_native_bytes,
        )
        if isinstance(found, CatalogFacts):
            _refuse_stored(found, is_referenced)
            return found
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
    for code in arrays.path.used(arrays.path.codes[stored]).tolist():
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
                files=tuple(_wanted_of(files, lacking, run)),
                options=options,
                catalog=job.catalog,
                access=in_force(),
                limits=job.limits,
            )

    tell("taking-facts", files=len(np.unique(rows)), facts=len(rows))
    with described(f"facts: {plural(len(np.unique(rows)), 'file')}", job.catalog.url):
        executor.run(run_take_facts, tasks(), storage=job.catalog)


def _wanted_of(
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


def scanned_catalog(job: Scan) -> ClosedCatalog:
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
        raise damaged(
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
    first = reason_of(bad[0].error, bad[0].url).rstrip(".")
    names = listed([file.url.rpartition("/")[2] for file in bad], _NAMED)
    fixes: list[Fix] = []
    which = ":" if len(bad) == 1 else "; the first:"
    do = "Check that these are the files you meant."
    if len(bad) < total:
        do = f"You can also repair or remove {'it' if len(bad) == 1 else 'them'}."
        fixes = [scan_fix(f"leaves out {names}", max_bad_files=len(bad))]
    unreadable = sum(each.code == StorageError.code for each in bad)  # the storage failed
    return ScanError(
        f"{len(bad)} of {total} files cannot be scanned{which} {first}",
        fixes=(*bad[0].fixes, *fixes),
        do=do,
        bad_files=[file.url for file in bad[:_SHOWN]],
        **({"unreadable": unreadable} if unreadable else {}),
    )


def write_all(executor: Executor, job: Job, plan: BuildPlan) -> list[WriteResult]:
    """Write every object of the plan that an earlier attempt did not leave."""
    todo = tuple(drafts(plan))
    config = job.target.config

    def task(items: Iterable[Sequence[ManifestTask]]) -> WriteTask:
        return WriteTask(
            parcels=tuple(map(PackedTasks.of, items)),
            catalog=job.scan.catalog,
            repo=job.target.storage,
            record=job.record,
            inline_threshold=config.inline_threshold,
            encoding=ManifestEncoding.of_config(config.document),
            led=job.led,
            named=tuple((each.url_prefix, each.name) for each in plan.containers if each.name),
            reading=Reading(
                group=job.scan.options.group, limits=job.scan.limits, access=in_force()
            ),
        )

    expected = {record_path(draft.number): draft.expected for draft in todo}

    def look() -> Progress:
        done = [expected[info.path] for info in job.record.list("items") if info.path in expected]
        return Progress(
            phase="write",
            done=len(done),
            total=len(todo),
            unit="manifests",
            references=sum(done),
        )

    watch = reporter(job.scan.progress, look)
    stage = described(f"write: {plural(len(todo), 'manifest')}")
    if route_of(plan).kind is Route.direct:
        files = plan.files if plan.origin is not None else FileRows.of(plan.files)
        # made one at a time, for all of them together may be more than a driver can hold
        piles = dealt_items(plan, todo, executor.parallelism)
        tasks = (task(bundles(plan, pile, files)) for pile in piles)
        with stage:
            written = executor.run(run_write, tasks, progress=watch, storage=job.record)
    else:
        needs = Needs()
        for number, item in enumerate(write_items(plan)):
            needs.add(number, item)
        maps = needs.tasks(job.scan.catalog, executor.parallelism * _TASKS_PER_SLOT)
        each = (task([[item]]) for item in write_items(plan))
        with stage:
            written = executor.shuffle(
                run_map, maps, run_write_shuffled, each, progress=watch, storage=job.record
            )
    return sorted((result for pile in written for result in pile), key=lambda each: each.number)


def refuse_changed_targets(executor: Executor, job: Job, plan: BuildPlan) -> None:
    """Look once more at files that the plan's files refer to.

    Raises:
        SourcesChangedError: Some changed or are gone.
    """
    files = FileRows.of(plan.files)
    paths = tuple(
        {
            path
            for array in plan.arrays
            # made of references in any file, not of values beside them
            if array.form is None or (array.form != Form.beside).any()
            for path in array.paths_in_files
        }
    )
    order = np.argsort(files.part, kind="stable")
    cuts = np.flatnonzero(np.diff(files.part[order])) + 1
    tasks = [
        TargetTask(files=files.take(rows), paths=paths, catalog=job.scan.catalog, access=in_force())
        for rows in np.split(order, cuts)
    ]
    with described(f"recheck: {plural(len(files), 'file')}"):
        found = executor.run(look_at_targets, tasks, storage=job.record)
    if changed := sum(each.changed for each in found):
        how = {url: text for each in found for url, text in each.how.items()}
        raise SourcesChangedError(
            f"{changed} of {sum(each.looked for each in found)} referenced files changed since the "
            "scan",
            do="Build again when they no longer change (with a new catalog if you keep one); "
            "nothing was committed.",
            files=dict(islice(how.items(), _SHOWN)),
        )


def vanished(job: Job, results: Sequence[WriteResult]) -> bool:
    """Say whether objects that were written are not there any more."""
    storage = job.target.storage
    sizes = {info.path: info.size for info in storage.list("manifests")}
    if any(
        sizes.get(manifest(ObjectId12(result.manifest_id))) != result.size_bytes
        for result in results
        if result.manifest_id is not None
    ):
        return True
    stored = [result for result in results if any(w.references.native for w in result.windows)]
    if not stored:
        return False
    chunks = {info.path for info in storage.list("chunks")}
    return any(
        chunk(ObjectId12(key)) not in chunks
        for result in stored
        for key in recorded_chunks(job.record, result.number)
    )
