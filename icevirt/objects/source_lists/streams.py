"""Stream lists of sources with bounded memory, whatever their size."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import IO

from icevirt.errors import InvalidInputError
from icevirt.objects.opened import OpenedSource
from icevirt.objects.source_lists.rows import bad_row

LONGEST_LINE = 16 << 20  # bytes; a STAC item with all its assets takes a hundredth
LARGEST_DOCUMENT = 512 << 20  # bytes of JSON, or of Parquet on stdin
_BUFFER = 8 << 20


class RemoteStream(io.RawIOBase):
    """A file on a server, read by ranges."""

    def __init__(self, source: OpenedSource) -> None:
        super().__init__()
        self._source, self._at = source, 0

    @classmethod
    def buffered(cls, source: OpenedSource) -> io.BufferedReader:
        """Return a stream that asks for large ranges."""
        return io.BufferedReader(cls(source), _BUFFER)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can be read from anywhere, which Parquet needs."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Choose where the next read begins."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.file.size}
        self._at = max(0, start[whence] + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as much as fits, less only at the end."""
        length = min(len(buffer), max(0, self._source.file.size - self._at))
        body = self._source.read(self._at, length) if length else b""
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


def lines_of(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a list.

    Raises:
        InvalidInputError: One is longer than any line of a list.
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise bad_row(
                f"a line of a list of sources is longer than {LONGEST_LINE >> 20} MiB", name, number
            )
        yield raw


def whole(stream: IO[bytes], name: str) -> bytes:
    """Return all of a list that can only be read as a whole.

    Raises:
        InvalidInputError: That is too much.
    """
    size = 0
    if isinstance(stream, io.BufferedReader) and stream.seekable():
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
    raw = b"" if size > LARGEST_DOCUMENT else stream.read(LARGEST_DOCUMENT + 1)
    if max(size, len(raw)) > LARGEST_DOCUMENT:
        raise InvalidInputError(
            f"a list of sources is larger than the {LARGEST_DOCUMENT >> 20} MiB that can be read"
            " as one document",
            do="Write one JSON object per line (.jsonl), or pass Parquet as a file (.parquet).",
            list=name,
        )
    return raw
