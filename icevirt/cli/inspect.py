"""``icevirt info`` and ``icevirt scan``: what a repository or a file holds."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli import options
from icevirt.cli.output import Answer, Output, OutputOption


def info(
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    branch: Annotated[str | None, typer.Option(help="The branch to show; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to show.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to show.")] = None,
    output: OutputOption = Output.text,
) -> Answer:
    """Show what a repository holds: its groups and arrays, and where their chunks lie."""
    import icevirt

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    return Answer(
        value=icevirt.info(repo, branch=branch, tag=tag, snapshot_id=snapshot_id), output=output
    )


def scan(  # noqa: PLR0917 - each is an option of the command
    file: Annotated[str, typer.Argument(help="A file, as a path or file:// URL.")],
    concat_dim: Annotated[
        str | None, typer.Option(help="The dimension along which a build would concatenate.")
    ] = None,
    group: Annotated[str, typer.Option(help="Look only below this group of the file.")] = "/",
    variable: options.Variable = None,
    drop_variable: options.DropVariable = None,
    scanner: options.Scanner = "",
    allow_references_to: options.ReferencesTo = None,
    output: OutputOption = Output.text,
) -> Answer:
    """Show what a build would find in one file, and what it would have to store."""
    import icevirt

    scanned = icevirt.scan_file(
        file,
        concat_dim=concat_dim,
        group=group,
        variables=tuple(variable or ()),
        drop_variables=tuple(drop_variable or ()),
        scanner=scanner,
        allow_references_to=tuple(allow_references_to or ()),
    )
    return Answer(value=scanned, output=output)
