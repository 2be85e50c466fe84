"""Draw the parts that reports share: facts, lists and tables, in the width that there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from icevirt.display.text import words
from icevirt.escaping import escape_line
from icevirt.remedy_notation import shown


class Facts:
    """A line for each fact: what it is, in grey, and its value; long values keep their column."""

    def __init__(self, rows: Mapping[str, str | Text]) -> None:
        self.rows = rows

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
        yield from map(pasted_line, self.lines)


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
            cells = {str(each.header): [*each.cells][number] for each in others}
            yield title if isinstance(title, Text) else words(title)
            drawn = [f"{name} {cell}" for name, cell in cells.items() if str(cell)]
            yield from (words(f"  {line}") for line in _packed(drawn, options.max_width - 2))


def _packed(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield parts side by side, as many as a line holds."""
    line = ""
    for part in parts:
        longer = f"{line} · {part}" if line else part
        if line and len(longer) > width:
            yield line
            longer = part
        line = longer
    yield line


def pasted_line(line: str) -> Text:
    """Return a line as `Pasted` has it."""
    return Text(escape_line(line), no_wrap=True, overflow="ignore")


def pasted(title: str, lines: str) -> list[RenderableType]:
    """Return lines to copy under a title."""
    return [Text(), Text(title, "bold"), Pasted(lines.split("\n"))]


def table_of(headings: Sequence[str], *, right: Collection[str]) -> TableOrCards:
    """Return an empty table with these headings, some of them over numbers at the right."""
    table = TableOrCards(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        justify: Literal["right", "left"] = "right" if heading in right else "left"
        table.add_column(heading, overflow="fold", justify=justify)
    return table


def listed(title: str, lines: Iterable[str], style: str = "bold") -> list[RenderableType]:
    """Return lines under a title, nothing if there are none."""
    found = [*lines]
    return [Text(), Listed(title, found, style)] if found else []


def notes(lines: Iterable[str]) -> list[RenderableType]:
    """Return notes, with options in the notation of whoever reads them."""
    return listed("Notes", map(shown, lines))
