"""Options of commands that take a recipe, which the command line may overrule."""

from __future__ import annotations

from typing import Annotated, Any

import typer

RecipeFile = Annotated[
    str | None,
    typer.Option(
        "--file", "-f", help="A recipe (TOML) with the arguments; options given here count more."
    ),
]
WriteRecipe = Annotated[
    str | None,
    typer.Option(help="Write a recipe of what was planned, for icevirt build -f, to this file."),
]
_OPTIONS = {
    "variables": "variable",
    "drop_variables": "drop_variable",
    "attrs": "attr",
    "containers": "container",
    "float_variables": "float_variable",
}
"""Options that are called otherwise than the arguments of Python."""


def overruled(ctx: typer.Context, recipe: str | None, /, **given: Any) -> dict[str, Any]:
    """Return the arguments of a recipe, and those that were given on the command line."""
    if recipe is None:
        return given
    import icevirt

    held = icevirt.load_recipe(recipe, call="plan" if ctx.info_name == "plan" else "build")
    said = {name for name in given if _is_said(ctx, _OPTIONS.get(name, name))}
    return {**given, **{name: value for name, value in held.items() if name not in said}}


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
