"""Define what `icevirt.source` returns: the chunks that hold a value, and who wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from icevirt.archive.reports.card import plural
from icevirt.escaping import Pictured, escape_line
from icevirt.model.json import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """The newest commit that wrote a chunk."""

    snapshot_id: str
    written_at: datetime | None = None  # None: the snapshot has expired, its log is still there
    message: str = ""
    build_id: str | None = None  # None: no build made the commit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOrigin:
    """Where the bytes of one chunk lie.

    ``kind`` is ``virtual`` (bytes of a source file), ``native`` (an object of the repository),
    ``inline`` (in a manifest) or ``uninitialized`` (never written: the fill value).
    """

    array: str  # path
    chunk: tuple[int, ...]  # its index along each dimension
    kind: Literal["uninitialized", "native", "inline", "virtual"]
    location: str = ""  # URL of the file or object; "" where it lies in none
    offset: int = 0  # bytes
    length: int = 0  # bytes
    etag: str = ""  # of the file when it was scanned; "": none was recorded
    last_modified: datetime | None = None  # of the file at most; None: none was recorded
    written_by: WrittenBy | None = None  # None: the logs do not say

    @property
    def place(self) -> str:
        """The location and the bytes, or why there are none."""
        if self.kind == "inline":
            return f"in a manifest of the repository, {plural(self.length, 'byte')}"
        if self.kind == "uninitialized":
            return "never written: the fill value"
        end = self.offset + self.length
        stored = " (stored in the repository)" if self.kind == "native" else ""
        return f"{self.location} bytes {self.offset}-{end}{stored}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValueSource(Pictured):
    """The chunks that some values of a variable are decoded from."""

    repo: str
    snapshot_id: str
    variable: str
    at: Mapping[str, JSON] = field(default_factory=dict)  # labels that were found, by dimension
    index: Mapping[str, int] = field(default_factory=dict)  # their places, by dimension
    chunks: tuple[ChunkOrigin, ...] = ()  # more than one where some dimension has no label

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[ChunkOrigin]:
        return iter(self.chunks)

    def __repr__(self) -> str:
        """Return the value, and the chunk if it is one, in one line."""
        labels = ", ".join(escape_line(f"{name}={label}") for name, label in self.at.items())
        where = self.chunks[0].place if len(self.chunks) == 1 else f"{len(self.chunks):,} chunks"
        return f"<ValueSource {escape_line(self.variable)}[{labels}]  {escape_line(where)}>"
