"""Implement ``icevirt update``: a dataset becomes what its archive is now."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from icevirt.cli import options
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output, progress
from icevirt.cli.statuses import HELD

Vanished = StrEnum("Vanished", ["refuse", "missing", "remove"])
IfRunning = StrEnum("IfRunning", ["wait", "skip"])


def update(  # noqa: PLR0917 - each is an option of the command
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            "-f",
            help="A recipe of yours (TOML) that names the sources; by default the one that the last"
            " build left in the repository, if you made it on this machine.",
        ),
    ] = None,
    trust_recipe: options.TrustRecipe = None,
    authorize: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<PREFIX>",
            help="A directory or URL prefix below which files may be read, beside those that the"
            " recipe names; may be repeated.",
        ),
    ] = None,
    group: options.Group = "/",
    branch: Annotated[str, typer.Option(help="The branch to commit to.")] = "main",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what an update would do, and commit nothing. What is scanned for it stays"
            " in the catalog.",
        ),
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            metavar="<PATH>",
            help="Of directories, prefixes and patterns, look only at files whose path below the"
            " directory does not sort before this text, like 2024/11.",
        ),
    ] = "",
    settle: Annotated[
        str | None,
        typer.Option(
            metavar="<TIME>",
            help="How long ago a file must have changed for it to be taken, like 60s or 10m;"
            " younger files wait.",
        ),
    ] = None,
    vanished: Annotated[
        Vanished,
        typer.Option(
            help="How files are handled that are gone: refuse to update, let their steps read as"
            " missing values, or remove their steps."
        ),
    ] = Vanished.refuse,
    max_vanished: Annotated[
        str | None,
        typer.Option(
            metavar="<N|N%>",
            help="How many files may be gone; by default one, or 1% of the dataset's.",
        ),
    ] = None,
    replaces: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<FINAL=PROVISIONAL>",
            help="Patterns of names of final files, and of the provisional files that they"
            " replace, like 'era5_*.nc=era5t_*.nc'; may be repeated.",
        ),
    ] = None,
    rescan: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<PATTERN>",
            help="Scan files of these names again, though they did not change; may be repeated.",
        ),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<NAME[,NAME]>",
            help="Make only these variables anew, from all files of the dataset; the files are"
            " scanned again, or only those that --rescan names; may be repeated.",
        ),
    ] = None,
    drop_others: Annotated[
        bool,
        typer.Option(
            "--drop-others",
            help="Remove what others stored or added in the dataset where it does not fit the files"
            " any more; older snapshots keep it. By default that stops the update.",
        ),
    ] = False,
    if_running: Annotated[
        IfRunning,
        typer.Option(help="Wait for another update of the dataset to end, or skip this one."),
    ] = IfRunning.wait,
    fail_on_held: Annotated[
        bool,
        typer.Option(
            "--fail-on-held",
            help=f"End with the status {HELD} where files are held back.",
        ),
    ] = False,
    message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
    access: options.Access = None,
    catalog: options.Catalog = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
) -> CommandResult:
    """List the sources of a dataset again, and commit what is new, corrected or gone.

    Files that cannot be scanned or do not fit are held back, and tried again by the next update.
    """
    import icevirt

    given: dict[str, Any] = {
        "recipe": recipe,
        "trust_recipe": trust_recipe,
        "authorize": authorize or (),
        "group": group,
        "branch": branch,
        "dry_run": dry_run,
        "since": since,
        "settle": settle,
        "vanished": vanished.value,
        "max_vanished": max_vanished,
        "replaces": dict(map(_rule, replaces or ())),
        "rescan": rescan or (),
        "variables": variables or (),
        "drop_others": drop_others,
        "if_running": if_running.value,
        "message": message,
        "access": dict(access or ()),
        "catalog": catalog,
    }
    with progress(quiet=quiet) as listener:
        report = icevirt.update(repo, **given, progress=listener)
    status = HELD if fail_on_held and report.held else 0
    return CommandResult(value=report, output=output, quiet=quiet, status=status)


def _rule(text: str) -> tuple[str, str]:
    final, mark, provisional = text.partition("=")
    if not mark:
        raise typer.BadParameter(f"{text!r}: write --replaces 'FINAL=PROVISIONAL'")
    return final, provisional
