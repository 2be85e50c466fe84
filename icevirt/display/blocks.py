"""Draw the parts that reports share: words, amounts, facts, lists and tables, in the width that is.

Names and attributes come from other people's files. A terminal would obey control characters in
them, and rich would obey square brackets, so both are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from icevirt.amounts import count_exactly, volume
from icevirt.escaping import escape_line
from icevirt.remedy_notation import show_remedy

if TYPE_CHECKING:
    from icevirt.archive.reports.build import ReferenceCounts
    from icevirt.model.snapshot import Extent


def words(value: object, style: str = "") -> Text:
    """Return ``value`` as text for rich that holds no markup."""
    return Text(escape_line(value), style=style)


def shorten(value: object, width: int = 60) -> str:
    """Return ``value`` in at most ``width`` letters; strings as they are, other values as JSON."""
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = escape_line(written[: width + 1])
    return text if len(text) <= width else text[: width - 1] + "…"


size, count = volume, count_exactly


def seconds(duration: float) -> str:
    """Return a duration like ``0.4 s`` or ``2 min 05 s``."""
    if duration < 60:
        return f"{duration:.1f} s"
    return "{} min {:02d} s".format(*divmod(round(duration), 60))


def box(lengths: Sequence[int | Extent]) -> str:
    """Return a shape like ``3 × 330 × 360``; an array without dimensions is a ``scalar``.

    Chunks of several lengths along an axis are shown like ``28 to 31``.
    """
    shown = (str(n) if isinstance(n, int) else f"{n[0]} to {n[1]}" for n in lengths)
    return " × ".join(shown) if lengths else "scalar"


def references(counts: ReferenceCounts) -> str:
    """Return ``120 virtual, 2 inline``, kinds that do not occur left out."""
    kinds = ("virtual", "native", "inline", "stored")
    numbers = ((getattr(counts, kind), kind) for kind in kinds)
    return ", ".join(f"{number:,} {kind}" for number, kind in numbers if number) or "none"


def bytes_of(counts: ReferenceCounts, place: str) -> str:
    """Return ``120 virtual: 1.4 MiB stay in the files, 2 B in the catalog``."""
    stay, stored = size(counts.bytes_referenced), size(counts.bytes_stored)
    stored = f"at most {stored}" if counts.stored else stored
    return f"{references(counts)}: {stay} stay in the files, {stored} {place}"


def some(names: Sequence[str], most: int) -> str:
    """Return ``a, b and 3 more``: at most so many of the names."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def durations(times: Mapping[str, float]) -> str:
    """Return ``scan 0.4 s, write 2 min 05 s``."""
    return ", ".join(f"{phase} {seconds(took)}" for phase, took in times.items())


def entry(authorized: str | tuple[str, str]) -> str:
    """Return an authorization as the option ``--authorize`` takes it."""
    return authorized if isinstance(authorized, str) else "=".join(authorized)


def place(text: str) -> str:
    """Return a file of this machine by its path, relative to the working directory if below it."""
    if not text.startswith("file:///"):
        return text
    path = Path(unquote(text.removeprefix("file://")))
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class Facts:
    """A line for each fact: what it is, in grey, and its value; long values keep their column.

    Facts that are None are left out.
    """

    def __init__(self, rows: Mapping[str, str | Text | None]) -> None:
        self.rows = {name: value for name, value in rows.items() if value is not None}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        wide = max(map(len, self.rows), default=0)
        room = max(options.max_width - wide - 4, 20)
        for name, value in self.rows.items():
            text = words(value) if isinstance(value, str) else value
            head = f"  {name:<{wide}}  "
            for line in text.wrap(console, room) or [Text()]:
                line.rstrip()
                yield Text.assemble((head, "dim"), line)
                head = " " * len(head)


class Listed:
    """A title and lines below it, indented; where one is too long, all of it is."""

    def __init__(self, title: str, lines: Sequence[str], style: str) -> None:
        self.title, self.lines, self.style = title, lines, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield words(self.title, self.style)
        for each in self.lines:
            for line in words(each).wrap(console, max(options.max_width - 2, 20)):
                line.rstrip()
                yield Text.assemble("  ", line)


class Pasted:
    """Lines that people copy: a terminal may wrap them, and no line break is put in."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield from map(paste_line, self.lines)


class TableOrCards(Table):
    """A table; a card for each row where the columns do not fit."""

    def add_row(self, *cells: Any, **how: Any) -> None:
        """Add a row; its texts hold no markup."""
        super().add_row(*(words(cell) if isinstance(cell, str) else cell for cell in cells), **how)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table or the cards."""
        wide = console.measure(self, options=options.update(max_width=10_000)).maximum
        if wide <= options.max_width or not self.rows:
            yield from super().__rich_console__(console, options)
            return
        first, *others = self.columns
        for number, title in enumerate(first.cells):
            yield title if isinstance(title, Text) else words(title)
            line = ""
            for column in others:
                if not (cell := str([*column.cells][number])):
                    continue
                part = f"{column.header} {cell}"
                longer = f"{line} · {part}" if line else part
                if line and len(longer) > options.max_width - 2:
                    yield words(f"  {line}")
                    longer = part
                line = longer
            yield words(f"  {line}")


def paste_line(line: str) -> Text:
    """Return a line as `Pasted` has it."""
    return Text(escape_line(line), no_wrap=True, overflow="ignore")


def paste_lines(title: str, lines: str) -> list[RenderableType]:
    """Return lines to copy under a title."""
    return [Text(), Text(title, "bold"), Pasted(lines.split("\n"))]


def table_of(headings: Sequence[str], *, right: Collection[str]) -> TableOrCards:
    """Return an empty table with these headings, some of them over numbers at the right."""
    table = TableOrCards(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        justify: Literal["right", "left"] = "right" if heading in right else "left"
        table.add_column(heading, overflow="fold", justify=justify)
    return table


def list_lines(title: str, lines: Iterable[str], style: str = "bold") -> list[RenderableType]:
    """Return lines under a title, nothing if there are none."""
    found = [*lines]
    return [Text(), Listed(title, found, style)] if found else []


def notes(lines: Iterable[str]) -> list[RenderableType]:
    """Return notes, with options in the notation of whoever reads them."""
    return list_lines("Notes", map(show_remedy, lines))


def head_report(title: str, rows: Mapping[str, str | None], *parts: RenderableType) -> Group:
    """Return a report: a title, facts, and what follows."""
    return Group(words(title, "bold"), Facts(rows), *parts)


def finish(text: str, style: str = "bold green") -> Text:
    """Return the last line of a report, which says how it ended."""
    return words(f"  {text}", style)
