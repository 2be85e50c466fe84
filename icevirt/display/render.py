"""Show a value as text: on a terminal, or as a string."""

from __future__ import annotations

import sys
from io import StringIO
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console, Group, RenderableType

from icevirt.display.blocks import paste_lines, words
from icevirt.display.descriptions import describe, find_function

if TYPE_CHECKING:
    from typing import IO

_WIDTH = 10_000  # where no terminal reads, lines are as long as they need to be


def render(value: object) -> RenderableType:
    """Return ``value`` for a terminal; what draws itself stays as it is."""
    if parts := describe(value)[1].parts:
        return cast("RenderableType", find_function(parts)(value))
    if hasattr(value, "__rich__") or hasattr(value, "__rich_console__"):
        return cast("RenderableType", value)
    return words(value if isinstance(value, str) else repr(value))


def next_step(command: str) -> RenderableType:
    """Return a command to go on with, for a terminal."""
    return Group(*paste_lines("Build it", command))


def console(stream: object) -> Console:
    """Return a console that prints names as they are: no markup, no emoji, no highlighting."""
    terminal = getattr(stream, "isatty", bool)()
    return _console(stream, width=None if terminal else _WIDTH)


def _console(stream: object, **how: Any) -> Console:
    return Console(file=cast("IO[str]", stream), markup=False, emoji=False, highlight=False, **how)


def show_value(value: object, to: Console) -> None:
    """Print a value."""
    to.print(render(value), crop=False)  # lines to paste are long


def as_text(value: object, *, width: int | None = None) -> str:
    """Return a value as text without colors: what a command prints of it.

    Args:
        value: A report.
        width: Of lines; by default what stdout takes.
    """
    stream = StringIO()
    to = _console(
        stream,
        width=width or console(sys.stdout).width,
        color_system=None,  # whatever the environment asks of terminals
        force_jupyter=False,  # else a notebook would show it at once, and the text would be empty
    )
    show_value(value, to)
    return stream.getvalue().rstrip("\n")
