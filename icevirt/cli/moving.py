"""Implement ``icevirt relocate`` and ``materialize``: commands that change where chunks lie."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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


def _length(given: object) -> tuple[str, int]:
    """Read DIM=LENGTH."""
    name, _, text = str(given).partition("=")
    try:
        return name, int(text)
    except ValueError as error:
        raise typer.BadParameter("write it as DIM=LENGTH, like time=365") from error


def _labels(given: object) -> tuple[str, Any]:
    """Read DIM=LABEL or DIM=FIRST:LAST; numbers are numbers, unless they may be years."""
    name, sign, text = str(given).partition("=")
    if not (name and sign and text):
        raise typer.BadParameter("write it as DIM=LABEL or DIM=FIRST:LAST")
    parts = text.split(":") if text.count(":") == 1 else [text]
    return name, slice(*parts) if len(parts) == 2 else text


def materialize(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    variable: Annotated[str, typer.Argument(help="The path of the array.")],
    chunks: Annotated[
        list[Any] | None,
        typer.Option(
            parser=_length,
            metavar="<DIM=LENGTH>",
            help="Cut the variable into other chunks, of so many elements; may be repeated.",
        ),
    ] = None,
    where: Annotated[
        list[Any] | None,
        typer.Option(
            parser=_labels,
            metavar="<DIM=LABEL[:LAST]>",
            help="Only a region, by labels of coordinates, like time=2024 or time=2020:2024; it is"
            " extended to whole chunks; may be repeated.",
        ),
    ] = None,
    codec: Annotated[
        Literal["zstd"] | None, typer.Option(help="Encode by zstd, not by the array's codecs.")
    ] = None,
    branch: Annotated[str, typer.Option(help="The branch to commit to.")] = "main",
    authorize: Authorize = None,
    message: Annotated[str | None, typer.Option(help="The commit message.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be read and stored.")
    ] = False,
    output: OutputOption = Output.text,
    quiet: Quiet = False,
) -> CommandResult:
    """Store a variable, or a region of it, in the repository; the rest stays virtual."""
    import icevirt

    with progress(quiet=quiet or output is Output.json) as tell:
        report = icevirt.materialize(
            repo,
            variable,
            chunks=dict(chunks or ()),
            where=dict(where or ()),
            codec=codec,
            branch=branch,
            authorize_virtual_chunk_access=dict(authorize or ()),
            message=message,
            dry_run=dry_run,
            progress=tell,
        )
    return CommandResult(value=report, output=output, quiet=quiet)
