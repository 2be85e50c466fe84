"""Implement ``icevirt relocate``: a command over a repository whose files moved."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from icevirt.cli.options import Authorize, Quiet
from icevirt.cli.output import CommandResult, Output, OutputOption, progress


def _compare(given: object) -> int | str:
    text = str(given)
    if text == "all":
        return text
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise typer.BadParameter("give a number of references, or all")


def relocate(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    old: Annotated[
        str, typer.Argument(help="The prefix of the files so far: a URL or a directory.")
    ],
    new: Annotated[str, typer.Argument(help="The prefix of the same files now.")],
    branch: Annotated[str, typer.Option(help="The branch to commit to.")] = "main",
    compare: Annotated[
        Any,
        typer.Option(
            parser=_compare,
            metavar="<number or all>",
            help="Compare the bytes of so many references, drawn at random; lengths and checksums"
            " are compared for all files.",
        ),
    ] = "1000",
    authorize: Authorize = None,
    message: Annotated[str | None, typer.Option(help="The commit message.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be changed.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Repeat the sample of an earlier run.")] = None,
    output: OutputOption = Output.text,
    quiet: Quiet = False,
) -> CommandResult:
    """Point a repository to files that moved, after comparing them with their old place."""
    import icevirt

    with progress(quiet=quiet or output is Output.json) as tell:
        report = icevirt.relocate(
            repo,
            old,
            new,
            branch=branch,
            compare=compare,
            authorize_virtual_chunk_access=dict(authorize or ()),
            message=message,
            dry_run=dry_run,
            seed=seed,
            progress=tell,
        )
    return CommandResult(value=report, output=output, quiet=quiet)
