"""Run a build from listed files to its commit, and resume it after a kill.

Everything before the commit lies in the build's own folder of the repository or in objects that
nothing refers to; the commit is one conditional write. So a killed build leaves the repository
unchanged, and the same build run again finds its finished parts.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from icevirt.amounts import plural
from icevirt.api.choices import Choices, outside
from icevirt.api.commit_options import CommitOptions
from icevirt.api.dataset.events import Clock, tell
from icevirt.api.dataset.files_held import CATALOG, FilesHeld, keep_files
from icevirt.api.dataset.planning import Planner
from icevirt.api.dataset.records import (
    METADATA,
    KeptRecipe,
    as_choice,
    digest_of,
    hints_of,
    identity_of,
    keep_recipe,
    listed,
    provenance_of,
    recorded_options,
)
from icevirt.api.dataset.replacing import Replacing, kept_of
from icevirt.api.dataset.scanning import Scan, closed_catalog, scan_and_infer
from icevirt.api.dataset.tail import ends_of, leave_tail
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.writing import (
    Job,
    arrays_written,
    commit,
    files_written,
    refuse_changed,
    refuse_changed_targets,
    refuse_losses,
    vanished,
    write_all,
)
from icevirt.api.sources.inputs import NestedSources
from icevirt.api.sources.reader_urls import published
from icevirt.api.storing import StoringAgain
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.options import declared
from icevirt.archive.plan import BuildPlan, PlannedArray, WriteResult
from icevirt.archive.reports.build import (
    ArraySummary,
    BadFile,
    BuildReport,
    Opening,
    Progress,
    ReferenceCounts,
)
from icevirt.archive.scanned import ScanLimits
from icevirt.archive.sources import SourceFiles
from icevirt.errors import (
    BuildError,
    ConflictError,
    FormatError,
    ObjectNotFoundError,
    PlanChangedError,
    ScanError,
    ScanMemoryError,
    ScanTimeoutError,
    SourcesChangedError,
    SparkJobError,
    StorageError,
)
from icevirt.execution.executor import Executor, current, described, give_back, job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of, work_of
from icevirt.model.json import JSON
from icevirt.model.repo_info import SnapshotSummary
from icevirt.objects.authorize import entry_of
from icevirt.planning.axes.axis_ends import labels_at_ends
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import without_values
from icevirt.planning.reader_support import readers_of_json
from icevirt.planning.schedule.write_tasks import route_of
from icevirt.planning.stored_form import recorded_forms
from icevirt.repo.commits.build_commit import BUILD_ID
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.options import bad_files_allowed
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.scan import CopyScansTask, copy_scans, scans_to_copy
from icevirt.version import __version__
from icevirt.versioning import repo_updates

if TYPE_CHECKING:
    from icevirt.api.dataset.writing import Job


_ATTEMPTS = 3  # to write objects that another process deletes

_COPIED = 256  # objects that are copied faster than an executor is asked

_RESCANS = 3  # of files that change while a build runs

KEEP_SCAN_OF = 1000
"""A refused build of fewer files takes its catalog with it; a longer scan is worth keeping."""


class Listing(Protocol):
    """The sources of a build."""

    def files(self) -> SourceFiles:
        """List the files, also when some changed since they were listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the caller requested, except the sources."""

    storage: Storage
    catalog: Storage | None  # None: in the build's own folder
    mode: str
    commit: CommitOptions
    choices: Choices
    options: ScannerOptions
    spec: CombineSpec
    nest: NestedSources | None
    plan: str  # digest of the plan that is to be built; "" for whatever plan the files make
    progress: Callable[[Progress], None] | None
    held: FilesHeld | None = None  # which of the files the dataset holds already; None: none
    recipe: KeptRecipe | None = None  # that is kept with the dataset
    about: Mapping[str, JSON] = field(default_factory=dict)  # what the snapshot says beside it
    absent: frozenset[str] = frozenset()  # URLs of files whose steps stay, without their values
    expected: frozenset[str] = frozenset()  # kinds of changes that stop no build
    also: tuple[str, ...] = ()  # identities of earlier scans whose descriptions of files count
    follows: str | None = None  # snapshot of the build that the files go on from; None: any

    @property
    def recorded(self) -> dict[str, JSON]:
        """What decides about the plan beside the options of the scan, as a snapshot records it."""
        lasting = self.spec.dimension_rules.lasting
        combine = self.choices.combine
        spacing = self.spec.spacing or combine.spacing or {}
        chosen = {each.name: getattr(combine, each.name) for each in declared(type(combine))}
        for name in ("rename", "attrs", "preprocess", "max_native_bytes"):
            chosen.pop(name, None)  # the edits hold the first three; the last changes no plan
        resolved: dict[str, JSON] = {
            "publish_as": [list(pair) for pair in self.commit.publication.prefixes],
            "containers": [list(pair) for pair in self.commit.named_containers.names],
            "labels": as_choice(self.spec.labels),
            "nest": None if self.nest is None else digest_of(list(map(list, self.nest.places))),
            "spacing": dict(spacing) if isinstance(spacing, Mapping) else spacing,
            "edits": self.choices.edits.choice,
            "tolerance": dict(self.spec.tolerance),
            "data_vars": {name: list(each) for name, each in lasting.items()},
            "absent": sorted(self.absent) or None,
        }
        return {name: value for name, value in {**chosen, **resolved}.items() if value is not None}

    def digest(self, group: str, files: str) -> str:
        """Return a digest of all that a build is made of, given that of its files."""
        options = self.options
        parts = identity_of(options), hints_of(options), self.recorded
        return digest_of(__version__, *parts, group, files)

    def present(
        self, facts: CatalogFacts, spec: CombineSpec, dimensions: Sequence[str]
    ) -> tuple[CatalogFacts, CombineSpec]:
        """Return facts and spec of a plan, in which absent files have no values."""
        return without_values(facts, spec, self.absent, dimensions)

    def along(self, options: ScannerOptions) -> Request:
        """Return the request with the dimensions that were inferred."""
        spec = self.choices.spec(options.concat_dims, group=self.spec.group)
        return replace(self, options=options, spec=spec)


class ExecutorStarter:
    """What tasks run on, started when it is first needed; the time that takes is a phase."""

    def __init__(self, stack: ExitStack, clock: Clock, choice: ExecutorChoice) -> None:
        self._stack, self._clock, self._choice = stack, clock, choice
        self._started: Executor | None = None

    def start(self, files: SourceFiles, *written: Storage) -> Executor:
        """Return the executor, started now if it was not, to suit the files.

        Args:
            files: What is scanned.
            written: Storages that executors of a cluster must reach.
        """
        if self._started is None:
            with self._clock.phase("executor"):
                found = executor_of(self._choice, work=work_of(files))
                self._started = self._stack.enter_context(found)
            check_before_first(self._started, ClusterNeeds.of(files, *written))
        return self._started

    @property
    def choice(self) -> ExecutorChoice:
        """The executor that was started, else the caller's choice."""
        return self._choice if self._started is None else self._started


