"""A recipe: all arguments of a plan or build in one TOML file that can be versioned.

Keys are the names of the Python arguments. Paths are relative to the folder of the recipe, so that
it says the same wherever it is run from. Secrets have no place in it.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from icevirt.api.build import build
from icevirt.api.plan import plan
from icevirt.api.recipe_text import toml
from icevirt.connect.credentials.keywords import is_named
from icevirt.connect.urls import is_url
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.objects.source_access import REQUESTER_PAYS

VERSION = 1
"""Of the file; a recipe of another one is refused."""

type Call = Literal["build", "plan"]

_CALLS: dict[Call, Callable[..., Any]] = {"build": build, "plan": plan}
_NOT_IN_FILES = ("spark", "progress")
_PATHS = ("sources", "repo", "catalog", "allow_references_to")
_PATHS_BY_NAME = ("containers",)
_PATHS_BY_PATH = ("publish_as",)
_BY_PATH = ("access",)


def load_recipe(path: str | os.PathLike[str], *, call: Call = "build") -> dict[str, Any]:
    """Read a recipe and return the arguments that it holds for a call.

    ``icevirt.build(**icevirt.load_recipe("recipe.toml"))`` does what it says. With ``call="plan"``
    what only a build takes is left out.

    Raises:
        NotFoundError: There is no such file.
        InvalidInputError: It is no TOML, of another version, has a key that is none, or a secret.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(
            "there is no such recipe", do="Check the path.", path=str(path)
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "a recipe cannot be read", path=str(path), cause=str(error)
        ) from error
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"a recipe is no TOML: {error}", do="Correct it.", recipe=str(path)
        ) from error
    _check_version(found.pop("version", None), str(path))
    known = {*_arguments("build"), *_arguments("plan")}
    for key in found:
        if key not in known:
            raise _unknown(key, known, text, str(path))
    _refuse_secrets(found.get("access", {}), text, str(path))
    folder = file.resolve().parent
    given = {
        key: _moved(key, value, lambda each: _inward(each, folder)) for key, value in found.items()
    }
    if "attrs" in given:
        given["attrs"] = _attrs(given["attrs"], str(path))
    return {key: value for key, value in given.items() if key in _arguments(call)}


def dump_recipe(arguments: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write arguments of a plan or build as a recipe; those that say nothing are left out.

    Raises:
        InvalidInputError: One has no place in a file, like a function or credentials.
    """
    file = Path(path)
    folder = file.resolve().parent
    defaults = {**_arguments("plan"), **_arguments("build")}
    kept = {}
    for key, value in arguments.items():
        if (
            key in _NOT_IN_FILES
            or value is None
            or value == defaults.get(key, inspect.Parameter.empty)
        ):
            continue
        if isinstance(value, Mapping | list | tuple) and not value:
            continue
        if key not in defaults:
            raise _unknown(key, set(defaults), "", str(path))
        kept[key] = _moved(key, value, lambda each: _outward(each, folder))
    _refuse_secrets(kept.get("access", {}), "", str(path))
    written = file.with_name(f".{file.name}.tmp")
    written.write_text(toml({"version": VERSION, **kept}), encoding="utf-8")
    written.replace(file)


def _is_default(value: Any, default: Any) -> bool:
    empty = isinstance(value, Mapping | list | tuple) and not value
    return empty or value is None or (type(value) is type(default) and value == default)


def _arguments(call: Call) -> dict[str, Any]:
    """Return what a recipe may hold for a call, and the defaults."""
    found = inspect.signature(_CALLS[call]).parameters
    return {name: each.default for name, each in found.items() if name not in _NOT_IN_FILES}


# -- what is refused -----------------------------------------------------------------------------


def _check_version(version: object, path: str) -> None:
    if version != VERSION:
        raise InvalidInputError(
            "a recipe does not say its version"
            if version is None
            else "a recipe is of a version that this icevirt does not know",
            do=f"Write version = {VERSION} in its first line.",
            recipe=path,
            **({} if version is None else {"version": version}),
        )


def _unknown(key: str, known: set[str], text: str, path: str) -> InvalidInputError:
    near = difflib.get_close_matches(key, sorted(known), n=1)
    line = _line_of(key, text)
    where = "" if line is None else f" in line {line}"
    return InvalidInputError(
        f"unknown key {key!r}{where} of a recipe",
        do=f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(sorted(known))}.",
        recipe=path,
    )


def _line_of(key: str, text: str) -> int | None:
    """Return the line in which a key stands, as far as that is plain."""
    quoted = rf"""["']?{re.escape(key)}["']?"""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*(\[\s*)?{quoted}\s*(=|\.|\])", line):
            return number
    return None


def _refuse_secrets(access: object, text: str, path: str) -> None:
    if not isinstance(access, Mapping):
        raise InvalidInputError("access is no table of prefixes", do="Correct it.", recipe=path)
    for prefix, how in access.items():
        if not isinstance(how, str) or not (is_named(how) or how == REQUESTER_PAYS):
            # what stands there may be a token, so it is not repeated
            line = _line_of(prefix, text)
            raise InvalidInputError(
                "a recipe holds no secrets: access is a word"
                + ("" if line is None else f" (line {line})"),
                do='Write "anonymous", "environment", "netrc", "requester-pays" or'
                ' "package.module:function".',
                recipe=path,
                prefix=prefix,
            )


def _attrs(found: Any, path: str) -> dict[str, Any]:
    """Return attributes to set; an empty table stands for None, which TOML has not."""
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise InvalidInputError("attrs is no table of variables", do="Correct it.", recipe=path)
    return {
        variable: {name: None if value == {} else value for name, value in attrs.items()}
        for variable, attrs in found.items()
    }


# -- paths ---------------------------------------------------------------------------------------


def _moved(key: str, value: Any, move: Callable[[str], str]) -> Any:
    if key in _PATHS:
        return _each(value, move)
    if not isinstance(value, Mapping):
        return value
    if key in _PATHS_BY_NAME:
        return {name: _each(each, move) for name, each in value.items()}
    if key in _PATHS_BY_PATH:
        return {move(name): _each(each, move) for name, each in value.items()}
    if key in _BY_PATH:
        return {move(name): each for name, each in value.items()}
    return value


def _each(value: Any, move: Callable[[str], str]) -> Any:
    if isinstance(value, list | tuple):
        return [_each(each, move) for each in value]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return move(value) if isinstance(value, str) else value


def _inward(path: str, folder: Path) -> str:
    """Return a path as it is from anywhere."""
    mark, bare = ("@", path[1:]) if path.startswith("@") else ("", path)
    if path == "-" or is_url(bare) or bare.startswith("~"):
        return path
    trailing = "/" if bare.endswith("/") else ""
    return mark + os.path.normpath(folder / bare).rstrip("/") + trailing


def _outward(path: str, folder: Path) -> str:
    """Return a path as it is from the folder of a recipe, where it lies below it."""
    mark, bare = ("@", path[1:]) if path.startswith("@") else ("", path)
    if path == "-" or is_url(bare) or bare.startswith("~"):
        return path
    trailing = "/" if bare.endswith("/") else ""
    there = Path(os.path.normpath(Path.cwd() / bare))
    try:
        return mark + there.relative_to(folder).as_posix() + trailing
    except ValueError:
        return mark + there.as_posix() + trailing
