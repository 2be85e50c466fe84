"""Implement ``icevirt info``, ``check``, ``verify`` and ``upgrade``: commands over a repository."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.options import Authorize, Quiet
from icevirt.cli.output import CommandResult, Output, OutputOption, progress


def info(
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    branch: Annotated[str | None, typer.Option(help="The branch to show; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to show.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to show.")] = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show what a repository holds: its groups and arrays, and where their chunks lie."""
    import icevirt

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    return CommandResult(
        value=icevirt.info(repo, branch=branch, tag=tag, snapshot_id=snapshot_id), output=output
    )


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
            authorize_virtual_chunk_access=dict(authorize or ()),
            progress=tell,
        )
    return CommandResult(value=report, output=output, quiet=quiet, status=0 if report.ok else 1)


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
