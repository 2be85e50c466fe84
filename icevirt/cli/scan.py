"""Implement ``icevirt scan`` and ``icevirt catalog``: what files hold, and what scans found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from icevirt.amounts import counted
from icevirt.archive.scanned import DEFAULT
from icevirt.cli import options
from icevirt.cli.declared import asked, takes_options
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output, progress

CatalogTable = StrEnum("CatalogTable", ["files", "arrays", "attributes", "references"])


@takes_options("scan")
def scan(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    sources: options.Sources,
    catalog: Annotated[
        str | None,
        typer.Option(help="The catalog that many files are scanned into; made if absent."),
    ] = None,
    concat_dim: Annotated[
        list[str] | None,
        typer.Option(
            help="The dimension along which builds will concatenate the files; may be repeated. "
            "With --catalog it is a hint, and the default is every dimension whose coordinate "
            "differs between the first good file and the last."
        ),
    ] = None,
    access: options.Access = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
    **chosen: Any,
) -> CommandResult:
    """Show what a build would find in a file, or with --catalog scan many files for builds.

    Builds may combine the files of a catalog in any way. --concat-dim, --labels, --data-vars,
    --pad, --tolerance and --rename are hints: the scan takes what such a build needs while each
    file is open. A build that needs more opens each file once more, and the catalog keeps what
    it took.

    With --catalog the status is 1 when more files are bad than --max-bad-files.
    """
    import icevirt

    how = asked(ctx, None, chosen, concat_dim=concat_dim or None, access=dict(access or ()))
    if catalog is None:
        if len(sources) != 1 or sources[0] == "-" or sources[0].startswith("@"):
            raise typer.BadParameter("several files need a catalog: pass --catalog")
        how.pop("combine_options", None)
        limited = {"file_timeout": DEFAULT.seconds, **how.pop("scan_options", {})}
        scanned = icevirt.scan_file(sources[0], scan_options=limited, **how)
        return CommandResult(value=scanned, output=output, quiet=quiet)
    with progress(quiet=quiet) as listener:
        report = icevirt.scan_files(sources, catalog, progress=listener, **how)
    return CommandResult(value=report, output=output, quiet=quiet, status=0 if report.ok else 1)


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
