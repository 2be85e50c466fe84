"""Run a build from listed files to its commit, and resume it after a kill.

Everything before the commit lies in the build's own folder of the repository or in objects that
nothing refers to; the commit is one conditional write. So a killed build leaves the repository
unchanged, and the same build run again finds its finished parts.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import numpy as np

from icevirt.amounts import plural
from icevirt.api.choices import outside
from icevirt.api.dataset.change import DatasetChange, Request
from icevirt.api.dataset.files_held import CATALOG, keep_files
from icevirt.api.dataset.planning import hold_against, plan_files
from icevirt.api.dataset.records import (
    digest_of,
    identify_files,
    keep_recipe,
    options_of,
    provenance_of,
)
from icevirt.api.dataset.reports import count_eras, report_of, report_on
from icevirt.api.dataset.scanning import scan_and_infer
from icevirt.api.dataset.tail import ends_of, leave_tail
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.writing import (
    Job,
    arrays_of,
    commit,
    files_of,
    have_vanished,
    refuse_changed,
    refuse_changed_targets,
    refuse_losses,
    write_all,
)
from icevirt.api.events import Clock, tell
from icevirt.api.storing import StoredArrays, StoringAgain
from icevirt.archive.plan import BuildPlan, WriteResult
from icevirt.archive.reports.build import (
    BadFile,
    BuildReport,
    ReferenceCounts,
)
from icevirt.archive.scanned import ScanLimits
from icevirt.archive.sources import SourceFiles
from icevirt.errors import (
    BuildError,
    ConflictError,
    FormatError,
    IcevirtError,
    ObjectNotFoundError,
    PlanChangedError,
    ScanError,
    ScanMemoryError,
    ScanTimeoutError,
    SourcesChangedError,
    SparkJobError,
    StorageError,
)
from icevirt.execution.executor import Executor, current, describe_jobs, give_back, job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of, work_of
from icevirt.model.json import JSON
from icevirt.planning.axes.axis_ends import labels_at_ends
from icevirt.planning.records import METADATA
from icevirt.planning.schedule.write_tasks import route_of
from icevirt.planning.stored_form import record_forms
from icevirt.repo.commits.build_commit import BUILD_ID
from icevirt.repo.repo_info_file import pause
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.scan.options import bad_files_allowed
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.scan import CopyScansTask, copy_scans, scans_to_copy
from icevirt.version import __version__

_ATTEMPTS = 3  # to write objects that another process deletes

_COPIED = 256  # objects that are copied faster than an executor is asked

_CALLS = 10  # while others commit to the same group, or files change

_RESCANS = 3  # of files that change while a build runs

KEEP_SCAN_OF = 1000
"""A refused build of fewer files takes its catalog with it; a longer scan is worth keeping."""


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
                found = executor_of(self._choice, work=work_of(files), phase=self._clock.phase)
                self._started = self._stack.enter_context(found)
            check_before_first(self._started, ClusterNeeds.of(files, *written))
        return self._started

    @property
    def choice(self) -> ExecutorChoice:
        """The executor that was started, else the caller's choice."""
        return self._choice if self._started is None else self._started


def until_alone[R](
    what: str, attempt: Callable[[int], R], is_lost: Callable[[IcevirtError], bool]
) -> R:
    """Try what plans on the tip of a branch, and again each time when another writer was first.

    Args:
        what: The call, for the log.
        attempt: Takes the number of the attempt.
        is_lost: Says whether an error means that the next attempt may do it.
    """
    for number in range(_CALLS):
        try:
            return attempt(number)
        except IcevirtError as error:
            if not is_lost(error) or number + 1 == _CALLS:
                raise
            tell(f"{what}-again", error=str(error), attempts_left=_CALLS - number - 1)
        pause(number)
    raise AssertionError("the last attempt returns or raises")


def is_overtaken(error: IcevirtError) -> bool:
    """Say whether an error is that another writer of the same group was first."""
    ran_twice = isinstance(error, BuildError) and isinstance(error.__cause__, ObjectNotFoundError)
    return ran_twice or isinstance(error, ConflictError)


