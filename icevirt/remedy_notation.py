"""Write remedies in the notation of Python or in that of the command line.

A remedy is text with code in it, and code is two values from the start: what Python writes, and
what a command does. So each surface shows its own, and nothing is looked for in the text: names of
files and variables, and whatever files say, stay as they are. As a string it is that of Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from shlex import quote
from typing import Any, Self

_PLACE = re.compile(r"(?<!\S)REPO(?![\w/.-])")  # in a command: the repository of the one that runs
_MARK = "\u2063"  # between the halves of code that is stored as text; it cannot be seen

REPOSITORY: ContextVar[str] = ContextVar("repository", default="")
"""The repository of the command that runs, as its user wrote it."""

COMMAND: ContextVar[Mapping[str, str] | None] = ContextVar("command", default=None)
"""The flags of the command that runs, by the names of their parameters; None in Python."""


_SINGULAR = {  # options that a command repeats
    "attrs": "--attr",
    "containers": "--container",
    "drop_variables": "--drop-variable",
    "float_variables": "--float-variable",
    "variables": "--variable",
}
_PLURAL = {flag: name for name, flag in _SINGULAR.items()}


def flag_of(name: str) -> str:
    """Return what a command calls an option of Python."""
    return _SINGULAR.get(name, f"--{name.replace('_', '-')}")


def name_of(flag: str) -> str:
    """Return what Python calls an option of a command."""
    return _PLURAL.get(flag, flag.removeprefix("--").replace("-", "_"))


@dataclass(frozen=True, slots=True)
class Code:
    """What Python and a command write for the same."""

    python: str
    command: str


class Remedy(str):  # noqa: SLOT000 - its parts stand beside the text
    """Text with code in it. As a string it is in the notation of Python."""

    parts: tuple[str | Code, ...]

    def __new__(cls, parts: Iterable[str | Code]) -> Self:
        """Make a remedy of texts and code."""
        held = tuple(parts)
        texts = (each.python if isinstance(each, Code) else each for each in held)
        made = super().__new__(cls, "".join(texts))
        made.parts = held
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the parts in a pickle."""
        return Remedy, (self.parts,)

    def change(self, function: Callable[[str], str]) -> Remedy:
        """Return the remedy with a function applied to its texts and to both halves of its code."""
        return Remedy(
            Code(function(each.python), function(each.command))
            if isinstance(each, Code)
            else function(each)
            for each in self.parts
        )

    def capitalize_first(self) -> Remedy:
        """Return the remedy as the beginning of a sentence."""
        first = Remedy(self.parts[:1]).change(lambda text: text[:1].upper() + text[1:])
        return Remedy((*first.parts, *self.parts[1:]))

    def in_flags(self, repo: str) -> str:
        """Return the text of a command that works on a repository."""
        return "".join(
            _PLACE.sub(lambda _: quote(repo) if repo else "REPO", each.command)
            if isinstance(each, Code)
            else each
            for each in self.parts
        )


def write_remedy(*parts: str) -> Remedy:
    """Return texts and code as one remedy."""
    return Remedy(
        piece
        for each in parts
        for piece in (each.parts if isinstance(each, Remedy) else (str(each),))
    )


def write_code(python: str, command: str) -> Remedy:
    """Return what Python writes, and what a command writes in its place."""
    return Remedy([Code(python, command)])


def write_option(name: str, value: object = None) -> Remedy:
    """Return an option of Python, and of a command; with a value, or by its name alone.

    Args:
        name: Its name in Python.
        value: A value, whose items a command repeats. None names the option alone.
    """
    flag = flag_of(name)
    if value is None:
        return write_code(name, flag)
    if value is True or value is False:
        return write_code(f"{name}={value}", flag if value else f"--no-{flag.removeprefix('--')}")
    many = list(value) if isinstance(value, list | tuple) else [value]
    return write_code(f"{name}={value!r}", " ".join(f"{flag} {quote(str(each))}" for each in many))


def join(separator: str, texts: Iterable[str]) -> Remedy:
    """Return texts and remedies with a separator between them."""
    found: list[str] = []
    for each in texts:
        found += [separator, each] if found else [each]
    return write_remedy(*found)


def change(text: str, function: Callable[[str], str]) -> str:
    """Return a text, or a remedy, to which a function was applied."""
    return text.change(function) if isinstance(text, Remedy) else function(text)


def list_code(text: str) -> tuple[Code, ...]:
    """Return the code of a remedy; a text has none."""
    parts = text.parts if isinstance(text, Remedy) else ()
    return tuple(each for each in parts if isinstance(each, Code))


def dump_remedy(text: str) -> str:
    """Return a remedy as text that `load_remedy` takes apart; people read both notations in it."""
    if not isinstance(text, Remedy):
        return text
    plain = text.change(lambda each: each.replace(_MARK, ""))
    return "".join(
        f"{_MARK}{each.python} ({_MARK}{each.command}{_MARK})" if isinstance(each, Code) else each
        for each in plain.parts
    )


def load_remedy(text: str) -> str:
    """Return what was dumped."""
    pieces = re.split(rf"{_MARK}([^{_MARK}]*) \({_MARK}([^{_MARK}]*){_MARK}\)", text)
    if len(pieces) == 1:
        return text
    codes = [Code(*pair) for pair in zip(pieces[1::3], pieces[2::3], strict=True)]
    return Remedy(
        [pieces[0], *(each for pair in zip(codes, pieces[3::3], strict=True) for each in pair)]
    )


def show_remedy(text: str) -> str:
    """Return a remedy in the notation of whoever reads it: as it is in Python, else as text."""
    if COMMAND.get() is None or not isinstance(text, Remedy):
        return text
    return text.in_flags(REPOSITORY.get())
