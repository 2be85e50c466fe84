"""Bytes that answer a request, as values that know how to read themselves.

``now`` gives the bytes if nothing has to be waited for, else None; ``wait`` gives them or raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from icevirt.ids import ObjectId12
from icevirt.objects import fetch
from icevirt.objects.authorize import Grant
from icevirt.objects.staleness import Staleness
from icevirt.repo.assets import Assets

type Body = bytes | memoryview


class Range(Protocol):
    """Some bytes of some object."""

    @property
    def cost(self) -> int:
        """How many bytes have to be copied."""

    def now(self) -> Body | None:
        """Return the bytes if they are in memory."""

    def wait(self) -> Body:
        """Return the bytes. Raises ``StorageError``, ``UnauthorizedError``."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """Metadata, and chunks that lie in a manifest."""

    body: Body

    @property
    def cost(self) -> int:
        """Nothing."""
        return 0

    def now(self) -> Body:
        """Return the bytes."""
        return self.body

    def wait(self) -> Body:
        """Return the bytes."""
        return self.body


@dataclass(frozen=True, slots=True)
class InObject:
    """A range of a native chunk."""

    assets: Assets
    key: ObjectId12
    offset: int
    length: int
    path: str | None = None  # of the object's file, where the storage is a local directory

    @property
    def cost(self) -> int:
        """Its length."""
        return self.length

    def now(self) -> Body | None:
        """Return the bytes if the kernel has them."""
        if self.path is None:
            return None
        return fetch.read_file_cached(self.path, offset=self.offset, length=self.length)

    def wait(self) -> Body:
        """Return the bytes."""
        return self.assets.chunk(self.key, offset=self.offset, length=self.length)


@dataclass(frozen=True, slots=True)
class Source:
    """A source file that may be read, as the scan found it."""

    grant: Grant
    checksum: fetch.Checksum
    staleness: Staleness

    @property
    def is_verifiable(self) -> bool:
        """Whether a change of the file would be noticed."""
        return bool(self.checksum.etag or self.checksum.last_modified)


@dataclass(frozen=True, slots=True)
class InSource:
    """A range of a source file."""

    source: Source
    offset: int
    length: int

    @property
    def cost(self) -> int:
        """Its length."""
        return self.length

    def now(self) -> Body | None:
        """Return the bytes if the kernel has them, and they are those of the scan."""
        return fetch.read_cached(
            self.source.grant,
            offset=self.offset,
            length=self.length,
            checksum=self.source.checksum,
        )

    def wait(self) -> Body:
        """Return the bytes."""
        return fetch.read(
            self.source.grant,
            offset=self.offset,
            length=self.length,
            checksum=self.source.checksum,
            on_stale=self.source.staleness.found,
        )
