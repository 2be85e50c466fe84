"""Write lists of names in messages, and options in remedies so that they paste."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

_SINGULAR = {"float_variables": "--float-variable"}


def choose(**options: Any) -> str:
    """Return options of combining as a caller of `icevirt.build` passes them, then as flags."""
    flags = (
        f"{_SINGULAR.get(name, '--' + name.replace('_', '-'))} {quote(each)}"
        for name, value in options.items()
        for each in _words(value)
    )
    return f"combine_options={json.dumps(options, ensure_ascii=False)} ({' '.join(flags)})"


def leave_out(*variables: str) -> str:
    """Return the option of a scan that leaves variables out, and its flags."""
    flags = " ".join(f"--drop-variable {quote(each)}" for each in variables)
    named = json.dumps(variables, ensure_ascii=False)
    return f'scan_options={{"drop_variables": {named}}} ({flags})'


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{name}:{each}" for name, words in value.items() for each in _words(words))
    else:
        yield from [value] if isinstance(value, str) else value
