"""Implement ``icevirt exclude``: which files appends and updates leave out."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output

Repo = Annotated[str, typer.Argument(help="The repository, a path or URL.")]


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
