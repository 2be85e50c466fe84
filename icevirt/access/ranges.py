"""Bytes that answer a request, as values that know how to read themselves.

``now`` gives the bytes if nothing has to be waited for, else None; ``wait`` gives them or raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from icevirt.ids import ObjectId12
from icevirt.objects import fetch
from icevirt.objects.authorize import Grant
from icevirt.repo.assets import Assets

type Body = bytes | memoryview


class Range(Protocol):
    """Some bytes of some object."""

    def now(self) -> Body | None:
        """Return the bytes if they are in memory."""

    def wait(self) -> Body:
        """Return the bytes. Raises ``StorageError``, ``UnauthorizedError``."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """Metadata, and chunks that lie in a manifest."""

    body: Body

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

    def now(self) -> Body | None:
        """Return nothing: storage is always waited for."""
        return None

    def wait(self) -> Body:
        """Return the bytes."""
        return self.assets.chunk(self.key, offset=self.offset, length=self.length)


@dataclass(frozen=True, slots=True)
class InSource:
    """A range of a source file."""

    grant: Grant
    checksum: fetch.Checksum
    offset: int
    length: int

    def now(self) -> Body | None:
        """Return the bytes if the kernel has them."""
        return fetch.read_cached(
            self.grant, offset=self.offset, length=self.length, checksum=self.checksum
        )

    def wait(self) -> Body:
        """Return the bytes."""
        return fetch.read(
            self.grant, offset=self.offset, length=self.length, checksum=self.checksum
        )
