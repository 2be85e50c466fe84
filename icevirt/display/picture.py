"""Draw for notebooks what terminals are shown, with the next step; files' text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from icevirt.archive.reports.history import BranchMove
from icevirt.display.blocks import Facts, Listed, Pasted, TableOrCards
from icevirt.display.document import of_class
from icevirt.display.render import FORMATS, render
from icevirt.escaping import escape_html

_SHOWN = 100
_AS_IS = 'style="white-space:pre-wrap;text-align:left"'


def _back(move: BranchMove) -> list[str]:
    to = f"{move.before.snapshot_id!r}, branch={move.branch!r}, expect={move.after.snapshot_id!r}"
    return [f"icevirt.reset({move.repo!r}, {to})"]


_STEPS: dict[str, Callable[[Any], list[str]]] = {
    "BranchMove": _back,
    "BuildPlan": lambda _: ["report = plan.write(repo)", "plan.changes(repo)", "print(plan)"],
    "BuildReport": lambda _: ["ds = report.open()"],
    "CatalogView": lambda _: ["view.files().read_pandas()", "view.summary()"],
    "CommitLog": lambda log: [
        f'icevirt.log({log.repo!r}, snapshot_id="{log.next}")'
        if log.next
        else f"icevirt.diff({log.repo!r}, a)"
    ],
    "Repository": lambda repo: [
        'session = repo.readonly_session("main")',
        f"icevirt.log({repo.storage.url!r})",
    ],
    "RepositorySummary": lambda summary: [f"icevirt.to_html({summary.repo!r}, 'page.html')"],
    "ScannedFile": lambda scanned: [f"scanned.array({each.path!r})" for each in scanned.arrays[:1]],
    "ScanReport": lambda scan: [
        *(["archive.bad_files"] if scan.bad_files else []),
        'plan = archive.combine("time")  # along the dimension of your files',
    ],
    "Session": lambda session: [
        "xr.open_zarr(session.store, consolidated=False)",
        *([] if session.read_only else ["session.status()", 'session.commit("...")']),
    ],
    "VersionDiff": lambda diff: [
        f"icevirt.log({diff.repo!r}, snapshot_id={diff.after.snapshot_id!r})"
    ],
}
"""Lines of code that show what to do next, by the name of the class."""


def picture(value: object) -> str:
    """Return HTML of a value: its one line, what terminals are shown of it, and the next step."""
    form, steps = of_class(value, FORMATS), of_class(value, _STEPS)
    parts = "" if form is None else html(render(value))
    code = "" if steps is None else _code(steps(value))
    title = repr(value).partition("\n")[0]
    if not title.startswith("<"):  # a call with all that the value holds
        title = f"<{type(value).__name__}>"
    return f"<div><code>{escape_html(title)}</code>{parts}{code}</div>"


def html(part: object, most: int = _SHOWN) -> str:
    """Return parts of a text as HTML, "" for tables without rows.

    Args:
        part: What terminals would print.
        most: Rows of a table, and lines of a list, that are shown.
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
            lines = [f"<li {_AS_IS}>{escape_html(each)}</li>" for each in part.lines]
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
