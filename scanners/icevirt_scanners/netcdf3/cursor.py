"""Read numbers and names from the bytes of a header, with bounds checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class DamagedError(Exception):
    """The header says something that cannot be; the message says what."""


class ShortError(Exception):
    """The header goes on behind the bytes that were read, at least up to ``needed``."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


@dataclass(slots=True, kw_only=True)
class Cursor:
    """A position in the first bytes of a file.

    ``wide`` says that counts have 8 bytes (CDF-5), ``far`` that offsets do (all but classic).
    """

    data: bytes
    file_size: int
    wide: bool
    far: bool
    at: int = 0

    def take(self, length: int) -> bytes:
        """Return the next bytes; padding up to a multiple of 4 is skipped.

        Raises:
            DamagedError: The file ends before.
            ShortError: More of it must be read.
        """
        end = self.at + length
        if end > self.file_size:
            raise DamagedError("the file ends inside its header")
        if end > len(self.data):
            raise ShortError(end)
        taken = self.data[self.at : end]
        self.at = end + -end % 4
        return taken

    def tag(self) -> int:
        """Return a type or the tag of a list."""
        return int.from_bytes(self.take(4), "big")

    def size(self) -> int:
        """Return a count, length or dimension number."""
        return int.from_bytes(self.take(8 if self.wide else 4), "big")

    def offset(self) -> int:
        """Return the position of values in the file."""
        return int.from_bytes(self.take(8 if self.far else 4), "big")

    def name(self) -> bytes:
        """Return a name, which is not empty; netCDF ends it at a NUL."""
        name = self.take(self.size()).partition(b"\0")[0]
        if not name:
            raise DamagedError("a name is empty")
        return name

    def items[T](self, tag: int, least: int, read: Callable[[], T]) -> tuple[T, ...]:
        """Return a list, each item of which has at least ``least`` bytes."""
        found, count = self.tag(), self.size()
        if found != tag and (found, count) != (0, 0):
            raise DamagedError(f"tag {found} where {tag} should be")
        return self.times(count, least, read)

    def times[T](self, count: int, least: int, read: Callable[[], T]) -> tuple[T, ...]:
        """Return ``count`` things; one look at the rest of the file tells an impossible count."""
        if count * least > self.file_size - self.at:
            raise DamagedError(f"a list of {count} items, for which the file is too short")
        return tuple(read() for _ in range(count))
