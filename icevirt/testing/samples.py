"""Define the input of a conformance suite: sample files, damaged copies, and values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedFile
from icevirt.objects.opening import open_source
from icevirt.scan.contract import ByteSource, Scanner, ScannerOptions
from icevirt.scan.registry import combine


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the format's reference library says of a variable."""

    values: NDArray[Any]  # undecoded, in any byte order
    attributes: Mapping[str, Any] | None = None  # None: they are not compared
    dimensions: tuple[str, ...] | None = None  # None: they are not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A file, and an oracle that shares nothing with the scanner.

    Args:
        path: The file.
        expected: Returns all variables of the file by absolute path, as the oracle reads them.
        options: Of every scan, where the file needs some.
    """

    path: Path
    expected: Callable[[], Mapping[str, Expected]]
    options: ScannerOptions = field(default_factory=ScannerOptions)

    def scan(self, scanner: Scanner, path: Path | None = None, **changes: Any) -> ScannedFile:
        """Scan the file, or another in its place, with some options changed."""
        with open_source(path or self.path) as source:
            options = replace(self.options, strict=True, **changes)
            return combine(scanner.scan(source, options), options)


class WatchedSource:
    """A byte source that looks like a remote file and notes which bytes are read."""

    local_path = None

    def __init__(self, inner: ByteSource) -> None:
        self._inner = inner
        self.file = inner.file
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        """Read, and make a note."""
        self.reads.append((offset, length))
        return self._inner.read(offset, length)

    def check_unchanged(self) -> None:
        """Compare the file with what it was."""
        self._inner.check_unchanged()


def fetch(url: str, offset: int, length: int) -> bytes:
    """Return bytes of a local file by its URL."""
    with open_source(url) as source:
        return source.read(offset, length)


def same_values(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Say whether two arrays hold the same: bit for bit where they hold no Python objects."""
    if found.dtype.kind in "OT" or wanted.dtype.kind in "OT":
        return found.shape == wanted.shape and _texts(found) == _texts(wanted)
    native = wanted.dtype.newbyteorder("=")
    return (
        found.shape == wanted.shape
        and found.dtype == native
        and found.tobytes() == np.ascontiguousarray(wanted, native).tobytes()
    )


def _texts(values: NDArray[Any]) -> list[str]:
    return [v.decode() if isinstance(v, bytes) else str(v) for v in values.reshape(-1).tolist()]


def same_value(found: Any, wanted: Any) -> bool:
    """Say whether an attribute is what the oracle says, up to the type that JSON gives it."""
    one, other = np.asarray(found), np.asarray(wanted)
    if one.dtype.kind in "OSUT" or other.dtype.kind in "OSUT":
        return one.size == other.size and _texts(one) == _texts(other)
    return one.size == other.size and bool(
        np.array_equal(one.reshape(-1), other.reshape(-1), equal_nan=one.dtype.kind in "fc")
    )


def damage(path: Path, *, copies: int) -> Iterator[tuple[str, bytes]]:
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