def until_unchanged(
    request: Request, inputs: Listing, starter: ExecutorStarter, clock: Clock
) -> BuildReport:
    """Build, and once more each time when files changed meanwhile; unchanged ones stay scanned."""
    rescans = _RESCANS if request.commit.rescan_changed else 0
    while True:
        with clock.phase("list"):
            files = outside(request.storage, inputs.files())
        try:
            return _attempt(request, files, starter, clock)
        except SourcesChangedError as error:
            if not rescans:
                raise
            rescans -= 1
            tell("sources-changed", logging.WARNING, error=str(error), rescans_left=rescans)


def _attempt(
    request: Request, files: SourceFiles, starter: ExecutorStarter, clock: Clock
) -> BuildReport:
    with clock.phase("list"):
        target = Target.look(
            request.storage,
            branch=request.commit.branch,
            group=request.spec.group,
            mode=request.mode,
        )
    how = request.choices
    limits = how.scan.limits
    held = request.held
    new = len(files) if held is None else len(files) - held.count
    allowed = bad_files_allowed(how.scan.max_bad_files, new) + (0 if held is None else held.bad)
    of_files = digest_of(listed(files))
    inputs = request.digest(target.group, of_files)
    last = target.last_build()
    _refuse_overtaken(request, last)
    if (found := _already_built(request, target, last, inputs, allowed, clock)) is not None:
        return found
    if last is None or files_of(last) != of_files or how.inferring is None:
        target.refuse_occupied()  # else the same may be there: inferred dimensions say
    build_id = target.build_id(inputs)
    record = target.record(build_id)
    scan = Scan(
        files=files,
        options=request.options,
        catalog=record.below("catalog/") if request.catalog is None else request.catalog,
        max_bad_files=allowed,
        progress=request.progress,
        limits=limits,
        also=request.also,
    )
    job = Job(build_id=build_id, scan=scan, target=target, record=record)
    tell(
        "build-begun",
        repo=target.storage.url,
        branch=target.branch,
        group=target.group,
        build_id=build_id,
        catalog=scan.catalog.url,
        files=len(files),
        bytes=int(files.sizes.sum()),
        icevirt=__version__,
    )
    clock.kept = record.url
    with job_tags(target.storage.url, build_id):
        # if it does not start, what an earlier run finished is kept
        executor = starter.start(files, record, scan.catalog)
    try:
        with job_tags(target.storage.url, build_id):
            report = _run(job, request, last, of_files, executor, clock)
    except ObjectNotFoundError as error:
        # the same build may run twice at once: who is done first takes the shared work away
        raise BuildError(
            "the work folder of this build was deleted while it ran",
            do="If the same build ran twice at once, check whether the other one committed; else "
            "build again.",
            missing=error.facts.get("path"),
        ) from error
    except (SparkJobError, StorageError):
        raise  # nothing is wrong with the files: what is finished is worth keeping
    except Exception as error:
        unreadable = isinstance(error, ScanError) and "unreadable" in error.facts
        if len(files) < KEEP_SCAN_OF and not unreadable:
            with suppress(StorageError):  # the error that stopped the build is raised
                target.abandon(build_id)
        raise
    clock.kept = ""
    if request.catalog is None:
        report = _with_scans(report, executor, scan.catalog, Below(request.storage, CATALOG))
    return without_record(report, record)


