"""Implement ``icevirt scan`` and ``icevirt catalog``: what files hold, and what scans found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from icevirt.amounts import counted
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output

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
        what = f"{counted(scans, 'scan')} of {counted(len(forget), 'file')} forgotten"
        return _done(output, what, forgotten=scans, files=len(forget))
    view = icevirt.catalog_view(catalog, scan=scan)
    if table is not None and to is not None:
        rows = view.write_parquet(table.value, to)
        what = f"{counted(rows, 'row')} of the table {table.value} written to {to}"
        return _done(output, what, table=table.value, rows=rows, to=to)
    return CommandResult(value=view.summary(), output=output)


def _done(output: Output, what: str, **values: object) -> CommandResult:
    """Return what was done in words, and for programs its values."""
    return CommandResult(value=values if output is Output.json else what, output=output)