def commit_change(
    request: Request, change: Callable[[], DatasetChange], starter: ExecutorStarter, clock: Clock
) -> BuildReport:
    """Build, and once more each time when files changed meanwhile; unchanged ones stay scanned.

    ``change`` says what is to become of the files, also when some changed since it said so.
    """
    rescans = _RESCANS if request.commit.rescan_changed else 0
    while True:
        with clock.phase("list"):
            found = change()
            files = outside(request.storage, found.files())
        try:
            return _attempt(request, found, files, starter, clock)
        except SourcesChangedError as error:
            if not rescans:
                raise
            rescans -= 1
            tell("sources-changed", logging.WARNING, error=str(error), rescans_left=rescans)


def _attempt(
    request: Request,
    change: DatasetChange,
    files: SourceFiles,
    starter: ExecutorStarter,
    clock: Clock,
) -> BuildReport:
    storage, commit = request.storage, request.commit
    with clock.phase("list"):
        group = request.spec.group
        target = Target.look(storage, branch=commit.branch, group=group, mode=request.mode)
    known, bad = len(change.kept.files), change.bad_kept
    allowed = bad_files_allowed(request.choices.scan.max_bad_files, len(files) - known) + bad
    of_files = digest_of(identify_files(files))
    inputs = request.digest(target.group, of_files)
    last = target.last_build()
    change.refuse_overtaken(target, request.commit.message or "a build")
    if (found := _already_built(request, target, inputs, allowed, clock)) is not None:
        return found
    said = {} if last is None else provenance_of(last) or {}
    if str(said.get("listing", "")) != of_files or request.choices.inferring is None:
        target.refuse_occupied()  # else the same may be there: inferred dimensions say
    build_id = target.build_id(inputs)
    record = target.record(build_id)
    own = record.below("catalog/") if request.catalog is None else None
    scan = request.scan(files, catalog=own, bad=allowed)
    job = Job(build_id=build_id, scan=scan, target=target, record=record)
    tell(
        "build-begun",
        repo=storage.url,
        branch=target.branch,
        group=target.group,
        build_id=build_id,
        catalog=scan.catalog.url,
        files=len(files),
        bytes=int(files.sizes.sum()),
        icevirt=__version__,
    )
    clock.kept = record.url
    with job_tags(storage.url, build_id):
        # if it does not start, what an earlier run finished is kept
        executor = starter.start(files, record, scan.catalog)
    try:
        with job_tags(storage.url, build_id):
            report = _run(job, request, change, of_files, executor, clock)
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
    if own is not None:
        report = _with_scans(report, executor, own, Below(storage, CATALOG))
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
                with describe_jobs(f"keep scans: {plural(len(paths), 'object')}", kept.url):
                    executor.run(copy_scans, tasks, storage=kept)
            elif tasks:
                copy_scans(tasks[0])
    except (StorageError, FormatError, SparkJobError) as error:
        left = f"the scans were not kept, so that a later update scans the files again: {error}"
        return replace(report, findings=(*report.findings, left))
    return report


