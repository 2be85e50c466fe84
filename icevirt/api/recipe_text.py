"""Write values as TOML 1.0, limited to what a recipe can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tomli_w

from icevirt.errors import InvalidInputError


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
        case bool() | int() | float():
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
