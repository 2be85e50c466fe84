"""Define the interface of an opened source file: a context, a file, ranges of its bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from icevirt.archive.scanned import SourceFile


class OpenedSource(ABC):
    """A source file, opened once; all facts about it are of that opening."""

    file: SourceFile
    requests: int = 0  # made to a server so far
    bytes_fetched: int = 0  # from it

    @property
    @abstractmethod
    def local_path(self) -> str | None:
        """The path on this machine, symbolic links followed; None for a file elsewhere."""

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file."""

    def prefetch(  # noqa: B027 - most need none
        self, ranges: Sequence[tuple[int, int]], *, page: int = 0
    ) -> None:
        """Take note of ranges (begin, end) that will be read soon; a server is asked at once."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Compare the file with what was opened. Raises ``StaleReferenceError``."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
