"""Implement ``icevirt verify``: compare a repository with its source files."""

from __future__ import annotations

from typing import Annotated

import typer

from icevirt.cli.options import Authorize, Quiet
from icevirt.cli.output import CommandResult, Output, OutputOption, progress


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
