"""Write what is worth a line to standard error, as far as ``ICECHUNK_LOG`` or a program asks."""

from __future__ import annotations

import os
import re
import sys

_LEVELS = ("error", "warn", "info", "debug", "trace")
_LIKE_ICECHUNK = 0.7


class _Filter:
    """Which lines are written: up to a level."""

    def __init__(self) -> None:
        self.most = -1  # index of the level; -1: nothing

    def set(self, directive: str | None) -> None:
        """Take the level of a directive such as ``debug`` or ``icechunk=trace,warn``."""
        text = os.environ.get("ICECHUNK_LOG", "") if directive is None else directive
        parts = [part for part in text.split(",") if part]
        for part in parts:
            _warn_of_misspelling(part)
        levels = [re.split(r"[:=]", part) for part in parts]
        found = [
            _LEVELS.index(words[-1])
            for words in levels
            if words[-1] in _LEVELS and (len(words) == 1 or words[0].startswith("icechunk"))
        ]
        self.most = max(found, default=-1)


_filter = _Filter()
set_filter = _filter.set


def _warn_of_misspelling(part: str) -> None:
    from difflib import SequenceMatcher

    name = re.split(r"[:=]", part)[0]
    near = SequenceMatcher(None, name, "icechunk").ratio() >= _LIKE_ICECHUNK
    if near and name != "icechunk" and name.startswith("i") and len(name) > len("chunk"):
        _write(f"WARNING: the log filter names {name!r}; did you mean 'icechunk'?")


def is_on(level: str) -> bool:
    """Say whether the filter asks for a level."""
    return _LEVELS.index(level) <= _filter.most


def log(level: str, message: str) -> None:
    """Write a line, if the filter asks for its level."""
    if is_on(level):
        _write(f"{level.upper():>5} icechunk: {message}")


def _write(line: str) -> None:
    stream = sys.stdout if os.environ.get("ICECHUNK_LOG_TO_STDOUT") else sys.stderr
    stream.write(line + "\n")
    stream.flush()
