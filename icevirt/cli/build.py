"""``icevirt build``: from files to a repository."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from icevirt.cli.output import Answer, Output, OutputOption, progress

if TYPE_CHECKING:
    from icevirt.logic.attributes import CombineAttrs

_MANY = 256 * 1024 * 1024


class Mode(StrEnum):
    """What happens to nodes that the group holds already."""

    refuse = "w-"
    overwrite = "w"


def build(  # noqa: PLR0917 - each is an option of the command
    sources: Annotated[
        list[str], typer.Argument(help="Files, directories, globs or file:// URLs to build from.")
    ],
    repo: Annotated[
        str, typer.Argument(help="The repository, a path or file:// URL; made if absent.")
    ],
    concat_dim: Annotated[
        str | None, typer.Option(help="The dimension along which files follow one another.")
    ] = None,
    group: Annotated[str, typer.Option(help="The group of the repository to build into.")] = "/",
    branch: Annotated[str, typer.Option(help="The branch to commit to.")] = "main",
    message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
    mode: Annotated[
        Mode, typer.Option(help="w- refuses a group that holds nodes, w replaces them.")
    ] = Mode.refuse,
    drop_variable: Annotated[
        list[str] | None, typer.Option(help="A variable to leave out; may be repeated.")
    ] = None,
    combine_attrs: Annotated[
        str, typer.Option(help="What becomes of attributes that differ, in xarray's words.")
    ] = "override",
    max_bad_files: Annotated[
        int, typer.Option(min=0, help="How many unreadable files may be left out.")
    ] = 0,
    max_native_bytes: Annotated[
        int,
        typer.Option(
            min=0, help="How many bytes of a file may be copied that cannot be referenced."
        ),
    ] = _MANY,
    catalog: Annotated[
        str | None, typer.Option(help="A directory to keep the scan in, for later builds.")
    ] = None,
    output: OutputOption = Output.text,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print neither progress nor the report.")
    ] = False,
) -> Answer:
    """Build a virtual dataset over files, without copying them."""
    import icevirt

    with progress(quiet=quiet) as listener:
        report = icevirt.build(
            sources,
            repo,
            concat_dim=concat_dim,
            group=group,
            branch=branch,
            message=message,
            mode=mode.value,
            drop_variables=tuple(drop_variable or ()),
            combine_attrs=cast("CombineAttrs", combine_attrs),  # build checks it
            max_bad_files=max_bad_files,
            max_native_bytes=max_native_bytes,
            catalog=catalog,
            progress=listener,
        )
    return Answer(value=report, output=output, quiet=quiet)
