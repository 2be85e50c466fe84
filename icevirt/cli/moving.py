"""Implement ``icevirt relocate``, ``materialize`` and ``export``: where chunks lie."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from icevirt.cli.options import Authorize, OutputOption, Quiet, TrustRecipe
from icevirt.cli.output import CommandResult, Output, progress
from icevirt.display.fixes import quoted


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
    trust_recipe: TrustRecipe = None,
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
            trust_recipe=trust_recipe,
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
        again = f"; repeat the option: {_repeated(str(given))}" if "," in text else ""
        raise typer.BadParameter(f"write it as DIM=LENGTH, like time=365{again}") from error


def _repeated(several: str) -> str:
    """Return values with commas between them as the option takes them."""
    return " ".join(f"--chunks {each}" for each in map(quoted, several.split(",")))


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


def export(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    path: Annotated[
        str,
        typer.Argument(
            help="The JSON file, which is replaced, or the Parquet directory, which must not exist."
        ),
    ],
    to: Annotated[Literal["kerchunk"], typer.Option(help="The format.")] = "kerchunk",
    format_: Annotated[
        Literal["json", "parquet"] | None,
        typer.Option("--format", help="Default: as the suffix (.json, .parq, .parquet) says."),
    ] = None,
    zarr_format: Annotated[
        int,
        typer.Option(
            min=2,
            max=3,
            help='Of the metadata. 3 holds every array, but only in JSON, and engine="kerchunk" of'
            " xarray reads 2 alone.",
        ),
    ] = 2,
    branch: Annotated[str | None, typer.Option(help="The branch to export; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to export.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to export.")] = None,
    group: Annotated[
        str, typer.Option(help="The group, with everything below it, or one array.")
    ] = "/",
    variable: Annotated[
        list[str] | None,
        typer.Option(help="Write only this array, by name or absolute path; may be repeated."),
    ] = None,
    drop_variable: Annotated[
        list[str] | None,
        typer.Option(help="Leave this array out, by name or absolute path; may be repeated."),
    ] = None,
    inline_native: Annotated[
        int | None,
        typer.Option(
            min=0, help="Maximum bytes per array of repository chunks to embed; default 1 MiB."
        ),
    ] = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Write the references of one version of a repository as kerchunk's JSON or Parquet."""
    import icevirt
    from icevirt.access.interop.export import INLINE_NATIVE

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    report = icevirt.export(
        repo,
        path,
        to=to,
        format=format_,
        zarr_format=3 if zarr_format == 3 else 2,
        branch=branch,
        tag=tag,
        snapshot_id=snapshot_id,
        group=group,
        variables=variable or (),
        drop_variables=drop_variable or (),
        inline_native=INLINE_NATIVE if inline_native is None else inline_native,
    )
    return CommandResult(value=report, output=output)
