"""Implement the commands that are made from no function: catalog, branch, tag, explain, a path."""

from __future__ import annotations

import os
import shlex
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import icevirt
from icevirt.amounts import count_exactly
from icevirt.cli.commands import FUNCTIONS
from icevirt.cli.completion import complete_codes
from icevirt.cli.functions import command_of
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output
from icevirt.display.explanations import explanation, explanations


class NameCommands(TyperGroup):
    """Commands that come before the repository; a line without one gets the line with it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or say what the line lacks."""
        repo, *name = args
        if self.get_command(ctx, repo) is None and not get_close_matches(repo, self.commands):
            meant = ["icevirt", str(self.name), "create" if name else "list", repo, *name]
            ctx.fail(f"No such command {repo!r}. Did you mean `{shlex.join(meant)}`?")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands, with all of the first sentence of each."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1000)) for name, each in self.commands.items()]
            )


branch = typer.Typer(
    cls=NameCommands,
    help="List, create, delete and rename branches.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
tag = typer.Typer(
    cls=NameCommands,
    help="List, create and delete tags; names of deleted ones stay taken.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


for words, command in FUNCTIONS.items():
    group, _, name = words.partition(" ")
    if name:
        {"branch": branch, "tag": tag}[group].command(name)(command_of(command))


def spark_script() -> None:
    """Print the path of what spark-submit runs: spark-submit $(icevirt spark-script) build ..."""
    typer.echo(os.path.join(os.path.dirname(os.path.abspath(icevirt.__file__)), "__main__.py"))


def explain(
    code: Annotated[
        str,
        typer.Argument(
            help="The code of an error, like combine, or its class, like CombineError. "
            "Default: list all codes.",
            autocompletion=complete_codes,
        ),
    ] = "",
    output: OutputOption = Output.text,
) -> CommandResult:
    """Explain the code of an error: what it means, usual causes, and what to do."""
    return CommandResult(value=explanation(code) if code else explanations(), output=output)


CatalogTable = StrEnum("CatalogTable", ["files", "arrays", "attributes", "references"])


def catalog(  # noqa: PLR0917 - each is an option of the command
    catalog: Annotated[str, typer.Argument(help="The catalog, a path or URL.")],
    scan: Annotated[
        str | None, typer.Option(help="Only what this scan found, by its key in the summary.")
    ] = None,
    table: Annotated[
        CatalogTable | None,
        typer.Option(help="Write this table, one row per file, array or reference."),
    ] = None,
    to: Annotated[str | None, typer.Option(help="The Parquet file to write the table to.")] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<FILE>",
            help="Let this file be scanned again by the next scan; may be repeated.",
        ),
    ] = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show what a catalog holds, write a table of it as Parquet, or forget scans of files."""
    import icevirt

    if (table is None) != (to is None):
        raise typer.BadParameter("give --table and --to together")
    if forget:
        if table is not None:
            raise typer.BadParameter("give --forget alone")
        scans = icevirt.forget_scans(catalog, forget)
        what = f"{count_exactly(scans, 'scan')} of {count_exactly(len(forget), 'file')} forgotten"
        return _finish(output, what, forgotten=scans, files=len(forget))
    view = icevirt.catalog_view(catalog, scan=scan)
    if table is not None and to is not None:
        rows = view.write_parquet(table.value, to)
        what = f"{count_exactly(rows, 'row')} of the table {table.value} written to {to}"
        return _finish(output, what, table=table.value, rows=rows, to=to)
    return CommandResult(value=view.summary(), output=output)


def _finish(output: Output, what: str, **values: object) -> CommandResult:
    """Return what was done in words, and for programs its values."""
    return CommandResult(value=values if output is Output.json else what, output=output)
