"""Merge a recipe with the options of the command line, which win."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from icevirt.api.renamed import OBJECTS
from icevirt.cli.declared import grouped, takes

type Command = Literal["build", "plan", "scan"]

RecipeFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        help="A recipe (TOML) with the arguments; options on the command line override it.",
    ),
]
WriteRecipe = Annotated[
    str | None,
    typer.Option(help="Write the plan's recipe, for icevirt build -f, to this file."),
]

_ONLY: dict[Command, dict[str, tuple[str, ...]]] = {
    "build": {"scan_options": (), "combine_options": (), "commit_options": ()},
    "plan": {
        "scan_options": (),
        "combine_options": (),
        "commit_options": ("branch", "publish_as", "containers"),
    },
    "scan": {
        "scan_options": (),
        "combine_options": ("labels", "data_vars", "pad", "tolerance", "rename"),
    },
}
"""Which options of which objects a command takes; () for all of them."""


def takes_options(command: Command) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of the objects that its function takes."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for options in OBJECTS:
            if (only := _ONLY[command].get(options.KEYWORD)) is not None:
                function = takes(options, only)(function)
        return function

    return add


def asked(
    ctx: typer.Context, recipe: str | None, chosen: dict[str, Any], /, **given: Any
) -> dict[str, Any]:
    """Return the arguments of a call: those of a recipe, and what the command line says.

    Raises:
        typer.BadParameter: An option has a value that it does not take.
        InvalidInputError: The recipe is wrong.
    """
    said = {name: value for name, value in chosen.items() if _is_said(ctx, name)}
    options = grouped(OBJECTS, said)
    if recipe is None:
        return {**given, **options}
    import icevirt

    held = icevirt.load_recipe(recipe, call="plan" if ctx.info_name == "plan" else "build")
    made = {**given, **{name: value for name, value in held.items() if not _is_said(ctx, name)}}
    for each in OBJECTS:
        merged = {**held.get(each.KEYWORD, {}), **options.get(each.KEYWORD, {})}
        if merged:
            made[each.KEYWORD] = merged
    return made


def _is_said(ctx: typer.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def require_sources(given: dict[str, Any]) -> None:
    """Take no sources for all that was scanned into the catalog; without one, they are missing."""
    given["sources"] = given.get("sources") or None
    if given.get("catalog") is None:
        require(given, sources="SOURCES...")


def require(given: dict[str, Any], **metavars: str) -> None:
    """End the program with status 2 where an argument is neither given nor in a recipe."""
    for name, metavar in metavars.items():
        if not given.get(name):
            raise typer.BadParameter(f"Missing argument '{metavar}', or a recipe (-f) that has it.")