def _already_built(
    request: Request, target: Target, inputs: str, allowed: int, clock: Clock
) -> BuildReport | None:
    """Return the report of the last build where it was of the same, and nothing came behind."""
    last = target.last_build()
    said = {} if last is None else provenance_of(last) or {}
    # what lies where files are published is no input, nor is what a function does: both may change
    may_change = bool(request.commit.publish_as) or request.choices.edits.function is not None
    if last is None or inputs not in (said.get("inputs"), said.get("asked")):
        return None
    if (request.mode == "w" and may_change) or not target.still_holds(last):
        return None
    bad = tuple(
        BadFile(url=url, code=code, error=error) for url, code, error in said.get("bad_files", ())
    )
    if len(bad) > allowed or _may_scan_more(said, bad, request.choices.scan.limits):
        return None
    repo = Repository.open(target.storage)
    held = summary(repo, snapshot_id=str(last.id))
    below = target.group.rstrip("/") + "/"
    infos = repo.list_manifest_files(str(last.id))
    report = report_on(
        BuildReport,
        target,
        snapshot_id=str(last.id),
        build_id=str(said.get("build_id", "")),
        already_built=True,
        files_reused=int(said.get("files") or 0),
        bad_files=bad,
        arrays=tuple(array for array in held.arrays if array.path.startswith(below)),
        manifests=len(infos),
        manifest_bytes=sum(info.size_bytes for info in infos),
        containers=held.containers,
        findings=("nothing was committed: the branch already holds this build",),
        eras=int(said.get("eras") or 1),
        opens_as_one=said.get("eras_open_as_one", True) is not False,
        seconds=clock.seconds,
    )
    # of a run that was killed behind its commit
    return without_record(
        report, target.record(str(said.get("record") or said.get("build_id", "")))
    )


def _may_scan_more(said: Mapping[str, Any], bad: Sequence[BadFile], limits: ScanLimits) -> bool:
    """Say whether a build left out files that lower limits than these stopped."""
    stopped = {each.code for each in bad}
    seconds, memory = said.get("limits", (0, 0))
    return (ScanTimeoutError.code in stopped and seconds < limits.seconds) or (
        ScanMemoryError.code in stopped and memory < limits.memory
    )


def without_record[R: BuildReport](report: R, record: Below) -> R:
    """Remove the record of a build that is committed; a storage that fails now fails no build."""
    try:
        record.delete_all()
    except StorageError as error:
        left = f"the work of the build could not be removed from {record.url}: {error}"
        return replace(report, findings=(*report.findings, left))
    return report


def write_plan(
    executor: Executor,
    job: Job,
    sources: SourceFiles,
    clock: Clock,
    *,
    referring: bool,
    storing: StoringAgain,
) -> tuple[list[WriteResult], StoredArrays]:
    """Write all objects of a plan, those again that vanish until the sources are looked at.

    Files that are ``referring`` to others lead there, and these are looked at too.

    Returns:
        What was written, and the arrays, of which ``storing`` says which are stored.

    Raises:
        BuildError: References are missing, or objects vanish faster than they are written.
        SourcesChangedError: Files changed since their scan.
    """
    plan = storing.referring
    led = tuple(each.url_prefix for each in plan.containers) if referring else ()
    job = replace(job, led=led)
    for _ in range(_ATTEMPTS):
        with clock.phase("write"):
            results = write_all(executor, job, plan)
        with clock.phase("commit"):
            refuse_losses(plan, results)
            refuse_changed(sources)
            if referring:
                refuse_changed_targets(executor, job, plan)
            # the last look of all, as another process may collect garbage meanwhile
            is_there = not have_vanished(job, results)
        if is_there:
            made, files = arrays_of(plan, results), files_of(results)
            return results, storing.store(executor, clock, made, files)
        tell("objects-vanished", logging.WARNING, repo=job.target.storage.url)
    raise BuildError(
        "objects that were just written have disappeared",
        do="Find and stop the process that deletes objects of this repository, and build again.",
        repo=job.target.storage.url,
    )


