"""Write remedies in the notation of Python or in that of the command line.

Errors and notes name an option as ``python_name=value (--flag value)``, and a call as
``function(arguments) (icevirt command REPO)``: each surface shows its own half. In place of REPO a
command shows the repository that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from shlex import quote

# patterns are compiled when a remedy is the first one to need them
_FLAGS = (
    r" \((?:on the command line )?(?P<flags>(?:--|icevirt )[a-z]"
    r"(?:[^()\"']|\"[^\"]*\"|'[^']*'|\([^()]*\))*)\)"
)
_CALL = r"[\w.]+\((?:[^()]|\([^()]*\))*\)"  # of Python, which stays as it is
_OPENING = {")": "(", "]": "[", "}": "{"}
_ARGUMENT = (
    r"(?<![\w.`{\"'-])(?P<tick>`?)(?P<name>[a-z][a-z0-9_]*)="
    r"(?P<value>\"[^\"]*\"|'[^']*'|\[[^\[\]]*\]|\.\.\.|[^\s,;:.`()]+(?:\.\d+)?)?(?P=tick)"
)

_PLACE = r"\bREPO\b"

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


def show_remedy(text: str) -> str:
    """Return a remedy in the notation of whoever reads it: of a command, or of Python."""
    flags = COMMAND.get()
    if flags is None:
        return in_python(text)
    repo = REPOSITORY.get()
    found = in_flags(text, flags)
    return re.sub(_PLACE, lambda _: quote(repo), found) if repo else found


def in_python(text: str) -> str:
    """Return a remedy without the flags of the command line."""
    return re.sub(_FLAGS, "", text)


def in_flags(text: str, flags: Mapping[str, str]) -> str:
    """Return a remedy with flags in the place of arguments.

    Args:
        text: The remedy, which may give the flags behind an argument.
        flags: The flags of the command by the names of arguments.
    """
    made, at = [], 0
    for found in re.finditer(_FLAGS, text):
        start = _argument_before(text, found.start(), found["flags"])
        made += [text[at:start], found["flags"] if start < found.start() else found[0]]
        at = found.end()
    halves = "".join([*made, text[at:]])
    code = [found.span() for found in re.finditer(_CALL, halves)]
    return re.sub(
        _ARGUMENT,
        lambda found: (
            found[0]
            if any(begin <= found.start() < end for begin, end in code)
            else _flag(found, flags)
        ),
        halves,
    )


def _argument_before(text: str, end: int, flags: str) -> int:
    """Return where the arguments begin that end here; ``end`` where another word stands there."""
    start = _token_before(text, end)
    token = text[start:end]
    is_call = flags.startswith("icevirt ")
    if not is_call and not {"=", "_"} & {*token} and f"--{token}" != flags.split(maxsplit=1)[0]:
        return end
    while (
        text[:start].endswith(", ")
        and "=" in text[(more := _token_before(text, start - 2)) : start]
    ):
        start = more
    return start


def _token_before(text: str, end: int) -> int:
    """Return where the word begins that ends here; spaces in brackets and quotes are part of it."""
    closed: list[str] = []
    quote = ""
    for at in range(end - 1, -1, -1):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _OPENING:
            closed.append(_OPENING[letter])
        elif closed and letter == closed[-1]:
            closed.pop()
        elif not closed and (letter.isspace() or letter in "([{"):
            return at + 1
    return 0


def _flag(found: re.Match[str], flags: Mapping[str, str]) -> str:
    flag, value = flags.get(found["name"]), found["value"]
    if flag is None:
        return found[0]
    if value in (None, "True"):
        return f"{found['tick']}{flag}{found['tick']}"
    if value[:1] == "[":
        each = re.split(r",\s*", value[1:-1])
        return " ".join(f"{flag} {_unquote(word)}" for word in each)
    if value == "False":
        return f"{found['tick']}--no-{flag.removeprefix('--')}{found['tick']}"
    return f"{found['tick']}{flag} {_unquote(value)}{found['tick']}"


def _unquote(value: str) -> str:
    """Return a value of Python as a shell has it."""
    inner = value[1:-1] if value[:1] in "\"'" else value
    return inner if re.fullmatch(r"[\w.,/:%+@=-]*", inner) else f"'{inner}'"
