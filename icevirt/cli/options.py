"""Define options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

_SOURCES: Any = typer.Argument(
    help="Files, directories, globs or URLs; @FILE for a list of them (text, CSV, JSON lines,"
    " Parquet, STAC items, the manifest of an S3 Inventory), - for a list on stdin."
)
Sources = Annotated[list[str], _SOURCES]
OptionalSources = Annotated[
    list[str] | None,
    typer.Argument(help=f"{_SOURCES.help} Default: all files that were scanned into --catalog."),
]
ConcatDim = Annotated[
    list[str] | None,
    typer.Option(
        help="The dimension to concatenate along; may be repeated, outermost first. Default: "
        "every dimension whose coordinate differs between the first good file and the last."
    ),
]
Group = Annotated[str, typer.Option(help="The group of the repository to build into.")]


def _access(given: object) -> tuple[str, str]:
    """Read PREFIX=HOW; secrets have no place on a command line."""
    from icevirt.connect.credentials.keywords import is_named
    from icevirt.objects.source_access import REQUESTER_PAYS

    prefix, _, how = str(given).rpartition("=")
    if not prefix or not (is_named(how) or how == REQUESTER_PAYS):
        raise typer.BadParameter(
            "write it as PREFIX=HOW, HOW being anonymous, environment, netrc, requester-pays or"
            " package.module:function"
        )
    return prefix, how


Access = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_access,
        metavar="<PREFIX=HOW>",
        help="How to access files below a URL prefix: anonymous, environment (the default), "
        "netrc, requester-pays, or package.module:function, which returns credentials and is "
        "called again before they expire; may be repeated.",
    ),
]


def _authorized(given: object) -> tuple[str | tuple[str, str], str | None]:
    """Read PREFIX, PREFIX=ENDPOINT, PREFIX=HOW or PREFIX=ENDPOINT=HOW."""
    from icevirt.connect.credentials.keywords import is_named

    rest, how = str(given), None
    if is_named(rest.rpartition("=")[2]):
        rest, _, how = rest.rpartition("=")
    found = re.fullmatch(r"(.+)=(https?://[^=]+)", rest)
    return (rest if found is None else (found[1], found[2])), how


Authorize = Annotated[
    list[Any] | None,
    typer.Option(
        parser=_authorized,
        metavar="<PREFIX[=ENDPOINT][=HOW]>",
        help="A URL prefix below which files may be read, with the server if the repository names "
        "one, and with credentials as for the --access of build; may be repeated.",
    ),
]
Catalog = Annotated[
    str | None, typer.Option(help="A directory to keep the scan in, for later builds.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print neither progress nor the report.")
]
