"""Write arguments of a build as the text of a recipe, with paths that mean the same elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from icevirt.api.option_objects import BY_KEYWORD
from icevirt.connect.urls import is_url, spelled
from icevirt.errors import InvalidInputError

VERSION = 2
"""Of recipes."""

_PATHS = ("sources", "repo", "catalog", "allow_references_to")
_PATHS_AS_KEYS = ("publish_as", "access")
_PATHS_AS_VALUES = ("publish_as", "containers")


def each_moved(found: Mapping[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """Return arguments with other paths, those in tables of options too."""
    return {
        key: each_moved(value, move) if key in BY_KEYWORD else _moved(key, value, move)
        for key, value in found.items()
    }


def _moved(key: str, value: Any, move: Callable[[str], str]) -> Any:
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


def _replaced(path: str, place: Callable[[str], str]) -> str:
    """Return a path with its mark and trailing slash, replaced in between unless it is a URL."""
    mark, bare = ("@", path[1:]) if path.startswith("@") else ("", path)
    bare = spelled(bare)
    if path == "-" or is_url(bare) or bare.startswith("~"):
        return mark + bare
    return mark + place(bare) + ("/" if bare.endswith("/") else "")


def inward(path: str, folder: Path) -> str:
    """Return a path of a recipe as an absolute path."""
    own = str(folder)  # text, as in `outward`
    return _replaced(path, lambda bare: os.path.normpath(os.path.join(own, bare)).rstrip("/"))


def outward(path: str, folder: Path) -> str:
    """Return a path relative to the folder of a recipe if it is below it, else absolute."""

    def place(bare: str) -> str:
        there = os.path.normpath(os.path.join(os.getcwd(), bare))
        own = str(folder)  # text, as a `Path` for each of many files takes longer than listing it
        if there == own:
            return "."
        return there.removeprefix(own.rstrip("/") + "/")

    return _replaced(path, place)


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
