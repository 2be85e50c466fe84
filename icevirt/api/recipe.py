"""Read and write recipes: all arguments of a plan or build in one TOML file.

Keys are the names of the Python arguments. Paths are relative to the folder of the recipe, so a
recipe means the same wherever it runs. Secrets have no place in it.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from icevirt.api.build import build
from icevirt.api.option_objects import BY_KEYWORD
from icevirt.api.pipeline.recipe_text import VERSION, each_moved, inward, outward, toml
from icevirt.api.plan import plan
from icevirt.archive.options import declared
from icevirt.connect.urls import as_local_path
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.objects.source_access import is_word

type Call = Literal["build", "plan"]
_CALLS: dict[Call, Callable[..., Any]] = {"build": build, "plan": plan}
_NOT_IN_FILES = ("executor", "progress")


def load_recipe(path: str | os.PathLike[str], *, call: Call = "build") -> dict[str, Any]:
    """Read a recipe and return the arguments that it holds for a call.

    ``icevirt.build(**icevirt.load_recipe("recipe.toml"))`` does what it says. With ``call="plan"``
    what only a build takes is left out.

    Raises:
        NotFoundError: There is no such file.
        InvalidInputError: It is not TOML, has another version, or contains an invalid key or value,
            or a secret.
    """
    file = Path(as_local_path(path))
    text = _text_of(file, os.fspath(path))
    return read_recipe(text, folder=file.parent, shown=str(file), call=call)


def read_recipe(text: str, *, folder: Path, shown: str, call: Call = "build") -> dict[str, Any]:
    """Return the arguments that the text of a recipe holds for a call.

    Args:
        text: The recipe.
        folder: To which its paths are relative.
        shown: Where it lies, for messages.
        call: The function that they are for.

    Raises:
        InvalidInputError: As for `load_recipe`.
    """
    found = _document(text, shown)
    del found["version"]
    _refuse_unknown(found, _arguments(), text, shown)
    for keyword, options in BY_KEYWORD.items():
        table = found.get(keyword, {})
        if not isinstance(table, dict):
            raise InvalidInputError(f"{keyword} must be a table", do="Correct it.", recipe=shown)
        _refuse_unknown(table, {each.name for each in declared(options)}, text, shown)
    _refuse_secrets(found.get("access", {}), text, shown)
    inside = folder.resolve()
    given = each_moved(found, lambda each: inward(each, inside))
    if "attrs" in (combining := given.get("combine_options", {})):
        combining["attrs"] = _attrs(combining["attrs"], shown)
    for keyword, options in BY_KEYWORD.items():
        try:
            options.of(given.get(keyword))
        except InvalidInputError as error:
            raise InvalidInputError(
                error.what, do=error.do, fixes=error.fixes, **error.facts, recipe=shown
            ) from error
    return {key: value for key, value in given.items() if key in _parameters(call)}


def _text_of(file: Path, shown: str) -> str:
    """Return the text of a recipe; ``shown`` is its path as the caller wrote it."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError("no such recipe", do="Check the path.", path=shown) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "the recipe cannot be read", path=shown, cause=str(error)
        ) from error


def _document(text: str, shown: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the recipe is not valid TOML: {error}", do="Correct it.", recipe=shown
        ) from error
    version = found.get("version")
    if version != VERSION:
        raise InvalidInputError(
            "the recipe has no version"
            if version is None
            else "this icevirt does not support the version of the recipe",
            do=f"Write version = {VERSION} in its first line.",
            recipe=shown,
            **({} if version is None else {"version": version}),
        )
    return found


def dump_recipe(arguments: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write arguments of a plan or build as a recipe; empty ones and defaults are left out.

    Raises:
        InvalidInputError: One cannot be in a file, like a function or credentials.
    """
    file = Path(as_local_path(path))
    folder = file.resolve().parent
    defaults = {**_parameters("plan"), **_parameters("build")}
    _refuse_unknown(arguments, {*defaults, *_NOT_IN_FILES}, "", str(file))
    kept = {}
    for key, value in arguments.items():
        held = BY_KEYWORD[key].of(value).chosen() if key in BY_KEYWORD else value
        is_empty = isinstance(held, Mapping | list | tuple) and not held
        if key in _NOT_IN_FILES or held is None or is_empty:
            continue
        if key in defaults and held == defaults[key]:
            continue
        kept[key] = held
    kept = each_moved(kept, lambda each: outward(each, folder))
    _refuse_secrets(kept.get("access", {}), "", str(path))
    written = file.with_name(f".{file.name}.tmp")
    written.write_text(toml({"version": VERSION, **kept}), encoding="utf-8")
    written.replace(file)


def _parameters(call: Call) -> dict[str, Any]:
    """Return what a recipe may hold for a call, and the defaults."""
    found = inspect.signature(_CALLS[call]).parameters
    return {name: each.default for name, each in found.items() if name not in _NOT_IN_FILES}


def _arguments() -> set[str]:
    """Return all keys that a recipe may hold."""
    return {*_parameters("build"), *_parameters("plan")}


# -- what is refused -----------------------------------------------------------------------------


def _refuse_unknown(
    found: Mapping[str, Any], known: Collection[str], text: str, shown: str
) -> None:
    for key in found:
        if key not in known:
            line = _line_of(key, text)
            raise InvalidInputError(
                f"unknown key {key!r}{'' if line is None else f' in line {line}'} of a recipe",
                do=_remedy(key, known),
                recipe=shown,
            )


def _remedy(key: str, known: Collection[str]) -> str:
    """Return the table of an option, or the nearest key."""
    for keyword, options in BY_KEYWORD.items():
        if key in [each.name for each in declared(options)]:
            return f"Write {key!r} in the table [{keyword}]."
    near = difflib.get_close_matches(key, sorted(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(sorted(known))}."


def _line_of(key: str, text: str) -> int | None:
    """Return the line of a key if it is written plainly."""
    quoted = rf"""["']?{re.escape(key)}["']?"""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*(\[\s*)?{quoted}\s*(=|\.|\])", line):
            return number
    return None


def _refuse_secrets(access: object, text: str, path: str) -> None:
    if not isinstance(access, Mapping):
        raise InvalidInputError(
            "access must be a table of URL prefixes", do="Correct it.", recipe=path
        )
    for prefix, how in access.items():
        if not is_word(how):
            # the value may be a token, so it is not repeated
            line = _line_of(prefix, text)
            raise InvalidInputError(
                "recipes must not contain secrets: access must be a keyword"
                + ("" if line is None else f" (line {line})"),
                do='Write "anonymous", "environment", "netrc", "requester-pays" or'
                ' "package.module:function".',
                recipe=path,
                prefix=prefix,
            )


def _attrs(found: Any, path: str) -> dict[str, Any]:
    """Return attributes to set; an empty table stands for None, which TOML has not."""
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise InvalidInputError("attrs must be a table of variables", do="Correct it.", recipe=path)
    return {
        variable: {name: None if value == {} else value for name, value in attrs.items()}
        for variable, attrs in found.items()
    }
