"""Format words and numbers so that they are safe and readable on a terminal.

Names and attributes come from other people's files. A terminal would obey control characters in
them, and rich would obey square brackets, so both are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from rich.text import Text

from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.reports.card import counted, volume
from icevirt.escaping import escape_line
from icevirt.model.snapshot import Extent


def words(value: object, style: str = "") -> Text:
    """Return ``value`` as text for rich that holds no markup."""
    return Text(escape_line(value), style=style)


def shortened(value: object, width: int = 60) -> str:
    """Return ``value`` in at most ``width`` letters; strings as they are, other values as JSON."""
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = escape_line(written[: width + 1])
    return text if len(text) <= width else text[: width - 1] + "…"


def size(number: int) -> str:
    """Return a number of bytes like ``1.4 MiB``."""
    return volume(number)


def count(number: int, noun: str) -> str:
    """Return ``1 file`` or ``1,200 files``."""
    return counted(number, noun)


def seconds(duration: float) -> str:
    """Return a duration like ``0.4 s`` or ``2 min 05 s``."""
    if duration < 60:
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest:02d} s"


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