def _with_scans(
    report: BuildReport, executor: Executor, scanned: Storage, kept: Storage
) -> BuildReport:
    """Keep what was scanned for updates, appends and windows; a failure now fails no build."""
    try:
        for paths in scans_to_copy(scanned, kept):
            size = max(_COPIED, -(-len(paths) // (4 * executor.parallelism)))
            tasks = [
                CopyScansTask(source=scanned, into=kept, paths=paths[at : at + size])
                for at in range(0, len(paths), size)
            ]
            if len(tasks) > 1:
                with described(f"keep scans: {plural(len(paths), 'object')}", kept.url):
                    executor.run(copy_scans, tasks, storage=kept)
            elif tasks:
                copy_scans(tasks[0])
    except (StorageError, FormatError, SparkJobError) as error:
        left = f"the scans were not kept, so that a later update scans the files again: {error}"
        return replace(report, findings=(*report.findings, left))
    return report


def _refuse_overtaken(request: Request, last: SnapshotSummary | None) -> None:
    """Refuse to go on from the files of a build that is no longer the last one.

    Raises:
        ConflictError: Another one committed since its files were looked at.
    """
    if request.follows is not None and (last is None or str(last.id) != request.follows):
        raise ConflictError(
            "another build of this group committed meanwhile",
            do="Do the same again, on what it committed.",
            expected=request.follows,
            ours=request.commit.message or "a build",
            theirs="" if last is None else repo_updates.line_of(last),
        )


def _already_built(  # noqa: PLR0917 - a build, and the last one
    request: Request,
    target: Target,
    last: SnapshotSummary | None,
    inputs: str,
    allowed: int,
    clock: Clock,
) -> BuildReport | None:
    """Return the report of the last build where it was of the same, and nothing came behind."""
    choices = request.choices
    # what lies where files are published is no input, nor is what a function does: both may change
    may_change = bool(request.commit.publish_as) or choices.edits.function is not None
    if last is None or inputs not in inputs_of(last):
        return None
    if (request.mode == "w" and may_change) or not target.still_holds(last):
        return None
    report = already_built(target, last, clock.seconds)
    if len(report.bad_files) > allowed or may_scan_more(last, choices.scan.limits):
        return None
    # of a run that was killed behind its commit
    return without_record(report, target.record(record_of(last)))


def without_record[R: BuildReport](report: R, record: Below) -> R:
    """Remove the record of a build that is committed; a storage that fails now fails no build."""
    try:
        record.delete_all()
    except StorageError as error:
        left = f"the work of the build could not be removed from {record.url}: {error}"
        return replace(report, findings=(*report.findings, left))
    return report


def written(
    executor: Executor,
    job: Job,
    plan: BuildPlan,
    sources: SourceFiles,
    clock: Clock,
    *,
    referring: bool,
) -> list[WriteResult]:
    """Write all objects of the plan, those again that vanish until the sources are looked at.

    Files that are ``referring`` to others lead there, and these are looked at too.

    Raises:
        BuildError: References are missing, or objects vanish faster than they are written.
        SourcesChangedError: Files changed since their scan.
    """
    for _ in range(_ATTEMPTS):
        with clock.phase("write"):
            results = write_all(executor, job, plan)
        with clock.phase("commit"):
            refuse_losses(plan, results)
            refuse_changed(sources)
            if referring:
                refuse_changed_targets(executor, job, plan)
            # the last look of all, as another process may collect garbage meanwhile
            if not vanished(job, results):
                return results
        tell("objects-vanished", logging.WARNING, repo=job.target.storage.url)
    raise BuildError(
        "objects that were just written have disappeared",
        do="Find and stop the process that deletes objects of this repository, and build again.",
        repo=job.target.storage.url,
    )


def _refuse_another_plan(request: Request, plan: BuildPlan) -> None:
    """Refuse to build another plan than the one that the caller looked at."""
    if request.plan and request.plan != digest_of_plan(plan):
        raise PlanChangedError(
            "the files make another plan than the one that is to be written",
            do="Plan again, with repo= for a repository whose last build decides which variables"
            " have a dimension; or build without a plan.",
            repo=request.storage.url,
        )


def _run(  # noqa: PLR0915, PLR0917 - a build from end to end, and the last one
    job: Job,
    request: Request,
    last: SnapshotSummary | None,
    of_files: str,
    executor: Executor,
    clock: Clock,
) -> BuildReport:
    with clock.phase("scan"):
        scan, scanned = scan_and_infer(executor, job.scan, request.choices.inferring)
        asked = {
            "asked": request.digest(job.target.group, of_files),
            "listing": of_files,
            "record": job.build_id,
        }
        request = request.along(scan.options)
        inputs = request.digest(job.target.group, of_files)
        if inputs != asked["asked"]:
            allowed = scan.max_bad_files
            found = _already_built(request, job.target, last, inputs, allowed, clock)
            if found is not None:
                return found
        job.target.refuse_occupied()
        job = replace(job, scan=scan, build_id=job.target.build_id(inputs))
        current().tag(job.build_id)
    with clock.phase("plan"):
        closed = closed_catalog(executor, job.scan)
        nest = None if request.nest is None else request.nest.by_url(job.scan.files)
        spec = replace(request.spec, build_id=job.build_id, nest=nest, kept=kept_of(job.target))
        facts, spec = request.present(closed.facts, spec, job.scan.options.concat_dims)
        closed = replace(closed, facts=facts)
        planner = Planner(executor=executor, scan=job.scan, choices=request.choices, spec=spec)
        facts, _, plan = planner.plan(closed)
        labels = labels_at_ends(plan, facts)
        tell(
            "planned",
            files=len(plan.files),
            arrays=len(plan.arrays),
            route=route_of(plan).describe(),
            left_out=len(plan.left_out),
        )
        moved = request.commit.publication.targets(facts, plan)
        plan = request.commit.named_containers.contained(facts, published(plan, moved))
        _refuse_another_plan(request, plan)
        replacing = Replacing.of(job.target, plan, request.choices.edits.choice)
        job.target.rehearse(plan, replacing.claim)
        replacing.refuse_losses(allowed=request.commit.allow_changes, expected=request.expected)
        storing = StoringAgain.of(job.target, plan)
        group_findings = (*replacing.findings(), *storing.findings)
    ends = ends_of(plan, facts.files, facts.arrays)
    bad, findings = closed.bad, (*group_findings, *closed.findings)
    referring = facts.places is not facts.files.url
    del closed, facts  # as large as the plan, and nothing of it is needed any more
    job.scan.files.fold()  # while tasks run, the memory is theirs
    give_back()
    # manifests of another attempt say what was there then
    record = job.record
    if moved or request.choices.edits.function is not None:
        record = record.below(f"items/{digest_of(listed(moved), digest_of_plan(plan))}/")
    sources = SourceFiles(chain(job.scan.files, moved)) if moved else job.scan.files
    if request.held is not None:
        sources = request.held.others(sources)
    led = tuple(each.url_prefix for each in plan.containers) if referring else ()
    writing = replace(job, record=record, led=led)
    results = written(executor, writing, plan, sources, clock, referring=referring)
    stored = storing.stored(executor, clock, arrays_written(plan, results), files_written(results))
    with clock.phase("commit"):
        choices = replace(request, spec=spec).recorded
        recorded = provenance(job, plan, bad, inputs=inputs, asked=asked, choices=choices)
        recorded["kept"] = replacing.kept_attributes()
        recorded |= {**request.about, "ends": labels}
        if storing.forms:
            recorded["stored"] = recorded_forms(storing.forms)
        if request.recipe is not None:
            keep_recipe(job.target.storage, request.recipe)
            recorded["recipe"] = request.recipe.digest
        pieces = keep_files(job.target.storage, of_files, job.scan.files, request.held)
        recorded["tail"] = leave_tail(job.target.storage, job.scan, plan, ends, pieces)
        snapshot_id = commit(
            replacing,
            stored.arrays,
            stored.manifests,
            message=request.commit.message,
            metadata={
                **(request.commit.metadata or {}),
                BUILD_ID: job.build_id,
                METADATA: recorded,
            },
            allow_changes=request.commit.allow_changes,
            expected=request.expected,
        )
    report = report_of(
        job,
        plan,
        results,
        snapshot_id=snapshot_id,
        scanned=scanned,
        bad=bad,
        findings=findings,
        executor=executor.name,
        seconds=clock.seconds,
    )
    return stored.reported(report)


def inputs_of(snapshot: SnapshotSummary) -> tuple[str, str]:
    """Return digests of what a build was made of, with and without what was inferred."""
    return _metadata_text(snapshot, "inputs"), _metadata_text(snapshot, "asked")


def files_of(snapshot: SnapshotSummary) -> str:
    """Return the digest of the files that a build was made of."""
    return _metadata_text(snapshot, "listing")


def record_of(snapshot: SnapshotSummary) -> str:
    """Return the id under which a build kept what it finished."""
    return _metadata_text(snapshot, "record") or _metadata_text(snapshot, "build_id")


def may_scan_more(snapshot: SnapshotSummary, limits: ScanLimits) -> bool:
    """Say whether a build left out files that lower limits than these stopped."""
    stopped = {bad.code for bad in _bad_files(snapshot)}
    seconds, memory = (provenance_of(snapshot) or {}).get("limits", (0, 0))
    return (ScanTimeoutError.code in stopped and seconds < limits.seconds) or (
        ScanMemoryError.code in stopped and memory < limits.memory
    )


def _metadata_text(snapshot: SnapshotSummary, name: str) -> str:
    return str((provenance_of(snapshot) or {}).get(name, ""))


def provenance(
    job: Job,
    plan: BuildPlan,
    bad: Sequence[BadFile],
    *,
    inputs: str,
    asked: Mapping[str, str],
    choices: Mapping[str, JSON],
) -> dict[str, Any]:
    """Return what the snapshot says of the build, so that it can be found again and repeated."""
    catalog = job.scan.catalog.url
    return {
        "build_id": job.build_id,
        "inputs": inputs,  # digest of versions, options and files
        **asked,  # the digest and the build id before dimensions were inferred; that of the files
        "plan": digest_of_plan(plan),
        "group": job.target.group,
        "icevirt": __version__,
        "scanners": recorded_options(job.scan.options)["scanners"],  # versions by name
        "scan": {name: value for name, value in asdict(job.scan.options).items() if value},
        "combine": {name: value for name, value in choices.items() if value is not None},
        "catalog": None if catalog.startswith(job.record.url) else catalog,
        "files": len(plan.files),
        "arrays": len(plan.arrays),
        "references": sum(array.expected for array in plan.arrays),
        "bytes": _bytes(plan),
        "limits": [job.scan.limits.seconds, job.scan.limits.memory],  # of the scan of a file
        "eras": _eras(plan),
        **({} if _as_one(plan) else {"eras_open_as_one": False}),
        "bad_files": [[each.url, each.code, each.error] for each in bad],
        "left_out": [[each.url, each.kept] for each in plan.left_out],
    }


def _bytes(plan: BuildPlan) -> list[int]:
    """Return the bytes that references read, and those that are stored."""
    counts = sum((array.written for array in plan.arrays), ReferenceCounts())
    return [counts.bytes_referenced, counts.bytes_stored]


def _eras(plan: BuildPlan) -> int:
    return 1 if plan.eras is None else plan.eras.count


def _as_one(plan: BuildPlan) -> bool:
    return plan.eras is None or plan.eras.as_one


def digest_of_plan(plan: BuildPlan) -> str:
    """Return a digest of files with their checksums, arrays and where each file's box lies."""
    digest = hashlib.blake2b(digest_size=16)
    files = plan.files
    for column in (files.url.data, files.etag.data, files.size, files.last_modified):
        digest.update(np.ascontiguousarray(column).tobytes())
    for array in plan.arrays:
        digest.update(array.path.encode() + array.zarr_json)
        skips = () if array.skips is None else (array.skips,)
        for column in (array.files, array.starts, array.lengths, *skips):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _bad_files(snapshot: SnapshotSummary) -> tuple[BadFile, ...]:
    bad = (provenance_of(snapshot) or {}).get("bad_files", ())
    return tuple(BadFile(url=url, code=code, error=error) for url, code, error in bad)


def report_of(
    job: Job,
    plan: BuildPlan,
    results: list[WriteResult],
    *,
    snapshot_id: str,
    scanned: int,
    bad: tuple[BadFile, ...],
    findings: tuple[str, ...],
    executor: str,
    seconds: dict[str, float],
) -> BuildReport:
    """Return the report of a build that was committed."""
    return BuildReport(
        repo=job.target.storage.url,
        branch=job.target.branch,
        group=job.target.group,
        snapshot_id=snapshot_id,
        build_id=job.build_id,
        already_built=False,
        files_scanned=scanned,
        files_reused=len(job.scan.files) - scanned,
        bad_files=bad,
        arrays=_summaries(plan, results),
        manifests=sum(result.manifest_id is not None for result in results),
        manifest_bytes=sum(result.size_bytes for result in results),
        containers=(containers := tuple(map(entry_of, plan.containers))),
        opening=Opening(authorization=dict.fromkeys(containers)),  # of files that were planned
        findings=(*plan.notes, *findings),
        eras=_eras(plan),
        opens_as_one=_as_one(plan),
        executor=executor,
        seconds=seconds,
    )


def already_built(
    target: Target, snapshot: SnapshotSummary, seconds: dict[str, float]
) -> BuildReport:
    """Return the report of a build that the branch holds already."""
    repo = Repository.open(target.storage)
    held = summary(repo, snapshot_id=str(snapshot.id))
    below = target.group.rstrip("/") + "/"
    infos = repo.list_manifest_files(str(snapshot.id))
    return BuildReport(
        repo=target.storage.url,
        branch=target.branch,
        group=target.group,
        snapshot_id=str(snapshot.id),
        build_id=_metadata_text(snapshot, "build_id"),
        already_built=True,
        files_scanned=0,
        files_reused=int(_metadata_text(snapshot, "files") or 0),
        bad_files=_bad_files(snapshot),
        arrays=tuple(array for array in held.arrays if array.path.startswith(below)),
        manifests=len(infos),
        manifest_bytes=sum(info.size_bytes for info in infos),
        containers=held.containers,
        findings=("nothing was committed: the branch already holds this build",),
        eras=int(_metadata_text(snapshot, "eras") or 1),
        opens_as_one=(provenance_of(snapshot) or {}).get("eras_open_as_one", True) is not False,
        seconds=seconds,
    )


def _summaries(plan: BuildPlan, results: list[WriteResult]) -> tuple[ArraySummary, ...]:
    counts: dict[bytes, ReferenceCounts] = defaultdict(ReferenceCounts)
    manifests: dict[bytes, int] = defaultdict(int)
    for result in results:
        for window in (each for each in result.windows if not each.is_empty):
            counts[window.node_id] += window.references
            manifests[window.node_id] += 1
    return tuple(
        ArraySummary(
            path=array.path,
            data_type=data_type_of(array),
            shape=array.shape,
            chunk_shape=array.chunk_extents,
            dimension_names=array.schema.dimension_names,
            references=counts[bytes(array.node_id)],
            manifests=manifests[bytes(array.node_id)],
            readers=readers_of_json(array.zarr_json),
        )
        for array in plan.arrays
    )


def data_type_of(array: PlannedArray) -> str:
    """Return the data type of an array as text."""
    kind = array.schema.data_type
    return kind if isinstance(kind, str) else json.dumps(kind)
