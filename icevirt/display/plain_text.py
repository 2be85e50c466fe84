"""Format reports as plain text, as a file or a pipe shows them."""

from __future__ import annotations

from io import StringIO


def as_text(value: object, *, width: int = 100) -> str:
    """Return a report as text without colors."""
    from rich.console import Console

    from icevirt.display.render import render

    stream = StringIO()
    console = Console(file=stream, width=width, markup=False, emoji=False, highlight=False)
    console.print(render(value))
    return stream.getvalue().rstrip("\n")
