"""Draw reports for notebooks: a table of facts, and the next step; files' text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from icevirt.escaping import escape_html


def card(
    title: str, facts: Mapping[str, object], *, lines: Iterable[str] = (), step: Iterable[str]
) -> str:
    """Return HTML of an object.

    Args:
        title: Its one-line repr.
        facts: What it holds, by name; empty ones are left out.
        lines: Further sentences, like the notes of a plan.
        step: Lines of code that show what to do next.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{escape_html(name)}</th>'
        f'<td style="text-align:left">{escape_html(value)}</td></tr>'
        for name, value in facts.items()
        if value not in ("", None)
    )
    notes = "".join(f"<li>{escape_html(line)}</li>" for line in lines)
    return (
        f"<div><code>{escape_html(title)}</code><table>{rows}</table>"
        + (f"<ul>{notes}</ul>" if notes else "")
        + "<pre><code>"
        + "\n".join(map(escape_html, step))
        + "</code></pre></div>"
    )


def table(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows as HTML: texts at the left, where notebooks put all, and numbers at the right."""
    head = "".join(f'<th style="text-align:left">{escape_html(name)}</th>' for name in names)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    whole = ";white-space:nowrap" if isinstance(value, tuple) else ""
    return f'<td style="text-align:{side}{whole}">{escape_html(value)}</td>'


def amount(number: int) -> str:
    """Return a large number like ``4.2 M``, a small one as it is."""
    if number < 100_000:
        return f"{number:,}"
    for unit, size in (("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)):
        if number < size * 1000:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e12:.1f} T"


def volume(number: int) -> str:
    """Return a number of bytes like ``4.1 TiB``."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} PiB"


def listing(items: Sequence[str], most: int) -> str:
    """Return the first items in a row; dots stand for the others."""
    return ", ".join([*items[:most], *(["..."] if len(items) > most else [])])


def counted(number: int, noun: str) -> str:
    """Return ``1 step`` or ``1,200,000 steps``: the exact number."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plural(number: int, noun: str) -> str:
    """Return ``1 file`` or ``8,784 files``."""
    return f"{amount(number)} {noun}" if number == 1 else f"{amount(number)} {noun}s"
