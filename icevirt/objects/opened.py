"""Define what an opened source file is, and what a build records about one of this machine."""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from icevirt.archive.scanned import SourceFile
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import END_SECOND


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


def local_file(url: str, path: str, status: os.stat_result) -> SourceFile:
    """Return what is recorded about a file.

    Raises:
        InvalidInputError: A reference cannot carry its time: it is of 2106 or later.
    """
    file = SourceFile.of_status(url, status)
    if file.last_modified_seconds >= END_SECOND:
        raise InvalidInputError(
            "the modification time of a source cannot be stored (only times before 2106 can), so "
            "changes of the file would go unnoticed",
            do=f"Set it to now: touch {shlex.quote(path)}. Where that cannot be written, build from"
            " a copy.",
            path=path,
            seconds_since_1970=file.last_modified_seconds,
        )
    return file
