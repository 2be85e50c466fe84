"""Read and write recipes: all arguments of a plan or build in one TOML file.

Keys are the names of the Python arguments. Paths are relative to the folder of the recipe, so a
recipe means the same wherever it runs. Secrets have no place in it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w

from icevirt.api.commit_options import BY_KEYWORD
from icevirt.archive.options import declare
from icevirt.connect.credentials.keywords import HOW
from icevirt.connect.urls import as_local_path, is_url, spell
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.objects.source_access import is_word

type Call = Literal["build", "plan"]
_NOT_IN_FILES = ("executor", "progress")
_OF_PLANS = frozenset(
    {"sources", "repo", "concat_dim", "group", "catalog", "access"} | BY_KEYWORD.keys()
)
ARGUMENTS = {"plan": _OF_PLANS, "build": _OF_PLANS | {"mode"}}
"""What a recipe may hold for a call; a test compares it with the functions."""
_DEFAULTS = {"group": "/", "mode": "w-"}


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
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError("no such recipe", do="Check the path.", path=os.fspath(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "the recipe cannot be read", path=os.fspath(path), cause=str(error)
        ) from error
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
    _refuse_unknown(found, ARGUMENTS["build"], text, shown)
    for keyword, options in BY_KEYWORD.items():
        table = found.get(keyword, {})
        if not isinstance(table, dict):
            raise InvalidInputError(f"{keyword} must be a table", do="Correct it.", recipe=shown)
        _refuse_unknown(table, {each.name for each in declare(options)}, text, shown)
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
    return {key: value for key, value in given.items() if key in ARGUMENTS[call]}


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
    _refuse_unknown(arguments, {*ARGUMENTS["build"], *_NOT_IN_FILES}, "", str(file))
    kept = {}
    for key, value in arguments.items():
        held = BY_KEYWORD[key].of(value).list_chosen() if key in BY_KEYWORD else value
        is_empty = isinstance(held, Mapping | list | tuple) and not held
        is_default = key in _DEFAULTS and held == _DEFAULTS[key]
        if not (key in _NOT_IN_FILES or held is None or is_empty or is_default):
            kept[key] = held
    kept = each_moved(kept, lambda each: outward(each, folder))
    _refuse_secrets(kept.get("access", {}), "", str(path))
    written = file.with_name(f".{file.name}.tmp")
    written.write_text(toml({"version": VERSION, **kept}), encoding="utf-8")
    written.replace(file)


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
        if key in [each.name for each in declare(options)]:
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
                do=f"Write one of: {HOW}.",
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


VERSION = 2
"""Of recipes."""

_PATHS = ("sources", "repo", "catalog", "allow_references_to")
_PATHS_AS_KEYS = ("publish_as", "access")
_PATHS_AS_VALUES = ("publish_as", "containers")


def each_moved(found: Mapping[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """Return arguments with other paths, those in tables of options too."""
    return {
        key: each_moved(value, move) if key in BY_KEYWORD else _move(key, value, move)
        for key, value in found.items()
    }


def _move(key: str, value: Any, move: Callable[[str], str]) -> Any:
    if key in _PATHS:
        return _each(value, move)
    if not isinstance(value, Mapping):
        return value
    return {
        move(os.fspath(name)) if key in _PATHS_AS_KEYS else name: _each(each, move)
        if key in _PATHS_AS_VALUES
        else each
        for name, each in value.items()
    }


def _each(value: Any, move: Callable[[str], str]) -> Any:
    if isinstance(value, list | tuple):
        return [_each(each, move) for each in value]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return move(value) if isinstance(value, str) else value


def _replace_path(path: str, place: Callable[[str], str]) -> str:
    """Return a path with its mark and trailing slash, replaced in between unless it is a URL."""
    mark, bare = ("@", path[1:]) if path.startswith("@") else ("", path)
    bare = spell(bare)
    if path == "-" or is_url(bare) or bare.startswith("~"):
        return mark + bare
    return mark + place(bare) + ("/" if bare.endswith("/") else "")


def inward(path: str, folder: Path) -> str:
    """Return a path of a recipe as an absolute path."""
    own = str(folder)  # text, as in `outward`
    return _replace_path(path, lambda bare: os.path.normpath(os.path.join(own, bare)).rstrip("/"))


def outward(path: str, folder: Path) -> str:
    """Return a path relative to the folder of a recipe if it is below it, else absolute."""

    def place(bare: str) -> str:
        there = os.path.normpath(os.path.join(os.getcwd(), bare))
        own = str(folder)  # text, as a `Path` for each of many files takes longer than listing it
        if there == own:
            return "."
        return there.removeprefix(own.rstrip("/") + "/")

    return _replace_path(path, place)


def toml(document: Mapping[str, Any]) -> str:
    """Return a document; TOML has no null, so that an empty table stands for None.

    Raises:
        InvalidInputError: A value is of no kind that TOML has.
    """
    return tomli_w.dumps({_text(key): _value(key, each) for key, each in document.items()})


def _value(name: str, value: Any) -> Any:
    match value:
        case np.generic():
            return _value(name, value.item())
        case bool() | int() | float() | date():
            return value
        case str():
            return _text(value)
        case list() | tuple():
            return [_value(name, each) for each in value]
        case Mapping():
            return {_text(key): _value(name, each) for key, each in value.items()}
        case None:
            return {}
        case _:
            raise InvalidInputError(
                f"{name} cannot be stored in a recipe",
                do='Name functions as "package.module:function", and leave tables and credentials'
                " out.",
                type=type(value).__name__,
            )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInputError("the keys of a recipe must be strings", do="Correct it.", key=value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "a string is not valid Unicode", do="Correct it.", text=value
        ) from error
    return value
