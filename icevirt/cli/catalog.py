"""Implement ``icevirt catalog``: what scans found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from icevirt.cli.output import CommandResult, Output, OutputOption


class CatalogTable(StrEnum):
    """The tables of a catalog's view."""

    files = "files"
    arrays = "arrays"
    attributes = "attributes"
    references = "references"


def catalog(
    catalog: Annotated[str, typer.Argument(help="The catalog, a path or URL.")],
    scan: Annotated[
        str | None, typer.Option(help="Only what this scan found, by its key in the summary.")
    ] = None,
    table: Annotated[
        CatalogTable | None,
        typer.Option(help="Write this table, one row per file, array or reference."),
    ] = None,
    to: Annotated[str | None, typer.Option(help="The Parquet file to write the table to.")] = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show what a catalog holds, or with --table and --to write a table of it as Parquet."""
    import icevirt

    if (table is None) != (to is None):
        raise typer.BadParameter("give --table and --to together")
    view = icevirt.catalog_view(catalog, scan=scan)
    if table is not None and to is not None:
        rows = view.write_parquet(table.value, to)
        return CommandResult(value={"table": table.value, "rows": rows, "to": to}, output=output)
    return CommandResult(value=view.summary(), output=output)
