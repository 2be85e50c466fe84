"""Write amounts and counts of things in words."""

from __future__ import annotations

import re

_UNITS = {
    unit: base**power
    for power, letter in enumerate("kmgt", 1)
    for unit, base in ((f"{letter}ib", 1024), (f"{letter}b", 1000))
} | {"b": 1, "": 1}


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


def size_of(count: int) -> str:
    """Return a number of bytes as people read it."""
    number = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{number:.1f} {unit}"


def count_exactly(number: int, noun: str) -> str:
    """Return ``1 step`` or ``1,200,000 steps``: the exact number."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def plural(number: int, noun: str) -> str:
    """Return ``1 file`` or ``8,784 files``."""
    return f"{amount(number)} {noun}" if number == 1 else f"{amount(number)} {noun}s"


def parse_size(given: object) -> int:
    """Return the bytes that a number or a text like ``4GiB`` says; 0 where it says none."""
    if isinstance(given, int):
        return given
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", str(given).strip().lower())
    if found is None or found[2] not in _UNITS:
        return 0
    return int(float(found[1]) * _UNITS[found[2]])
