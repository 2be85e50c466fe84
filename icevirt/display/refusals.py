"""Write an error that says how to solve it: what differs, between which files, and the commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from icevirt.display.fixes import commands
from icevirt.display.text import place, some
from icevirt.errors import IcevirtError
from icevirt.escaping import escape_line
from icevirt.remedy_notation import shown

_FILES = ("first", "second", "other", "file")  # facts that name one, or a place in it
_SHOWN = 5  # of several values


def lines(error: IcevirtError, words: Sequence[str]) -> list[str]:
    """Return the lines of an error about files, for a terminal.

    Args:
        error: The error.
        words: The command that failed, without the name of the program.
    """
    facts = dict(_facts(error))
    width = max(map(len, facts), default=0)
    ways = commands(error.fixes, words)
    return [
        escape_line(error.what),
        *(f"  {escape_line(name):<{width}}  {escape_line(text)}" for name, text in facts.items()),
        *(["fix:" if len(ways) == 1 else "fix (one of):"] if ways else []),
        *(f"  {each}" for each in ways),
        *([escape_line(shown(error.do))] if error.do else []),
    ]


def _facts(error: IcevirtError) -> Iterator[tuple[str, str]]:
    """Yield what the lines say below the first: files with what each of them says, then the rest.

    Values that the first line has are not repeated.
    """
    facts = error.facts
    of_files = {name for name in facts for file in _FILES if name.startswith(f"{file}_")}
    for file in _FILES:
        if isinstance(facts.get(file), str):
            own = (facts[name] for name in facts if name.startswith(f"{file}_"))
            yield file, "   ".join([place(facts[file]), *filter(None, map(_text, own))])
    for name, value in facts.items():
        if name in _FILES and isinstance(value, str):
            continue
        if name in of_files and name.partition("_")[0] in facts:
            continue
        if (text := _text(value)) and not _is_said(text, error.what):
            yield name.replace("_", " "), text


def _is_said(text: str, what: str) -> bool:
    return text in what.replace(",", " ").replace(":", " ").replace("'", " ").split()


def _text(value: Any) -> str:
    """Return a fact; nothing of what has a table of its own."""
    if isinstance(value, str):
        return place(value)
    if isinstance(value, Mapping):
        said = [f"{place(str(name))}: {_text(each)}" for name, each in value.items()]
        return some(said, _SHOWN)
    if isinstance(value, list | tuple):
        return some([_text(each) for each in value], _SHOWN)
    return str(value) if isinstance(value, int | float) else ""
