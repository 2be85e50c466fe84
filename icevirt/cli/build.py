"""Implement ``icevirt build`` and ``icevirt plan``: from files to a repository."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from icevirt.cli import options
from icevirt.cli.declared import (
    RecipeFile,
    WriteRecipe,
    asked,
    require,
    require_repo,
    require_sources,
    takes_options,
)
from icevirt.cli.options import OutputOption, ReportOption
from icevirt.cli.output import CommandResult, Output, in_own_notation, progress, show_error
from icevirt.errors import IcevirtError

Mode = StrEnum("Mode", {"refuse": "w-", "overwrite": "w"})  # nodes that the group holds


@takes_options("build")
def build(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    sources: options.OptionalSources = None,
    repo: Annotated[
        str | None, typer.Argument(help="The repository, a path or URL; made if absent.")
    ] = None,
    file: RecipeFile = None,
    concat_dim: options.ConcatDim = None,
    group: options.Group = "/",
    mode: Annotated[
        Mode,
        typer.Option(
            help="w- refuses a group that holds nodes; w replaces what the last build of it made."
        ),
    ] = Mode.refuse,
    access: options.Access = None,
    catalog: options.Catalog = None,
    report: ReportOption = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
    **chosen: Any,
) -> CommandResult:
    """Build a virtual dataset over files, without copying them."""
    import icevirt

    given = asked(
        ctx,
        file,
        chosen,
        sources=sources,
        repo=repo,
        concat_dim=concat_dim or None,
        group=group,
        mode=mode.value,
        access=dict(access or ()),
        catalog=catalog,
    )
    if not (given.get("repo") or given.get("sources") or file):
        raise typer.BadParameter(
            "Missing arguments 'SOURCES' and 'REPO'. Name files and a repository, like "
            "`icevirt build 'archive/*.nc' repo`, or a recipe that does: `icevirt build -f FILE`"
        )
    require(given, recipe=file, repo="REPO")
    require_repo(given)
    require_sources(given, recipe=file)
    with progress(quiet=quiet) as listener:
        built = icevirt.build(**given, progress=listener)
    if report is not None:
        with in_own_notation():
            icevirt.to_html(built, report)
    return CommandResult(value=built, output=output, quiet=quiet)


@takes_options("plan")
def plan(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    sources: options.OptionalSources = None,
    file: RecipeFile = None,
    write_recipe: WriteRecipe = None,
    repo: Annotated[
        str | None, typer.Option(help="A repository, to show what differs from its last build.")
    ] = None,
    update: Annotated[
        str | None,
        typer.Option(
            metavar="<REPO>",
            help="In place of sources, a repository: show what icevirt update would do; the same"
            " as icevirt update --dry-run, which takes more options.",
        ),
    ] = None,
    concat_dim: options.ConcatDim = None,
    group: options.Group = "/",
    access: options.Access = None,
    catalog: options.Catalog = None,
    report: ReportOption = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
    **chosen: Any,
) -> CommandResult:
    """Show what a build of these files would do and store, without a repository.

    Where files have different encodings, their eras are shown; the exit status is 1 where they are
    refused.
    """
    import icevirt
    from icevirt.display.fixes import build_of

    given = asked(
        ctx,
        file,
        chosen,
        sources=sources,
        repo=repo,
        concat_dim=concat_dim or None,
        group=group,
        access=dict(access or ()),
        catalog=catalog,
    )
    if update is not None:
        with progress(quiet=quiet) as listener:
            shown = icevirt.update(
                update,
                recipe=file,
                group=group,
                catalog=catalog,
                access=dict(access or ()),
                dry_run=True,
                progress=listener,
            )
        return CommandResult(value=shown, output=output, quiet=quiet)
    require_sources(given, recipe=file)
    try:
        with progress(quiet=quiet) as listener:
            planned = icevirt.plan(**given, progress=listener)
    except IcevirtError as error:
        found = error.facts.get("eras")
        if found is None and output is not Output.json:
            raise
        show_error(error)
        value = error if output is Output.json else found
        return CommandResult(value=value, output=output, quiet=quiet, status=1)
    if report is not None:
        with in_own_notation():
            icevirt.to_html(planned, report)
    if write_recipe is not None:
        icevirt.dump_recipe(given, write_recipe)
    there = planned.difference
    build = build_of(
        sys.argv[1:],
        replaces=there is not None and bool(there.snapshot_id),
        changes=there is not None and any(each.stops for each in there.changes),
    )
    return CommandResult(value=planned, output=output, quiet=quiet, next_step=build)
