"""Implement ``icevirt build`` and ``icevirt plan``: from files to a repository."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

import typer

from icevirt.cli import options
from icevirt.cli.declared import (
    RecipeFile,
    WriteRecipe,
    asked,
    require,
    require_sources,
    takes_options,
)
from icevirt.cli.output import CommandResult, Output, OutputOption, progress, show_error
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
    require(given, repo="REPO")
    if not given["sources"] and re.search(r"^@|^-$|[*?]", str(given["repo"])):
        raise typer.BadParameter(
            f"{given['repo']} is in the place of the repository: name it last, after the files"
        )
    require_sources(given)
    with progress(quiet=quiet) as listener:
        report = icevirt.build(**given, progress=listener)
    return CommandResult(value=report, output=output, quiet=quiet)


@takes_options("plan")
def plan(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    sources: options.OptionalSources = None,
    file: RecipeFile = None,
    write_recipe: WriteRecipe = None,
    repo: Annotated[
        str | None, typer.Option(help="A repository, to show what differs from its last build.")
    ] = None,
    concat_dim: options.ConcatDim = None,
    group: options.Group = "/",
    access: options.Access = None,
    catalog: options.Catalog = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
    **chosen: Any,
) -> CommandResult:
    """Show what a build of these files would do and store, without a repository.

    Where files have different encodings, their eras are shown; the exit status is 1 where they are
    refused.
    """
    import icevirt

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
    require_sources(given)
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
    if write_recipe is not None:
        icevirt.dump_recipe(given, write_recipe)
    return CommandResult(value=planned, output=output, quiet=quiet)
