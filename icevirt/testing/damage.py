"""Make damaged copies of a file, always the same: cut short, bits flipped, zeroed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path


def damaged(path: Path, *, copies: int) -> Iterator[tuple[str, bytes]]:
    """Yield what is odd about a copy, and its bytes."""
    raw = path.read_bytes()
    yield from _cut(raw, copies)
    dice = random.Random(len(raw))  # noqa: S311 - to damage files
    for number in range(copies):
        copy = bytearray(raw)
        # metadata stands at the beginning of most formats
        end = max(1, len(raw) if number % 2 else min(len(raw), 4096))
        places = [dice.randrange(end) for _ in range(1 + number % 8)] if raw else []
        for place in places:
            copy[place] ^= 1 << dice.randrange(8)
        yield f"bits turned in {places}", bytes(copy)
    for at in range(0, len(raw), max(1, len(raw) // max(1, copies // 4))):
        copy = bytearray(raw)
        copy[at : at + 64] = bytes(len(copy[at : at + 64]))
        yield f"zeros at {at}", bytes(copy)


def _cut(raw: bytes, copies: int) -> Iterator[tuple[str, bytes]]:
    early = [size for size in (0, 1, 3, 4, 7, 8, 16, 64, 512) if size < len(raw)]
    late = range(0, len(raw), max(1, len(raw) // copies))
    for size in sorted({*early, *late}):
        yield f"cut after {size} bytes", raw[:size]
