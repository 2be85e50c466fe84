"""Implement ``icevirt log``, ``diff``, ``undo``, ``redo``, ``reset``, ``ops-log``, ``source``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from icevirt.cli.options import Authorize, OutputOption
from icevirt.cli.output import CommandResult, Output

Repo = Annotated[str, typer.Argument(help="The repository, a path or URL.")]
Rows = Annotated[int, typer.Option("-n", min=1, help="How many to show.")]
Branch = Annotated[str, typer.Option(help="The branch that moves.")]
Expect = Annotated[
    str | None,
    typer.Option(
        metavar="SNAPSHOT", help="Refuse if the tip of the branch is not this snapshot any more."
    ),
]


def _labels(given: object) -> tuple[tuple[str, str], ...]:
    """Read DIM=LABEL, or several with commas between them."""
    pairs = [part.partition("=") for part in str(given).split(",")]
    if not all(name.strip() and sign and label for name, sign, label in pairs):
        raise typer.BadParameter("write it as DIM=LABEL, or DIM=LABEL,DIM=LABEL")
    return tuple((name.strip(), label.strip()) for name, _, label in pairs)


At = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_labels,
        metavar="<DIM=LABEL>",
        help="A label of a dimension's coordinate, or the index where it has none; several with"
        " commas between them; may be repeated. Of other dimensions all chunks are shown.",
    ),
]
_VERSION = "a branch, a tag, a snapshot id or its first letters; NAME~2 is two commits before"


def log(  # noqa: PLR0917 - each is an option of the command
    repo: Repo,
    branch: Annotated[str | None, typer.Option(help="The branch to show; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to show.")] = None,
    snapshot_id: Annotated[
        str | None, typer.Option(help="The snapshot to begin with, as the page before names it.")
    ] = None,
    number: Rows = 20,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show the history, newest first: snapshots, times in UTC, messages, and what builds added."""
    import icevirt

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    value = icevirt.log(repo, branch=branch, tag=tag, snapshot_id=snapshot_id, n=number)
    return CommandResult(value=value, output=output)


def diff(
    repo: Repo,
    before: Annotated[str, typer.Argument(help=f"The first version: {_VERSION}.")],
    after: Annotated[str, typer.Argument(help="The second version; default main.")] = "main",
    output: OutputOption = Output.text,
) -> CommandResult:
    """Compare two versions: groups, arrays, chunks written, files and steps of the archive."""
    import icevirt

    return CommandResult(value=icevirt.diff(repo, before, after), output=output)


def undo(
    repo: Repo,
    branch: Branch = "main",
    expect: Expect = None,
    exclude: Annotated[
        bool,
        typer.Option(
            "--exclude", help="Also keep the files out of later appends that the build had added."
        ),
    ] = False,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Move a branch back to the parent of its tip; redo takes it back."""
    import icevirt

    moved = icevirt.undo(repo, branch=branch, expect=expect, exclude=exclude)
    return CommandResult(value=moved, output=output)


def redo(
    repo: Repo, branch: Branch = "main", expect: Expect = None, output: OutputOption = Output.text
) -> CommandResult:
    """Undo the last undo of a branch, which the ops log remembers."""
    import icevirt

    return CommandResult(value=icevirt.redo(repo, branch=branch, expect=expect), output=output)


def reset(
    repo: Repo,
    snapshot: Annotated[str, typer.Argument(help=f"Where the branch goes: {_VERSION}.")],
    branch: Branch,
    expect: Expect = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Point a branch at another snapshot."""
    import icevirt

    moved = icevirt.reset(repo, snapshot, branch=branch, expect=expect)
    return CommandResult(value=moved, output=output)


def ops_log(repo: Repo, number: Rows = 20, output: OutputOption = Output.text) -> CommandResult:
    """Show what was done to a repository, newest first: commits, resets, tags, configuration."""
    import icevirt

    return CommandResult(value=icevirt.ops_log(repo, n=number), output=output)


def source(  # noqa: PLR0917 - each is an option of the command
    repo: Repo,
    variable: Annotated[str, typer.Argument(help="The array, like tas or /group/tas.")],
    at: At = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Take the nearest label where none is equal.")
    ] = False,
    branch: Annotated[str | None, typer.Option(help="The branch to look at; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to look at.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to look at.")] = None,
    authorize: Authorize = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show the file and bytes that a value is decoded from, and the commit that wrote them."""
    import icevirt

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    value = icevirt.source(
        repo,
        variable,
        at=dict(pair for pairs in at or () for pair in pairs),
        nearest=nearest,
        branch=branch,
        tag=tag,
        snapshot_id=snapshot_id,
        authorize_virtual_chunk_access=dict(authorize or ()),
    )
    return CommandResult(value=value, output=output)
