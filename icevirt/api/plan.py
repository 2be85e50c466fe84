"""Implement `icevirt.plan`: what a build would do and store, before it does it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from icevirt.api.build import build_asked
from icevirt.api.choices import (
    Asked,
    Choices,
    CombineOptionsLike,
    CommitOptionsLike,
    ConcatDim,
    ListedFiles,
    ScanOptionsLike,
    check_group,
    share,
)
from icevirt.api.commit_options import CommitOptions, refuse_misplaced_options
from icevirt.api.dataset.change import Request
from icevirt.api.dataset.planning import plan_files
from icevirt.api.dataset.records import digest_of, identify_files
from icevirt.api.dataset.replacing import Replacing
from icevirt.api.dataset.scanning import scan_and_infer
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import digest_of_plan
from icevirt.api.events import Clock, long_running
from icevirt.api.sources.inputs import Sources, is_listable
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import BuildReport, PlanDifference, Progress
from icevirt.display.plan import array_of
from icevirt.execution.executor import job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of, work_of
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.planning.schedule.cost_estimate import costs_of
from icevirt.planning.schedule.twin_estimate import price_twins
from icevirt.scan.options import bad_files_allowed
from icevirt.storage.constructors import StorageLike


@refuse_misplaced_options
def plan(
    sources: Sources | None,
    *,
    repo: StorageLike | None = None,
    concat_dim: ConcatDim = None,
    group: str = "/",
    scan_options: ScanOptionsLike = None,
    combine_options: CombineOptionsLike = None,
    commit_options: CommitOptionsLike = None,
    catalog: StorageLike | None = None,
    access: Mapping[str, Any] | None = None,
    executor: ExecutorChoice = None,
    twin_chunks: Mapping[str, int] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """Scan files in parallel and say what `build` would make of them; nothing is written elsewhere.

    Arguments and errors are as for `build`. With ``catalog`` the scan is kept in that directory,
    and a build with the same one does not scan again. With ``repo``, the plan's ``difference`` says
    what a build with mode "w" would change, keep, replace and delete in that group of the branch
    that ``commit_options`` names. With ``twin_chunks`` like ``{"time": 365}`` it says what a map
    and a time series take in the chunks of the files, and in a twin of such chunks.

    Examples:
        >>> icevirt.plan("archive/*.nc")
        <BuildPlan 3 files along time (36 steps, ...)  4 arrays  39 references  2 notes>
    """
    asked = Asked(
        sources=sources,
        choices=Choices.of(concat_dim, scan_options, combine_options),
        commit=CommitOptions.of(commit_options),
        group=check_group(group),
        catalog=catalog,
        access=access,
        executor=executor,
    )
    made = plan_asked(asked, repo=repo, progress=progress)
    if twin_chunks is None:
        return made
    arrays = map(array_of, made.arrays)
    return replace(made, priced=price_twins(arrays, twin_chunks, made.concat_dim))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Plan(BuildPlan):
    """What a build will do; `write` does it."""

    asked: Asked  # what it was made of

    def changes(
        self, repo: StorageLike, *, progress: Callable[[Progress], None] | None = None
    ) -> PlanDifference:
        """Compare the plan with what the last build of its group made in a repository.

        Raises:
            RefNotFoundError: The repository has no such branch.
        """
        difference = plan_asked(self.asked, repo=repo, progress=progress).difference
        assert difference is not None, "a repository was named"
        return difference

    def write(
        self,
        repo: StorageLike,
        *,
        mode: str = "w-",
        progress: Callable[[Progress], None] | None = None,
        **commit_options: Any,
    ) -> BuildReport:
        """Build exactly this plan; files that are in the plan's catalog are not scanned again.

        Args:
            repo: Path or URL of the repository; it is created if there is none.
            mode: As for `icevirt.build`.
            progress: Called with every step of the long phases.
            commit_options: Options of `icevirt.CommitOptions`, like ``message="2024"``.

        Raises:
            PlanChangedError: Files changed since, or the repository makes it another plan.
            IcevirtError: As for `icevirt.build`.
        """
        commit = CommitOptions.of({**self.asked.commit.list_chosen(), **commit_options})
        asked = self.asked
        assert asked.listed is not None, "the files of a plan are listed"
        same_plan = commit.publish_as == asked.commit.publish_as
        listed = replace(asked.listed, plan=digest_of_plan(self) if same_plan else "")
        return build_asked(
            replace(asked, commit=commit, listed=listed), repo, mode=mode, progress=progress
        )


def plan_asked(
    asked: Asked,
    *,
    repo: StorageLike | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """Plan what is described; errors are those of `plan`."""
    choices, commit = asked.choices, asked.commit
    clock = Clock()
    with contextlib.ExitStack() as stack:
        stack.enter_context(long_running("plan", clock))
        stack.enter_context(grant_access(SourceAccess.of(asked.access)))
        inputs, options, nest = asked.inputs()
        files = inputs.files()
        catalog = asked.catalog
        if catalog is None:
            catalog = stack.enter_context(tempfile.TemporaryDirectory(prefix="icevirt-plan-"))
        storage = share(catalog)
        request = Request.of(
            choices,
            commit,
            group=asked.group,
            options=options,
            storage=storage,
            catalog=storage,
            nest=nest,
            progress=progress,
        )
        allowed = bad_files_allowed(choices.scan.max_bad_files, len(files))
        scan = request.scan(files, bad=allowed)
        stack.enter_context(job_tags(scan.catalog.url))
        clock.kept = "" if asked.catalog is None else scan.catalog.url
        found = executor_of(asked.executor, work=work_of(files), phase=clock.phase)
        running = stack.enter_context(found)
        check_before_first(running, ClusterNeeds.of(files, scan.catalog))
        read = None if asked.listed is None else asked.listed.closed
        if read is None:
            scan, _ = scan_and_infer(running, scan, choices.inferring)
        target = None
        if repo is not None:
            group = request.spec.group
            target = Target.look(share(repo), branch=commit.branch, group=group, mode="w")
        build_id = digest_of("plan", identify_files(files))
        planned = plan_files(request, running, scan, target, build_id=build_id, closed=read)
        closed, made = planned.closed, planned.plan
        made = replace(made, notes=(*made.notes, *closed.findings), bad_files=closed.bad)
        made, _ = request.publish_plan(planned.facts, made)
        held = {each.name: getattr(made, each.name) for each in fields(made)}
        held["executor"] = running.name
        held["cost"] = costs_of(made)
        if target is not None:
            held["difference"] = Replacing.of(target, made, choices.edits.choice).difference()
        sources_named = asked.named if is_listable(asked.named) else None
        known = ListedFiles(
            files=files,
            options=scan.options,
            nest=nest,
            closed=read,
            named=sources_named,
        )
        return Plan(**held, asked=replace(asked, sources=None, listed=known))
