"""Describe the bytes that answer a request, as values that can read themselves.

``now`` returns the bytes if they need no waiting, else None; ``wait`` returns them or raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from icevirt.ids import ObjectId12
from icevirt.objects import fetch, remote
from icevirt.objects.answers import Body, Checksum
from icevirt.objects.authorize import LocalGrant
from icevirt.objects.staleness import Staleness
from icevirt.repo.assets import Assets


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
    """A local source file that may be read, as the scan found it."""

    grant: LocalGrant
    checksum: Checksum
    staleness: Staleness


@dataclass(frozen=True, slots=True)
class InSource:
    """A range of a local source file."""

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


@dataclass(frozen=True, slots=True)
class InRemote:
    """A range of a source elsewhere, which is best fetched together with others."""

    part: remote.RemoteRange

    @property
    def cost(self) -> int:
        """Its length."""
        return self.part.length

    def now(self) -> None:
        """Return nothing: a network has to be waited for."""

    def wait(self) -> Body:
        """Return the bytes."""
        return remote.read(self.part)


def waited(ranges: Sequence[Range | None]) -> list[Body | None]:
    """Return the bytes of all ranges; what lies elsewhere is fetched together."""
    found = [None if one is None or isinstance(one, InRemote) else one.wait() for one in ranges]
    away = [(row, one.part) for row, one in enumerate(ranges) if isinstance(one, InRemote)]
    bodies = remote.fetch_all([part for _, part in away]) if away else []
    for (row, _), body in zip(away, bodies, strict=True):
        if isinstance(body, Exception):
            raise body
        found[row] = body
    return found
