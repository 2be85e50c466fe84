"""Format the eras of an archive: their files, start times, differences and remedies."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icevirt.archive.eras import Choice, Era, Eras, Run
from icevirt.display.text import count, size, words

SHOWN = 20
"""Eras, and runs of files within another era, that a terminal is shown."""


def eras(found: Eras) -> RenderableType:
    """Return the eras for a terminal."""
    along = f" along {found.dimension}" if found.dimension else ""
    order = "" if found.ordered else ", in the order given"
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{found.count} eras", "bold"),
            words(
                f"{along}: files within an era decode equally, files of different eras do "
                f"not{order}"
            ),
        ),
        _table(found),
    ]
    if found.count > SHOWN:
        parts.append(words(f"  and {found.count - SHOWN:,} more", "dim"))
    parts += _titled("Files within another era", _apart(found))
    parts += _titled("Files that lack a variable", _absences(found))
    parts += _titled("What can be done", map(choice, found.choices))
    return Group(*parts)


def _table(found: Eras) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
    for heading in ("era", "files", "from", "to", "what differs"):
        table.add_column(
            heading, overflow="fold", justify="right" if heading == "files" else "left"
        )
    for era in found.eras[:SHOWN]:
        table.add_row(
            words(era.name, "bold"),
            f"{era.files:,}",
            _end(era.first, era.first_label),
            _end(era.last, era.last_label),
            words(_differs(era)),
        )
    return table


def _differs(era: Era) -> str:
    pieces = f"in {era.runs} pieces" if era.runs > 1 else ""
    if era.since is None:
        return pieces
    changes = ". ".join(map(str, era.changes))
    return ", ".join(part for part in (f"from era_{era.since}: {changes}", pieces) if part)


def _end(url: str, label: str) -> Text:
    name = _name(url)
    return words(f"{name} ({label})" if label else name)


def _apart(found: Eras) -> Iterator[str]:
    for run in found.apart[:SHOWN]:
        yield f"{_files(run)} of era_{run.era} within era_{run.inside}"
    if more := max(0, len(found.apart) - SHOWN) + found.more_apart:
        yield f"and {count(more, 'run')} more"


def _files(run: Run) -> str:
    if run.files == 1:
        return _name(run.first)
    return f"{_name(run.first)} to {_name(run.last)}, {count(run.files, 'file')},"


def _absences(found: Eras) -> Iterator[str]:
    for absence in found.absences[:SHOWN]:
        names = ", ".join(map(_name, absence.examples))
        more = absence.places - len(absence.examples)
        yield (
            f"{absence.variable} is not in {count(absence.places, 'place')} of era_{absence.era}:"
            f" {names}{f' and {more:,} more' if more > 0 else ''}"
        )


def choice(told: Choice) -> str:
    """Return one thing that can be done, on one line."""
    stored = f"; {size(told.bytes_stored)} to be stored" if told.bytes_stored else ""
    error = ""
    if told.max_error:
        error = f"; the error could be up to {told.max_error:g}"
    return f"{told.option}  {told.does}{stored}{error}"


def _titled(title: str, lines: Iterator[str] | map[str]) -> list[RenderableType]:
    told = [words(f"  {line}") for line in lines]
    return [Text(title, style="bold"), *told] if told else []


def _name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
