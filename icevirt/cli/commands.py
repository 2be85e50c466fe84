"""Say what the commands of functions have of their own: arguments, notations, exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any

import typer

from icevirt.cli.functions import FunctionCommand
from icevirt.cli.options import SOURCES, Notation
from icevirt.cli.statuses import BEHIND, HELD
from icevirt.display.fixes import quoted

# -- notations ------------------------------------------------------------------------------------


def _places(given: object) -> tuple[tuple[str, str], ...]:
    """Read DIM=LABEL, or several with commas between them."""
    found = [part.partition("=") for part in str(given).split(",")]
    if not all(name.strip() and sign and label for name, sign, label in found):
        raise typer.BadParameter("write it as DIM=LABEL, or DIM=LABEL,DIM=LABEL")
    return tuple((name.strip(), label.strip()) for name, _, label in found)


def _length(given: object) -> tuple[str, int]:
    """Read DIM=LENGTH."""
    name, _, text = str(given).partition("=")
    try:
        return name, int(text)
    except ValueError as error:
        several = " ".join(f"--chunks {each}" for each in map(quoted, str(given).split(",")))
        again = f"; repeat the option: {several}" if "," in text else ""
        raise typer.BadParameter(f"write it as DIM=LENGTH, like time=365{again}") from error


def _region(given: object) -> tuple[str, Any]:
    """Read DIM=LABEL or DIM=FIRST:LAST; numbers are numbers, unless they may be years."""
    name, sign, text = str(given).partition("=")
    if not (name and sign and text):
        raise typer.BadParameter("write it as DIM=LABEL or DIM=FIRST:LAST")
    parts = text.split(":") if text.count(":") == 1 else [text]
    return name, slice(*parts) if len(parts) == 2 else text


def _compared(given: object) -> int | str:
    text = str(given)
    if text == "all":
        return text
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise typer.BadParameter("give a number of references, or all")


def _replacement(given: object) -> tuple[str, str]:
    final, mark, provisional = str(given).partition("=")
    if not mark:
        raise typer.BadParameter(f"{str(given)!r}: write --replaces 'FINAL=PROVISIONAL'")
    return final, provisional


def _all_pairs(given: Iterable[Iterable[Any]]) -> dict[Any, Any]:
    return dict(pair for some in given for pair in some)


# -- statuses -------------------------------------------------------------------------------------


def _failed(report: Any) -> int:
    return 0 if report.ok else 1


def _held(report: Any, *, fail_on_held: bool) -> int:
    return HELD if fail_on_held and report.held else 0


def _behind(found: Any, *, max_lag: str | None, max_age: str | None) -> int:
    """Say on stderr in what a dataset is further behind than it may be."""
    limits = (("lag", _time(max_lag)), ("age", _time(max_age)))
    behind = [
        name
        for name, limit in limits
        if limit is not None and ((value := getattr(found, name)) is None or value > limit)
    ]
    for name in behind:
        sys.stderr.write(f"icevirt: {name} of the dataset: {getattr(found, name) or 'unknown'}\n")
    return BEHIND if behind else 0


def _time(given: str | None) -> timedelta | None:
    from icevirt.planning.axes.placement import duration_of

    if given is None:
        return None
    if not (found := duration_of(given)):
        raise typer.BadParameter("write a time like 6h or 2D")
    return timedelta(microseconds=found)


# -- commands -------------------------------------------------------------------------------------

_LIMIT = "End with status 5 if the newest step is further behind"
_NAMES = "icevirt.api.history.moves"

FUNCTIONS: dict[str, FunctionCommand] = {
    "append": FunctionCommand(
        function="append",
        arguments=("files", "repo"),
        notations={
            "files": Notation(doc=SOURCES),
            "concat_dim": Notation(
                doc="The dimension to concatenate along, outermost first; by default as the last"
                " build did."
            ),
        },
    ),
    "log": FunctionCommand(function="log", flags={"n": ("-n",)}),
    "ops-log": FunctionCommand(function="ops_log", flags={"n": ("-n",)}),
    "diff": FunctionCommand(function="diff", arguments=("repo", "before", "after")),
    "undo": FunctionCommand(function="undo"),
    "redo": FunctionCommand(function="redo"),
    "reset": FunctionCommand(function="reset", arguments=("repo", "version")),
    "source": FunctionCommand(
        function="source",
        arguments=("repo", "variable"),
        notations={
            "at": Notation(
                metavar="<DIM=LABEL>",
                parser=_places,
                value=_all_pairs,
                doc="A label of a dimension's coordinate, or the index where it has none; several"
                " with commas between them. Of other dimensions all chunks are shown.",
            )
        },
    ),
    "info": FunctionCommand(function="info", has_page=True),
    "check": FunctionCommand(function="check", status=_failed),
    "verify": FunctionCommand(function="verify", status=_failed),
    "status": FunctionCommand(
        function="status",
        more={
            "max_lag": (
                Annotated[
                    str | None,
                    typer.Option(metavar="<time>", help=f"{_LIMIT} the newest file, like 2D."),
                ],
                None,
            ),
            "max_age": (
                Annotated[str | None, typer.Option(metavar="<time>", help=f"{_LIMIT} the clock.")],
                None,
            ),
        },
        status=_behind,
    ),
    "maintain": FunctionCommand(function="maintain", is_confirmed=True),
    "withdraw": FunctionCommand(
        function="withdraw", arguments=("files", "repo"), is_confirmed=True
    ),
    "relocate": FunctionCommand(
        function="relocate",
        arguments=("repo", "old", "new"),
        notations={"compare": Notation(metavar="<number or all>", parser=_compared, repeats=False)},
    ),
    "materialize": FunctionCommand(
        function="materialize",
        arguments=("repo", "variable"),
        notations={
            "chunks": Notation(
                metavar="<DIM=LENGTH>",
                parser=_length,
                value=dict,
                doc="Cut the variable into other chunks, of so many elements.",
            ),
            "where": Notation(
                metavar="<DIM=LABEL[:LAST]>",
                parser=_region,
                value=dict,
                doc="Only a region, by labels of coordinates, like time=2024 or time=2020:2024; it"
                " is extended to whole chunks.",
            ),
        },
    ),
    "export": FunctionCommand(
        function="export",
        arguments=("repo", "path"),
        flags={"variables": ("--variable",), "drop_variables": ("--drop-variable",)},
    ),
    "update": FunctionCommand(
        function="update",
        flags={"recipe": ("--recipe", "-f")},
        notations={
            "replaces": Notation(
                metavar="<FINAL=PROVISIONAL>",
                parser=_replacement,
                value=dict,
                doc="Patterns of names of final files, and of the provisional files that they"
                " replace, like 'era5_*.nc=era5t_*.nc'.",
            )
        },
        more={
            "fail_on_held": (
                Annotated[
                    bool,
                    typer.Option(
                        "--fail-on-held",
                        help=f"End with the status {HELD} where files are held back.",
                    ),
                ],
                False,
            )
        },
        status=_held,
    ),
    "branch list": FunctionCommand(function=f"{_NAMES}:branches"),
    "branch create": FunctionCommand(
        function=f"{_NAMES}:create_branch", arguments=("repo", "name", "version")
    ),
    "branch delete": FunctionCommand(
        function=f"{_NAMES}:delete_branch", arguments=("repo", "name")
    ),
    "branch rename": FunctionCommand(
        function=f"{_NAMES}:rename_branch", arguments=("repo", "name", "new")
    ),
    "tag list": FunctionCommand(function=f"{_NAMES}:tags"),
    "tag create": FunctionCommand(
        function=f"{_NAMES}:create_tag", arguments=("repo", "name", "version")
    ),
    "tag delete": FunctionCommand(function=f"{_NAMES}:delete_tag", arguments=("repo", "name")),
}
"""The commands that are made from functions, by their words."""
