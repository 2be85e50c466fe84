"""Implement ``icevirt upgrade``: a repository of an older format becomes one of V2."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from icevirt.cli.options import OutputOption, Quiet
from icevirt.cli.output import CommandResult, Output, progress

Chunks = StrEnum("Chunks", ["copy", "reference"])  # what happens to those that are stored


def upgrade(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    new: Annotated[
        str | None,
        typer.Argument(
            help="A new path or URL: the upgrade is a copy. Formats before V1 need it.",
            show_default=False,
        ),
    ] = None,
    chunks: Annotated[
        Chunks,
        typer.Option(
            help="With NEW: copy stored chunks, or reference them in the old repository, which then"
            " has to stay."
        ),
    ] = Chunks.copy,
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
    quiet: Quiet = False,
) -> CommandResult:
    """Upgrade a repository of an older format to V2; run again what was interrupted.

    Without NEW, a repository of the V1 format is upgraded in place: data stays as it is, commits
    that V1 clients make meanwhile are carried over, later ones fail. With NEW, a repository of any
    older format is copied; the status is 1 when something of it could not be carried over.
    """
    import icevirt

    if new is None:
        if chunks is not Chunks.copy:
            raise typer.BadParameter("--chunks needs NEW, the path of the copy")
        opened = icevirt.Repository.open(repo)
        done = opened.upgrade(dry_run=dry_run, delete_unused_v1_files=not keep_v1_files)
        return CommandResult(value=done, output=output)
    if keep_v1_files:
        raise typer.BadParameter("--keep-v1-files is for an upgrade in place: the copy keeps all")
    with progress(quiet=quiet or output is Output.json) as tell:
        report = icevirt.upgrade(
            repo,
            new,
            chunks="copy" if chunks is Chunks.copy else "reference",
            dry_run=dry_run,
            progress=tell,
        )
    return CommandResult(value=report, output=output, quiet=quiet, status=0 if report.ok else 1)
