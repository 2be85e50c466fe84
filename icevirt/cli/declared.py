"""Generate command-line options from what the option objects declare, and read their values.

A recipe can hold them too; the options of the command line win.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, Literal, get_args

import typer

from icevirt.api.commit_options import OBJECTS
from icevirt.archive.options import DeclaredOption, Names, Options, choices_of, declared, spelled
from icevirt.cli.options import NOTATIONS
from icevirt.cli.output import writable_file
from icevirt.errors import InvalidInputError

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
    typer.Option(
        callback=writable_file,
        help="Write the plan's recipe, for icevirt build -f, to this file.",
    ),
]

type Command = Literal["build", "plan", "scan"]

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
    """Give a command the options of the objects that its function takes, after its own."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function, eval_str=True)
        own = [
            each
            for each in signature.parameters.values()
            if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        added = [
            option_parameter(each)
            for options in OBJECTS
            if (only := _ONLY[command].get(options.KEYWORD)) is not None
            for each in declared(options)
            if not only or each.name in only
        ]
        made = signature.replace(parameters=[*own, *added])
        function.__signature__ = made  # type: ignore[attr-defined]  # what typer looks at
        function.__annotations__ = {each.name: each.annotation for each in made.parameters.values()}
        return function

    return add


def option_parameter(each: DeclaredOption) -> inspect.Parameter:
    """Return the parameter of a command for an option of an object."""
    kind, default, more = _typed(each)
    repeats = each.kind is Names or (each.name in NOTATIONS and NOTATIONS[each.name].repeats)
    text = f"{each.option.doc} May be repeated." if repeats else each.option.doc
    option = typer.Option(each.flag, help=text, **more)
    return inspect.Parameter(
        each.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _typed(each: DeclaredOption) -> tuple[Any, Any, dict[str, Any]]:
    """Return the type that typer reads, the default, and further settings."""
    if (notation := NOTATIONS.get(each.name)) and notation.parser:
        more = {"parser": notation.parser, "metavar": notation.metavar}
        return (list[Any] | None, None, more) if notation.repeats else (Any, each.default, more)
    if each.kind is Names:
        return list[str] | None, None, {}
    if words := choices_of(each.kind):  # an enumeration, which shells complete
        choices: Any = StrEnum("Choices", {f"word{i}": word for i, word in enumerate(words)})  # type: ignore[misc]
        return choices, None if each.default is None else choices(each.default), {}
    if each.kind is bool:
        return bool, each.default, {}
    meant = getattr(each.kind, "__value__", each.kind)
    known = [part for part in get_args(meant) or (meant,) if part is not NoneType]
    kind = next((part for part in (str, float, int) if part in known), str)
    return kind | None if each.default is None else kind, each.default, {}


def asked(
    ctx: typer.Context, recipe: str | None, chosen: dict[str, Any], /, **given: Any
) -> dict[str, Any]:
    """Return the arguments of a call: from a recipe, and from the command line, which wins.

    Raises:
        typer.BadParameter: An option does not take its value.
        InvalidInputError: The recipe is wrong.
    """
    given_here = {name: value for name, value in chosen.items() if _is_given(ctx, name)}
    options = grouped(OBJECTS, given_here)
    if recipe is None:
        return {**given, **options}
    import icevirt

    held = icevirt.load_recipe(recipe, call="plan" if ctx.info_name == "plan" else "build")
    made = {**given, **{name: value for name, value in held.items() if not _is_given(ctx, name)}}
    for each in OBJECTS:
        merged = {**held.get(each.KEYWORD, {}), **options.get(each.KEYWORD, {})}
        if merged:
            made[each.KEYWORD] = merged
    return made


def _is_given(ctx: typer.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def grouped(classes: Collection[type[Options]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command by the keyword of their object, defaults left out.

    Raises:
        typer.BadParameter: An option does not take its value; the message names its flag.
    """
    made: dict[str, Any] = {}
    for options in classes:
        found = {
            each.name: value
            for each in declared(options)
            if each.name in given and (value := _value(each, given[each.name])) != each.default
        }
        try:
            with spelled(lambda _, each: each.flag):
                options.of(found)
        except InvalidInputError as error:
            raise typer.BadParameter(str(error)) from error
        if found:
            made[options.KEYWORD] = found
    return made


def _value(each: DeclaredOption, given: Any) -> Any:
    if given is None or given == []:
        return each.default
    if each.name in NOTATIONS:
        return NOTATIONS[each.name].value(given)
    if isinstance(given, StrEnum):
        return given.value
    return list(given) if isinstance(given, tuple) else given


def require_repo(given: Mapping[str, Any]) -> None:
    """End the program with status 2 where a source stands in the place of the repository."""
    from pathlib import Path

    repo = str(given["repo"])
    is_alone = not given.get("sources")
    is_pattern = re.search(r"^@|^-$|[*?]", repo) is not None
    at = Path(repo)
    if at.is_file():
        what = f"{repo} is a file"
    elif is_alone and is_pattern:
        what = f"{repo} names files"
    elif is_alone and given.get("catalog") is None and at.is_dir() and not (at / "repo").exists():
        what = f"{repo} is a directory of files"
    else:
        return
    example = _next([*(given.get("sources") or ()), repo])
    raise typer.BadParameter(
        f"Missing argument 'REPO': {what}. Name the repository last, like {example}"
    )


def _next(sources: Sequence[str]) -> str:
    from icevirt.display.fixes import quoted, with_patterns

    files = " ".join(map(quoted, with_patterns(list(map(str, sources)))))
    return f"`icevirt build {files} REPO`"


def require_sources(given: dict[str, Any], *, recipe: str | None = None) -> None:
    """Take no sources for all that was scanned into the catalog; without one, they are missing."""
    given["sources"] = given.get("sources") or None
    if given.get("catalog") is None:
        require(given, recipe=recipe, sources="SOURCES")


def require(given: dict[str, Any], *, recipe: str | None = None, **metavars: str) -> None:
    """End the program with status 2 where an argument is neither given nor in a recipe."""
    for name, metavar in metavars.items():
        if not given.get(name):
            here = (
                "the recipe does not name it" if recipe else "give it, or a recipe (-f) that has it"
            )
            raise typer.BadParameter(f"Missing argument '{metavar}': {here}.")
