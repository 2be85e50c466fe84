"""Define the JSON values of metadata as one type, and read JSON written by others."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

type JSON = bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None
type JSONObject = Mapping[str, JSON]

MAX_DEPTH = 100
"""Levels of nesting; what is deeper was made to exhaust the stack of some reader."""


class NaNError(ValueError):
    """A bare NaN or Infinity, which Python writes and JSON does not know."""


def loads(raw: bytes | bytearray | str, *, nan: bool = True) -> Any:
    """Read JSON that others wrote.

    Args:
        raw: The document; bytes are UTF-8.
        nan: Accept a bare NaN or Infinity.

    Raises:
        ValueError: It is no JSON, nested too deeply, or holds a number that is too long; with
            ``nan=False`` a `NaNError` where it holds one.
    """
    text = raw if isinstance(raw, str) else raw.decode()
    try:
        found = json.loads(text) if nan else _STRICT.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        refuse_deep(found)
    return found


def refuse_deep(value: Any, *, most: int | None = None) -> None:
    """Make sure that a value can be walked.

    Args:
        value: Of mappings and sequences, perhaps several times the same one, or within itself.
        most: How many values it may have, each counted as often as it occurs.

    Raises:
        ValueError: It is nested more than `MAX_DEPTH` levels deep, has more values, or a mapping
            has a key that is no string.
    """
    left = math.inf if most is None else most
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                if not all(isinstance(key, str) for key in each):
                    raise ValueError("it has a mapping with a key that is not a string")
                below += each.values()
            elif isinstance(each, list | tuple):
                below += each
            if len(below) > left:
                raise ValueError(f"it has more than {most:,} values")
        if not below:
            return
        left -= len(below)
        level = below
    raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def _refuse(constant: str) -> NoReturn:
    raise NaNError(constant)


def dump(document: Any) -> bytes:
    """Write strict JSON, keys in the order given. Raises ``ValueError`` for bare NaN."""
    return json.dumps(document, allow_nan=False, ensure_ascii=False).encode()


_STRICT = json.JSONDecoder(parse_constant=_refuse)
