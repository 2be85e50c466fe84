"""Implement ``icevirt maintain``, ``status``, ``withdraw`` and ``exclude``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer

from icevirt.cli.options import Authorize, Group, OutputOption, Quiet
from icevirt.cli.output import CommandResult, Output, progress, show, show_error
from icevirt.cli.statuses import BEHIND, REFUSED
from icevirt.errors import Fix, InvalidInputError

Repo = Annotated[str, typer.Argument(help="The repository, a path or URL.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do it without asking, as scripts have to say.")
]
Authorized = Annotated[
    list[str] | None,
    typer.Option(
        "--authorize",
        metavar="<PREFIX>",
        help="A directory or URL prefix of the dataset's files, which are read if their scans are"
        " missing; may be repeated.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def maintain(  # noqa: PLR0917 - each is an option of the command
    repo: Repo,
    keep_snapshots: Annotated[
        str, typer.Option(metavar="<time>", help="How long versions stay; at least 7D.")
    ] = "30D",
    window: Annotated[
        str | None,
        typer.Option(
            metavar="<[DIM=]time>",
            help="Keep the dataset to its last steps first, like 90D, counted from the newest step;"
            " files that are wholly older are dropped, if a tenth of the steps or more goes.",
        ),
    ] = None,
    branch: Annotated[
        str, typer.Option(help="The branch of the dataset with the window.")
    ] = "main",
    group: Group = "/",
    authorize: Authorized = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: OutputOption = Output.text,
    quiet: Quiet = False,
) -> CommandResult:
    """Let old versions expire, and delete what no version needs; shows first what would go.

    Every version that a branch showed during the time that is kept stays, and so do tags and tips
    of branches. Garbage younger than seven days, or than the oldest unfinished build, stays.
    """
    import icevirt

    def run(*, is_plan: bool) -> object:
        with progress(quiet=quiet or output is Output.json) as tell:
            return icevirt.maintain(
                repo,
                keep_snapshots=keep_snapshots,
                window=window,
                branch=branch,
                group=group,
                authorize=authorize or (),
                dry_run=is_plan,
                progress=tell,
            )

    return confirmed(run, yes=yes, dry_run=dry_run, output=output, quiet=quiet)


def withdraw(  # noqa: PLR0917 - each is an option of the command
    files: Annotated[list[str], typer.Argument(help="Paths or URLs of the files.")],
    repo: Repo,
    authorize: Authorized = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Also remove what others stored or added, if it does not fit without the files.",
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: OutputOption = Output.text,
    quiet: Quiet = False,
) -> CommandResult:
    """Take files out of a repository: out of all branches, tags and older versions.

    Datasets are built without them, versions that hold them are deleted, and appends pass them
    over from now on. The plan is shown first, with what remains.
    """
    import icevirt

    def run(*, is_plan: bool) -> object:
        with progress(quiet=quiet or output is Output.json) as tell:
            return icevirt.withdraw(
                files,
                repo,
                authorize=authorize or (),
                allow_changes=allow_changes,
                dry_run=is_plan,
                progress=tell,
            )

    return confirmed(run, yes=yes, dry_run=dry_run, output=output, quiet=quiet)


def exclude(  # noqa: PLR0917 - each is an option of the command
    repo: Repo,
    files: Annotated[
        list[str] | None, typer.Argument(help="Paths or URLs of files; none: only list them.")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Only of datasets on this branch.")] = None,
    group: Annotated[str | None, typer.Option(help="Only of datasets in this group.")] = None,
    readmit: Annotated[
        bool, typer.Option("--readmit", help="Let the files be added again, to any dataset.")
    ] = False,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Let appends and updates leave files out, or list those that they leave out."""
    import icevirt

    if not files:
        return CommandResult(value=icevirt.excluded(repo), output=output)
    value = icevirt.exclude(files, repo, branch=branch, group=group, readmit=readmit)
    return CommandResult(value=value, output=output)


def status(  # noqa: PLR0917 - each is an option of the command
    repo: Repo,
    branch: Annotated[str, typer.Option(help="The branch.")] = "main",
    group: Group = "/",
    max_lag: Annotated[
        str | None,
        typer.Option(
            metavar="<time>",
            help="End with status 5 if the newest step is further behind the newest file, like 2D.",
        ),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            metavar="<time>",
            help="End with status 5 if the newest step is further behind the clock.",
        ),
    ] = None,
    authorize: Authorize = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show how a dataset is: newest step, files, manifests, last commit, unfinished builds.

    The status is 5 if the dataset is further behind than --max-lag or --max-age allow, or if that
    is unknown.
    """
    import icevirt

    limits = [(_time(given), name) for given, name in ((max_lag, "lag"), (max_age, "age"))]
    found = icevirt.status(
        repo, branch=branch, group=group, authorize_virtual_chunk_access=dict(authorize or ())
    )
    behind = [
        name
        for limit, name in limits
        if limit is not None and ((value := getattr(found, name)) is None or value > limit)
    ]
    for name in behind:
        sys.stderr.write(f"icevirt: {name} of the dataset: {getattr(found, name) or 'unknown'}\n")
    return CommandResult(value=found, output=output, status=BEHIND if behind else 0)


def _time(given: str | None) -> timedelta | None:
    from icevirt.planning.axes.regular_axes import duration_of

    if given is None:
        return None
    if not (found := duration_of(given)):
        raise typer.BadParameter("write a time like 6h or 2D")
    return timedelta(microseconds=found)


def confirmed(
    run: Callable[..., Any], *, yes: bool, dry_run: bool, output: Output, quiet: bool
) -> CommandResult:
    """Return what a call did, or its plan; on a terminal, a person is asked in between.

    Where nobody can be asked, and --yes was not given, the status is 1.
    """
    if yes and not dry_run:
        return CommandResult(value=run(is_plan=False), output=output, quiet=quiet)
    plan = run(is_plan=True)
    if dry_run:
        return CommandResult(value=plan, output=output, quiet=quiet)
    if not (output is Output.text and sys.stdin.isatty() and sys.stdout.isatty()):
        show(CommandResult(value=plan, output=output, quiet=quiet))
        again = Fix(python="", flags=("--yes",), price="does what is shown")
        show_error(InvalidInputError("nothing was changed without --yes", fixes=[again]))
        raise typer.Exit(REFUSED)
    show(CommandResult(value=plan))
    if not typer.confirm("Do this?"):
        return CommandResult(value=plan, output=output, quiet=True, status=REFUSED)
    return CommandResult(value=run(is_plan=False), output=output, quiet=quiet)
