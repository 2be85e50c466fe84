"""Draw for notebooks what terminals are shown, with the next step; files' text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from icevirt.display.blocks import Facts, Listed, Pasted, TableOrCards
from icevirt.display.descriptions import describe
from icevirt.display.render import render
from icevirt.escaping import escape_html

_SHOWN = 100
_AS_IS = 'style="white-space:pre-wrap;text-align:left"'


def picture(value: object) -> str:
    """Return HTML of a value: its one line, what terminals are shown of it, and the next step."""
    described = describe(value)[1]
    parts = html(render(value)) if described.parts else ""
    steps = described.steps(value)
    code = f"<div>Next</div>{_code(steps)}" if steps else ""
    title = repr(value).partition("\n")[0]
    if not title.startswith("<"):  # a call with all that the value holds
        title = f"<{type(value).__name__}>"
    return f"<div><code>{escape_html(title)}</code>{parts}{code}</div>"


def html(part: object, most: int = _SHOWN) -> str:
    """Return parts of a text as HTML, "" for tables without rows.

    Args:
        part: What terminals would print.
        most: Rows of a table, and items of a list, that are shown.
    """
    made = ""
    match part:
        case Group():
            runs = groupby(part.renderables, key=lambda each: isinstance(each, Text))
            made = "".join(_lines(run) if text else _parts(run, most) for text, run in runs)
        case Facts():
            rows = part.rows.items()
            made = _table([_cell(name, "th") + _cell(value) for name, value in rows], most)
        case Listed():
            lines = [f"<li {_AS_IS}>{item}</li>" for item in _items(part.lines)]
            made = f"<div>{escape_html(part.title)}</div><ul>{_some(lines, 'li', most)}</ul>"
        case Pasted():
            made = _code(part.lines)
        case TableOrCards():
            columns = [[_cell(cell, "td", of.justify) for cell in of.cells] for of in part.columns]
            head = "".join(_cell(of.header, "th", of.justify) for of in part.columns)
            made = _table([*map("".join, zip(*columns, strict=True))], most, head)
        case Tree():
            inner = "".join(f"<li>{html(each, most)}</li>" for each in part.children)
            made = f"<div>{escape_html(part.label)}</div>{f'<ul>{inner}</ul>' * bool(inner)}"
        case _:
            made = _lines([part])
    return made


def _parts(run: Iterable[object], most: int) -> str:
    return "".join(html(each, most) for each in run)


def _lines(run: Iterable[object]) -> str:
    """Return lines of text, which may be indented; blank ones at the ends are left out."""
    text = "\n".join(escape_html(each) for each in run).strip("\n")
    return f"<div {_AS_IS}>{text}</div>" if text else ""


def _items(lines: Iterable[str]) -> list[str]:
    """Return the items of a list: a line, and those behind it that are indented."""
    found: list[str] = []
    for line in map(escape_html, lines):
        if found and line.startswith(" "):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def _code(lines: Iterable[str]) -> str:
    return f"<pre><code>{'\n'.join(map(escape_html, lines))}</code></pre>"


def _table(rows: Sequence[str], most: int, head: str = "") -> str:
    made = _some([f"<tr>{row}</tr>" for row in rows], "tr", most)
    return f"<table>{f'<tr>{head}</tr>' * bool(head)}{made}</table>" if rows else ""


def _some(rows: Sequence[str], tag: str, most: int) -> str:
    """Return the first rows or items, and how many more there are."""
    more = len(rows) - most
    rest = "" if more <= 0 else f"<{tag}>{_cell(f'and {more:,} more')}</{tag}>"
    return "".join(rows[:most]) + rest


def _cell(value: object, tag: str = "td", side: str = "left") -> str:
    return f'<{tag} style="text-align:{side}">{escape_html(value)}</{tag}>'
