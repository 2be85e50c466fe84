"""Implement `icevirt.build`: from source files to a committed snapshot, in one call.

list -> scan -> catalog -> plan (pure) -> write -> recheck -> commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from icevirt.api.choices import (
    Asked,
    Choices,
    CombineOptionsLike,
    CommitOptionsLike,
    ConcatDim,
    ScanOptionsLike,
    apart,
    check_group,
    share,
)
from icevirt.api.commit_options import CommitOptions, refuse_misplaced_options
from icevirt.api.dataset.change import DatasetChange, Request
from icevirt.api.dataset.recipes import note_of, recipe_of
from icevirt.api.dataset.transaction import ExecutorStarter, commit_change
from icevirt.api.events import Clock, long_running, tell_committed
from icevirt.api.finish import SnapshotVerification, add_notes, prepare, promote_branch
from icevirt.api.sources.inputs import Sources
from icevirt.api.trust.readable_places import opening_of, places_named
from icevirt.archive.reports.build import BuildReport, Progress
from icevirt.execution.selection import ExecutorChoice, prepare_for
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.repo.made_here import identify, remember, remember_containers, remember_places
from icevirt.scan.elsewhere import prefixes_of
from icevirt.storage.constructors import StorageLike


@refuse_misplaced_options
def build(
    sources: Sources | None,
    repo: StorageLike,
    *,
    concat_dim: ConcatDim = None,
    group: str = "/",
    mode: str = "w-",
    scan_options: ScanOptionsLike = None,
    combine_options: CombineOptionsLike = None,
    commit_options: CommitOptionsLike = None,
    catalog: StorageLike | None = None,
    access: Mapping[str, Any] | None = None,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> BuildReport:
    """Scan files in parallel and commit them as one virtual dataset.

    Args:
        sources: Globs, directories, paths and URLs of files, and lists of them: ``"@list.csv"``,
            ``"-"`` for stdin, or a table with a column ``url``; see docs/catalog.md. None takes all
            files of the scans with these options into ``catalog``. With
            ``combine_options={"combine": "nested"}`` and several dimensions, nested lists, in which
            None is a file that is missing.
        repo: Path or URL of the repository; it is created if there is none.
        concat_dim: The dimension along which files are concatenated, or several, the outermost
            first. By default those whose coordinate differs between the first good file and the
            last, as xarray's ``combine_by_coords`` infers them. One file needs none.
        group: Where in the repository the dataset goes.
        mode: "w-" builds into an empty group; "w" replaces what the last build made
            of the group, in a new snapshot, and keeps what others put there.
        scan_options: What a scan reads of files: `icevirt.ScanOptions`, or a mapping like
            ``{"drop_variables": "crs"}``.
        combine_options: How files become one dataset: `icevirt.CombineOptions`, or a mapping like
            ``{"missing": "reserve"}``.
        commit_options: How the dataset is committed: `icevirt.CommitOptions`, or a mapping like
            ``{"message": "2024"}``.
        catalog: Directory of a catalog that is kept and used again. By default the build uses one
            of its own, and leaves it in the repository for updates and appends.
        access: How to reach the servers of files, by prefix of their URLs: credentials like
            ``icevirt.s3_credentials(...)``, or a word ("anonymous", "environment", "netrc",
            "requester-pays", or "package.module:function" of a function that returns credentials
            and is called again before they expire), or a store like ``icevirt.s3_store(...)``
            (region, endpoint, requester pays), or a pair of a store and credentials. Elsewhere the
            environment decides. Settings of a store are persisted for readers, in the container of
            the prefix; credentials are not.
        executor: What runs tasks: a Spark session, or "spark", "processes" (of this machine) or
            "in-process"; by default the active session, else processes.
        progress: Called with every step of the long phases.

    Raises:
        ArgumentError: A parameter has another name now; the message holds the replacement.
        InvalidInputError: Something named here is wrong; `NotFoundError` if it does not exist.
        AlreadyExistsError: The path holds something else, or the group is not empty.
        ScanError: More files are bad than allowed.
        CombineError: The files do not combine without changing values. If that is because of
            different encodings, ``error.facts["eras"]`` describes their eras.
        ConflictError: Another writer committed to the same group meanwhile.
        SourcesChangedError: Files changed between scan and commit.
        PlanChangedError: Variables or steps of the last build would vanish or decode differently,
            or other people's work would be lost.
        VerificationError: The repository differs from the files.
        BuildError: Spark failed, or something else outside the files.

    Examples:
        >>> report = icevirt.build("archive/*.nc", "repo")
        >>> report.references.virtual, report.references.bytes_stored
        (36, 1728)
        >>> dict(report.open().sizes)
        {'time': 36, 'lat': 60, 'lon': 120}
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
    return build_asked(asked, repo, mode=mode, progress=progress)


def build_asked(
    asked: Asked, repo: StorageLike, *, mode: str, progress: Callable[[Progress], None] | None
) -> BuildReport:
    """Build what is described; errors are those of `build`.

    Raises:
        PlanChangedError: The files that an earlier step listed do not make the plan of that step.
    """
    choices, commit = asked.choices, asked.commit
    prepare_for(asked.executor)
    reach, recipe = SourceAccess.of(asked.access), recipe_of(asked)
    storage = share(repo)
    kept = None if asked.catalog is None else apart(storage, asked.catalog)
    clock = Clock(progress)
    if commit.promote is not None:
        prepare(storage, commit.branch, commit.promote)
    with ExitStack() as stack:
        stack.enter_context(long_running("build", clock))
        stack.enter_context(grant_access(reach))
        starter = ExecutorStarter(stack, clock, asked.executor)
        with clock.phase("list"):
            inputs, options, nest = asked.inputs()
        reached = prefixes_of(options.allow_references_to)

        def below() -> tuple[str, ...]:
            return (*places_named(asked.named, inputs), *reached)

        check = SnapshotVerification.of(commit, storage, places=below, starter=starter, clock=clock)
        request = Request.of(
            choices,
            commit,
            group=asked.group,
            options=options,
            storage=storage,
            catalog=kept,
            mode=mode,
            nest=nest,
            plan="" if asked.listed is None else asked.listed.plan,
            progress=clock.step,
            recipe=recipe,
            check=check,
        )
        report = commit_change(request, lambda: DatasetChange(added=inputs.files()), starter, clock)
        places = places_named(asked.named, inputs)
        named = (*places, *reached, *commit.places)
        report = replace(report, opening=opening_of(report, storage, reach, named))
        remember(identify(storage), recipe.digest)
        remember_places(identify(storage), places)
        remember_containers(identify(storage), report.opening.prefixes)
        if note := note_of(asked.named):
            report = replace(report, findings=(*report.findings, note))
        tell_committed(report)
        if report.already_built and check is not None:
            scanners = {request.spec.group: options.scanner}
            check(report.snapshot_id, planned=report.opening.prefixes, scanners=scanners)
        report = add_notes(report, check)
    if commit.promote is not None:
        promote_branch(storage, report, commit.promote, check)
    return replace(report, seconds=clock.seconds)
