"""Write lists of names in messages, and options in remedies so that they paste."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from shlex import quote
from typing import Any

from icevirt.errors import Fix

EVERY = "*"
"""In the place of a name: all coordinates of dimensions."""

_SINGULAR = {
    "float_variables": "--float-variable",
    "drop_variables": "--drop-variable",
    "attrs": "--attr",
}


def fix(price: str, *, first: str = "", concat_dim: Sequence[str] = (), **options: Any) -> Fix:
    """Return a fix: options of combining, and the dimensions to concatenate along.

    Args:
        price: What it costs or means, as a clause.
        first: A command to run before.
        concat_dim: Names of dimensions.
        options: Options of `CombineOptions`.
    """
    named: dict[str, Any] = {"concat_dim": list(concat_dim)} if concat_dim else {}
    if options:
        named["combine_options"] = options
    return of_arguments(named, price, first=first)


def scan_fix(price: str, *, first: str = "", **options: Any) -> Fix:
    """Return a fix by options of `ScanOptions`."""
    return of_arguments({"scan_options": options} if options else {}, price, first=first)


def of_arguments(arguments: Mapping[str, Any], price: str, *, first: str = "") -> Fix:
    """Return a fix by arguments of `icevirt.build`: options are mappings."""
    flags = [
        flag
        for name, value in arguments.items()
        for flag in (_flags_of(value) if isinstance(value, Mapping) else _flags(name, value))
    ]
    return Fix(
        python=", ".join(f"{name}={_python(value)}" for name, value in arguments.items()),
        flags=tuple(flags),
        price=price,
        first=first,
        arguments=arguments,
    )


def choose(**options: Any) -> str:
    """Return options of combining as a caller of `icevirt.build` passes them, then as flags."""
    return _written(fix("", **options))


def leave_out(*variables: str) -> str:
    """Return the option of a scan that leaves variables out, and its flags."""
    return _written(scan_fix("", drop_variables=list(variables)))


def _written(made: Fix) -> str:
    return f"{made.python} ({' '.join(map(quote, made.flags))})"


def _python(value: Any) -> str:
    """Return a value as Python writes it, texts in double quotes."""
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_python(k)}: {_python(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_python, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _flags_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(_flags(name, value) for name, value in options.items()))


def _flags(name: str, value: Any) -> Iterator[str]:
    """Yield the words by which a command takes the value of an option."""
    flag = _SINGULAR.get(name, "--" + name.replace("_", "-"))
    if value is True:
        yield flag
        return
    if name == "attrs":
        value = [
            f"{variable}:{key}={each if isinstance(each, str) else json.dumps(each)}"
            for variable, attrs in value.items()
            for key, each in attrs.items()
        ]
    if name == "labels":
        value = {dimension: _label_word(each) for dimension, each in value.items()}
    for word in _words(value, sign=":" if name == "data_vars" else "="):
        yield from (flag, word)


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _label_word(labels: str | Sequence[Any]) -> str:
    return labels if isinstance(labels, str) else ",".join(map(str, labels))


def _words(value: Any, *, sign: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, held in value.items():
            at = "" if name == EVERY else f"{name}{sign}"
            yield from (f"{at}{each}" for each in _words(held, sign=sign))
    else:
        yield from map(str, [value] if isinstance(value, str | int | float) else value)
