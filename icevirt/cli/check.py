"""Implement ``icevirt check``: whether a repository is intact."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.output import CommandResult, Output, OutputOption


def check(
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    chunks: Annotated[
        bool,
        typer.Option(
            "--chunks",
            help="Also read every native chunk, and compare its bytes with its name if the name"
            " is a digest.",
        ),
    ] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="With --chunks: list the chunks that agree with their names, so that later damage"
            " to them is reported. Writes to the repository.",
        ),
    ] = False,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Check every invariant of a repository; the status is 1 when something is wrong."""
    import icevirt

    if record and not chunks:
        raise typer.BadParameter("--record needs --chunks")
    report = icevirt.check(repo, chunks=chunks, record=record)
    return CommandResult(value=report, output=output, status=0 if report.ok else 1)
