"""`icevirt.plan`: what a build would do and store, before it does it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from icevirt.api.arguments import ConcatDim, check_group, listed, shared
from icevirt.api.choices import Choices, CombineOptionsLike, CommitOptionsLike, ScanOptionsLike
from icevirt.api.commit_options import CommitOptions
from icevirt.api.pipeline.kept_dimensions import kept_of
from icevirt.api.pipeline.replacing import Replacing
from icevirt.api.pipeline.stages import Scan, closed_catalog, scan_missing
from icevirt.api.pipeline.target import Target, digest_of
from icevirt.api.renamed import names_replacements
from icevirt.api.sources.inputs import Sources
from icevirt.api.sources.published_urls import published
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import Progress
from icevirt.execution.selection import ExecutorChoice, executor_of, work_of
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.cost_estimate import costs_of
from icevirt.scan.options import bad_files_allowed
from icevirt.storage.resolve import StorageLike


@names_replacements
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
    progress: Callable[[Progress], None] | None = None,
) -> BuildPlan:
    """Scan files on Spark and say what `build` would make of them; nothing is written elsewhere.

    Arguments and errors are those of `build`. With ``catalog`` the scan is kept in that directory,
    and a build with the same one does not scan again. With ``repo``, the plan's ``difference`` says
    what a build with mode "w" would change, keep, replace and delete in that group of the branch
    that ``commit_options`` names.
    """
    choices = Choices.of(concat_dim, scan_options, combine_options)
    commit = CommitOptions.of(commit_options)
    check_group(group)
    limits = choices.scan.limits
    with contextlib.ExitStack() as stack:
        stack.enter_context(granted(SourceAccess.of(access)))
        nest = choices.nest(sources)
        inputs, options = choices.inputs(sources, nest, catalog)
        files = inputs.files()
        if catalog is None:
            catalog = stack.enter_context(tempfile.TemporaryDirectory(prefix="icevirt-plan-"))
        scan = Scan(
            files=files,
            options=options,
            catalog=shared(catalog),
            max_bad_files=bad_files_allowed(choices.scan.max_bad_files, len(files)),
            progress=progress,
            limits=limits,
        )
        running = stack.enter_context(executor_of(executor, work=work_of(files)))
        scan_missing(running, scan)
        wish = choices.wish(
            options.concat_dims,
            group=group,
            build_id=digest_of("plan", listed(files)),
            nest=None if nest is None else nest.by_url(files),
        )
        target = (
            None
            if repo is None
            else Target.look(shared(repo), branch=commit.branch, group=wish.group, mode="w")
        )
        if target is not None:
            wish = replace(wish, kept=kept_of(target))
        closed = closed_catalog(scan)
        facts, wish = choices.edits.applied(closed.facts, wish)
        made = combine_eras(facts, wish)
        found = (text for _, text in closed.findings)
        made = replace(made, notes=(*made.notes, *found), bad_files=closed.bad)
        made = published(made, commit.publication.targets(facts, made))
        made = commit.named_containers.contained(facts, made)
        return replace(
            made,
            executor=running.name,
            cost=costs_of(made),
            difference=None
            if target is None
            else Replacing.of(target, made, choices.edits.choice).difference(),
        )
