"""How a build gets from listed files to its commit, and on when it was killed on the way.

What comes before the commit lies in the build's own folder of the repository or in objects that
nothing refers to; the commit is one conditional write. So a build that is killed leaves the
repository as it was, and the same build run again finds its finished parts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from icevirt.api.arguments import (
    as_choice,
    bad_files_allowed,
    hints_of,
    identity_of,
    listed,
    outside,
)
from icevirt.api.editing import Edits
from icevirt.api.pipeline import outcome
from icevirt.api.pipeline.commit import commit, refuse_changed, refuse_losses
from icevirt.api.pipeline.events import tell
from icevirt.api.pipeline.kept_dimensions import kept_of
from icevirt.api.pipeline.phase_clock import Clock
from icevirt.api.pipeline.provenance import METADATA
from icevirt.api.pipeline.replacing import Replacing
from icevirt.api.pipeline.stages import (
    Job,
    Scan,
    closed_catalog,
    refuse_changed_targets,
    scan_missing,
    vanished,
    write_all,
)
from icevirt.api.pipeline.target import Target, digest_of
from icevirt.api.sources.inputs import Inputs
from icevirt.api.sources.named_containers import NamedContainers
from icevirt.api.sources.nested_lists import NestedSources
from icevirt.api.sources.published_urls import Publication, published
from icevirt.archive.limits import ScanLimits
from icevirt.archive.plan import BuildPlan, WriteResult
from icevirt.archive.reports.build import BuildReport, Progress
from icevirt.archive.sources import SourceFiles
from icevirt.errors import (
    BuildError,
    ObjectNotFoundError,
    ScanError,
    SourcesChangedError,
    SparkJobError,
    StorageError,
)
from icevirt.execution.memory import give_back
from icevirt.execution.process_pool import ProcessPool
from icevirt.execution.spark_session import spark_or_local
from icevirt.model.json import JSON
from icevirt.planning.combine.options import Wish
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.routing import Route, route_of
from icevirt.repo.commits.build_commit import BUILD_ID
from icevirt.scan.contract import ScanOptions
from icevirt.storage.below import Below
from icevirt.storage.protocol import Storage
from icevirt.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 3  # to write objects that somebody else deletes

KEEP_SCAN_OF = 1000
"""A refused build of fewer files takes its catalog with it; a longer scan is worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, sources apart."""

    storage: Storage
    catalog: Storage | None  # None: in the build's own folder
    branch: str
    mode: str
    allow_changes: bool
    message: str | None
    metadata: Mapping[str, Any]
    max_bad_files: int | str
    limits: ScanLimits
    options: ScanOptions
    wish: Wish
    edits: Edits
    nest: NestedSources | None
    publication: Publication
    containers: NamedContainers
    progress: Callable[[Progress], None] | None

    @property
    def choices(self) -> dict[str, JSON]:
        """What decides about the plan beside the options of the scan."""
        lasting = self.wish.dimension_rules.lasting
        return {
            "combine_attrs": self.wish.combine_attrs,
            "duplicates": self.wish.duplicates,
            "holes": self.wish.holes,
            "eras": self.wish.eras,
            "publish_as": [list(pair) for pair in self.publication.prefixes] or None,
            "containers": [list(pair) for pair in self.containers.names] or None,
            "deviating": self.wish.rules.deviating,
            "float_variables": list(self.wish.rules.float_variables) or None,
            "chunk_grid": self.wish.rules.chunk_grid,
            "labels": as_choice(self.wish.labels),
            "combine": None if self.wish.combine == "by_coords" else self.wish.combine,
            "nest": None if self.nest is None else digest_of(list(map(list, self.nest.places))),
            "regular": dict(self.wish.regular) or None,
            "edits": self.edits.choice,
            "tolerance": dict(self.wish.tolerance) or None,
            "data_vars": {name: list(each) for name, each in lasting.items()} or None,
        }


class Session:
    """What tasks run on, started when it is first needed; the time that takes is a phase."""

    def __init__(self, stack: ExitStack, clock: Clock, given: SparkSession | None) -> None:
        self._stack, self._clock, self._given = stack, clock, given
        self._started: SparkSession | ProcessPool | None = None
        self._has_started = False
        self.files: SourceFiles | None = None  # for few of them, no Spark is started

    def __call__(self) -> SparkSession | ProcessPool:
        """Return the session, or workers without one, started now if they were not."""
        if not self._has_started:
            self._start(files=self.files)
        return cast("SparkSession | ProcessPool", self._started)

    def shuffling(self) -> SparkSession:
        """Return a session of Spark, without which rows cannot be sent between tasks."""
        if not self._has_started or isinstance(self._started, ProcessPool):
            self._start(files=None)
        return cast("SparkSession", self._started)

    def _start(self, *, files: SourceFiles | None) -> None:
        with self._clock.phase("spark"):
            self._started = self._stack.enter_context(spark_or_local(self._given, files=files))
        self._has_started = True


def until_unchanged(
    request: Request, inputs: Inputs, session: Session, clock: Clock, *, rescans: int
) -> BuildReport:
    """Build, and once more each time when files changed meanwhile; unchanged ones stay scanned."""
    while True:
        with clock.phase("list"):
            files = outside(request.storage, inputs.files())
        try:
            return _attempt(request, files, session, clock)
        except SourcesChangedError as error:
            if not rescans:
                raise
            rescans -= 1
            tell("sources-changed", logging.WARNING, error=str(error), rescans_left=rescans)


def _attempt(request: Request, files: SourceFiles, session: Session, clock: Clock) -> BuildReport:
    with clock.phase("list"):
        target = Target.look(
            request.storage, branch=request.branch, group=request.wish.group, mode=request.mode
        )
    allowed = bad_files_allowed(request.max_bad_files, len(files))
    inputs = digest_of(
        __version__,
        identity_of(request.options),
        hints_of(request.options),
        request.choices,
        target.group,
        listed(files),
    )
    last = target.last_build()
    # what lies where files are published is no input, nor is what a function does: both may change
    may_change = bool(request.publication.prefixes) or request.edits.function is not None
    again = request.mode == "w" and may_change
    is_same = last is not None and outcome.inputs_of(last) == inputs
    if last is not None and is_same and not again and target.still_holds(last):
        report = outcome.already_built(target, last, clock.seconds)
        if len(report.bad_files) <= allowed and not outcome.may_scan_more(last, request.limits):
            # of a run that was killed behind its commit
            return _without_record(report, target.record(report.build_id))
    target.refuse_occupied()
    build_id = target.build_id(inputs)
    record = target.record(build_id)
    scan = Scan(
        files=files,
        options=request.options,
        catalog=record.below("catalog/") if request.catalog is None else request.catalog,
        max_bad_files=allowed,
        progress=request.progress,
        limits=request.limits,
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
        bytes=sum(file.size for file in files),
        icevirt=__version__,
    )
    session.files = files
    session()  # where Spark does not start, what an earlier run finished is kept
    try:
        report = _run(job, request, inputs, session, clock)
    except ObjectNotFoundError as error:
        # the same build may run twice at once: who is done first takes the shared work away
        raise BuildError(
            "the work of this build was taken away while it ran",
            do="If the same build ran twice at once, look whether the other one is committed;"
            " else build again.",
            missing=error.facts.get("path"),
        ) from error
    except (SparkJobError, StorageError):
        raise  # nothing is wrong with the files: what is finished is worth keeping
    except Exception as error:
        unreadable = isinstance(error, ScanError) and "unreadable" in error.facts
        if len(files) < KEEP_SCAN_OF and not unreadable:
            with suppress(StorageError):  # what stopped the build is told, not this
                target.abandon(build_id)
        raise
    return _without_record(report, record)


def _without_record(report: BuildReport, record: Below) -> BuildReport:
    """Remove the record of a build that is committed; a storage that fails now fails no build."""
    try:
        record.delete_all()
    except StorageError as error:
        left = f"the work of the build could not be removed from {record.url}: {error}"
        return replace(report, findings=(*report.findings, left))
    return report


def _written(
    session: Session,
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
            direct = route_of(plan).kind is Route.direct
            results = write_all(session() if direct else session.shuffling(), job, plan)
        with clock.phase("commit"):
            refuse_losses(plan, results)
            refuse_changed(sources)
            if referring:
                refuse_changed_targets(session, job, plan)
            # the last look of all, as somebody may collect garbage meanwhile
            if not vanished(job, results):
                return results
        tell("objects-vanished", logging.WARNING, repo=job.target.storage.url)
    raise BuildError(
        "objects that were just written are gone",
        do="Stop whatever deletes objects of this repository, and build again.",
        repo=job.target.storage.url,
    )


def _tell_plan(plan: BuildPlan) -> None:
    tell(
        "planned",
        files=len(plan.files),
        arrays=len(plan.arrays),
        route=route_of(plan).told(),
        left_out=len(plan.left_out),
    )


def _run(job: Job, request: Request, inputs: str, session: Session, clock: Clock) -> BuildReport:
    with clock.phase("scan"):
        scanned = scan_missing(session(), job.scan)
    with clock.phase("plan"):
        closed = closed_catalog(job.scan, session)
        nest = None if request.nest is None else request.nest.by_url(job.scan.files)
        wish = replace(request.wish, build_id=job.build_id, nest=nest, kept=kept_of(job.target))
        facts, applied = request.edits.applied(closed.facts, wish)
        plan = combine_eras(facts, applied)
        _tell_plan(plan)
        moved = request.publication.targets(facts, plan)
        plan = request.containers.contained(facts, published(plan, moved))
        replacing = Replacing.of(job.target, plan, request.edits.choice)
        job.target.rehearse(plan, replacing.claim)
        replacing.refuse_losses(allowed=request.allow_changes)
        told_of_group = replacing.findings()
    bad, findings = closed.bad, (*told_of_group, *(text for _, text in closed.findings))
    referring = facts.places is not facts.files.url
    del closed, facts  # as large as the plan, and nothing of it is needed any more
    job.scan.files.fold()  # while tasks run, the memory is theirs
    give_back()
    # manifests of another attempt say what was there then
    record = job.record
    if moved or request.edits.function is not None:
        record = record.below(f"items/{digest_of(listed(moved), outcome.digest_of_plan(plan))}/")
    sources = SourceFiles(chain(job.scan.files, moved)) if moved else job.scan.files
    led = tuple(each.url_prefix for each in plan.containers) if referring else ()
    writing = replace(job, record=record, led=led)
    results = _written(session, writing, plan, sources, clock, referring=referring)
    with clock.phase("commit"):
        choices = replace(request, wish=wish).choices
        told = outcome.provenance(job, plan, bad, inputs=inputs, choices=choices)
        told["kept"] = replacing.kept_attributes()
        snapshot_id = commit(
            replacing,
            results,
            message=request.message,
            metadata={**request.metadata, BUILD_ID: job.build_id, METADATA: told},
            allow_changes=request.allow_changes,
        )
    return outcome.report(
        job,
        plan,
        results,
        snapshot_id=snapshot_id,
        scanned=scanned,
        bad=bad,
        findings=findings,
        seconds=clock.seconds,
    )
