"""Implement ``icevirt upgrade``: from the V1 format to V2."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.output import CommandResult, Output, OutputOption


def upgrade(
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be done.")
    ] = False,
    keep_v1_files: Annotated[
        bool,
        typer.Option(
            "--keep-v1-files",
            help="Keep the V1 files, so that V1 clients can still read, and commit beside V2.",
        ),
    ] = False,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Upgrade a repository of the V1 format to V2 in place, or go on with an interrupted upgrade.

    Data stays as it is. Commits that V1 clients make meanwhile are carried over; later ones fail.
    """
    import icevirt

    report = icevirt.Repository.open(repo).upgrade(
        dry_run=dry_run, delete_unused_v1_files=not keep_v1_files
    )
    return CommandResult(value=report, output=output)