def _run(  # noqa: PLR0917 - a build, and what it is made of
    job: Job,
    request: Request,
    change: DatasetChange,
    of_files: str,
    executor: Executor,
    clock: Clock,
) -> BuildReport:
    """Run a build from its scan to its commit."""
    with clock.phase("scan"):
        scan, scanned = scan_and_infer(executor, job.scan, request.choices.inferring)
        asked = {
            "asked": request.digest(job.target.group, of_files),
            "listing": of_files,
            "record": job.build_id,
        }
        inputs = request.along(scan.options).digest(job.target.group, of_files)
        if inputs != asked["asked"]:
            along, allowed = request.along(scan.options), scan.max_bad_files
            found = _already_built(along, job.target, inputs, allowed, clock)
            if found is not None:
                return found
        job.target.refuse_occupied()
        job = replace(job, scan=scan, build_id=job.target.build_id(inputs))
        current().tag(job.build_id)
    with clock.phase("plan"):
        planned = plan_files(request, executor, job.scan, job.target, build_id=job.build_id)
        request, facts = planned.request, planned.facts
        tell(
            "planned",
            files=len(planned.plan.files),
            arrays=len(planned.plan.arrays),
            route=route_of(planned.plan).describe(),
            left_out=len(planned.plan.left_out),
        )
        plan, moved = request.publish_plan(facts, planned.plan)
        _refuse_another_plan(request, plan)
        replacing = hold_against(job.target, plan, request)
        storing = StoringAgain.of(job.target, plan)
        findings = (*replacing.findings(), *storing.findings, *planned.closed.findings)
    spec, bad, ends = planned.spec, planned.closed.bad, ends_of(plan, facts.files, facts.arrays)
    labels = labels_at_ends(planned.plan, facts)  # of files where they were scanned
    referring = planned.is_referring
    del planned, facts  # as large as the plan, and nothing of it is needed any more
    job.scan.files.fold()  # while tasks run, the memory is theirs
    give_back()
    # manifests of another attempt say what was there then
    record = job.record
    if moved or request.choices.edits.function is not None:
        record = record.below(f"items/{digest_of(identify_files(moved), digest_of_plan(plan))}/")
    sources = SourceFiles(chain(job.scan.files, moved)) if moved else job.scan.files
    sources = change.pick_others(sources)
    writing = replace(job, record=record)
    results, stored = write_plan(
        executor, writing, sources, clock, referring=referring, storing=storing
    )
    with clock.phase("commit"):
        choices = replace(request, spec=spec).recorded
        recorded = _record_of(job, plan, bad, inputs=inputs, asked=asked, choices=choices)
        recorded |= {"kept": replacing.find_kept_attributes(), **request.about, "ends": labels}
        if storing.forms:
            recorded["stored"] = record_forms(storing.forms)
        if request.recipe is not None:
            keep_recipe(job.target.storage, request.recipe)
            recorded["recipe"] = request.recipe.digest
        pieces = keep_files(job.target.storage, of_files, job.scan.files, change.kept)
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
            goes_on=change.dataset is not None,
            check=request.check_of(plan.containers),
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
    return stored.add_to_report(report)


def _refuse_another_plan(request: Request, plan: BuildPlan) -> None:
    """Refuse to build another plan than the one that the caller looked at."""
    if request.plan and request.plan != digest_of_plan(plan):
        raise PlanChangedError(
            "the files make another plan than the one that is to be written",
            do="Plan again, with repo= for a repository whose last build decides which variables"
            " have a dimension; or build without a plan.",
            repo=request.storage.url,
        )


def _record_of(
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
    counts = sum((array.written for array in plan.arrays), ReferenceCounts())
    eras, as_one = count_eras(plan)
    return {
        "build_id": job.build_id,
        "inputs": inputs,  # digest of versions, options and files
        **asked,  # the digest and the build id before dimensions were inferred; that of the files
        "plan": digest_of_plan(plan),
        "group": job.target.group,
        "icevirt": __version__,
        "scanners": options_of(job.scan.options)["scanners"],  # versions by name
        "scan": {name: value for name, value in asdict(job.scan.options).items() if value},
        "combine": {name: value for name, value in choices.items() if value is not None},
        "catalog": None if catalog.startswith(job.record.url) else catalog,
        "files": len(plan.files),
        "arrays": len(plan.arrays),
        "references": sum(array.expected for array in plan.arrays),
        "bytes": [counts.bytes_referenced, counts.bytes_stored],
        "limits": [job.scan.limits.seconds, job.scan.limits.memory],  # of the scan of a file
        "eras": eras,
        **({} if as_one else {"eras_open_as_one": False}),
        "bad_files": [[each.url, each.code, each.error] for each in bad],
        "left_out": [[each.url, each.kept] for each in plan.left_out],
    }


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
