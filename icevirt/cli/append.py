"""Implement ``icevirt append``: new files for a dataset that a build made."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from icevirt.cli import options
from icevirt.cli.declared import asked, takes_options
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output, progress

OnChanged = StrEnum("OnChanged", ["refuse", "replace", "keep"])


@takes_options("append")
def append(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    files: options.Sources,
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL; made if absent.")],
    concat_dim: options.ConcatDim = None,
    group: options.Group = "/",
    on_changed: Annotated[
        OnChanged,
        typer.Option(
            help="How to handle files that the dataset holds as they were before: refuse to"
            " append, replace their values, or keep the references, which readers refuse."
        ),
    ] = OnChanged.refuse,
    authorize: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<PREFIX>",
            help="A directory or URL prefix below which further files of the dataset may lie,"
            " beside the directories of FILES; may be repeated.",
        ),
    ] = None,
    access: options.Access = None,
    catalog: options.Catalog = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
    **chosen: Any,
) -> CommandResult:
    """Add new files to a dataset, combined as its last build says; those it holds are passed over.

    An empty group is built.
    """
    import icevirt

    given = asked(
        ctx,
        None,
        chosen,
        files=files,
        repo=repo,
        concat_dim=concat_dim or None,
        group=group,
        on_changed=on_changed.value,
        authorize=authorize or (),
        access=dict(access or ()),
        catalog=catalog,
    )
    with progress(quiet=quiet) as listener:
        report = icevirt.append(**given, progress=listener)
    return CommandResult(value=report, output=output, quiet=quiet)
