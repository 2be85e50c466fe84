"""Implement ``icevirt info``, ``check``, ``verify`` and ``upgrade``: commands over a repository."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from icevirt.cli.options import Authorize, OutputOption, Quiet, ReportOption
from icevirt.cli.output import CommandResult, Output, progress

Chunks = StrEnum("Chunks", ["copy", "reference"])  # what happens to those that are stored


def info(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    branch: Annotated[str | None, typer.Option(help="The branch to show; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to show.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to show.")] = None,
    report: ReportOption = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show what a repository holds: its groups and arrays, and where their chunks lie."""
    import icevirt

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    value = icevirt.info(repo, branch=branch, tag=tag, snapshot_id=snapshot_id)
    if report is not None:
        icevirt.to_html(repo, report, snapshot_id=value.snapshot_id)
    return CommandResult(value=value, output=output)


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


def verify(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    branch: Annotated[str | None, typer.Option(help="The branch to verify; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to verify.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to verify.")] = None,
    references: Annotated[
        bool, typer.Option("--references", help="Check every file: existence, length, checksum.")
    ] = False,
    values: Annotated[
        int | None,
        typer.Option(
            min=0, help="Compare this many random chunks with what h5py or netCDF4 reads."
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Compare all chunks.")] = False,
    seed: Annotated[int | None, typer.Option(help="Repeat the sample of an earlier run.")] = None,
    authorize: Authorize = None,
    output: OutputOption = Output.text,
    quiet: Quiet = False,
) -> CommandResult:
    """Compare a repository with its source files; the status is 1 when something differs.

    Without --references, --values or --full: all references, and the values of 100 chunks.
    """
    import icevirt

    access = dict(authorize or ())
    with progress(quiet=quiet or output is Output.json) as tell:
        report = icevirt.verify(
            repo,
            branch=branch,
            tag=tag,
            snapshot_id=snapshot_id,
            references=references or None,
            values=values,
            full=full,
            seed=seed,
            authorize_virtual_chunk_access=access,
            progress=tell,
        )
    return CommandResult(value=report, output=output, quiet=quiet, status=0 if report.ok else 1)


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
