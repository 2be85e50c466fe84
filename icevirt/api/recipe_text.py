"""Values as TOML 1.0: what a recipe can hold, and nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from icevirt.errors import InvalidInputError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml(document: Mapping[str, Any]) -> str:
    """Return a document: plain values first, then a table for each mapping.

    Raises:
        InvalidInputError: A value is of no kind that TOML has.
    """
    plain = [
        f"{_key(key)} = {_value(key, value)}"
        for key, value in document.items()
        if not isinstance(value, Mapping)
    ]
    tables = [
        "\n".join(
            [f"\n[{_key(key)}]", *(f"{_key(k)} = {_value(key, v)}" for k, v in value.items())]
        )
        for key, value in document.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*plain, *tables]) + "\n"


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInputError("a recipe's keys are texts", do="Correct it.", key=key)
    return key if _BARE.fullmatch(key) else _text(key)


def _value(name: str, value: Any) -> str:  # noqa: PLR0911 - a case, a line
    match value:
        case np.generic():
            return _value(name, value.item())
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return _float(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(_value(name, each) for each in value)}]"
        case Mapping():
            inner = ", ".join(f"{_key(k)} = {_value(name, v)}" for k, v in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case None:
            return "{}"  # TOML has no null
        case _:
            raise InvalidInputError(
                f"{name} has no place in a recipe",
                do='Name functions as "package.module:function", and leave tables and credentials'
                " out.",
                type=type(value).__name__,
            )


def _float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text if set(text) & {".", "e"} else f"{text}.0"


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError("a text is no Unicode", do="Correct it.", text=value) from error
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
