"""Define the operations of a repository's storage, and the laws they keep.

Paths are relative to the root, with ``/`` between segments, like
``manifests/1CECHNKREP0F1RSTCMT0``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Version:
    """What a conditional put compares: an etag, a generation, a counter. Opaque."""

    token: str


@dataclass(frozen=True, slots=True)
class Written:
    """The conditional put took place; the object is now at ``version``."""

    version: Version


@dataclass(frozen=True, slots=True)
class LostRace:
    """Somebody else wrote first; nothing was changed.

    Unless ``perhaps_first_written``: an answer of the storage got lost, so that our bytes may have
    been written all the same, and been read and replaced by whoever came next.
    """

    perhaps_first_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """An object as a listing shows it."""

    path: str
    size: int
    last_modified: int  # microseconds since 1970, by the storage's clock


class Storage(Protocol):
    """A repository's root. Implementations pickle, are safe in threads and after ``fork``."""

    @property
    def url(self) -> str:
        """The root as a URL, without secrets."""

    def exists(self) -> bool:
        """Say whether anything lies at the root, an empty directory excepted."""

    def get(self, path: str) -> bytes:
        """Return the whole object. Raises ``ObjectNotFoundError``."""

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes.

        Raises:
            ObjectNotFoundError: There is no such object.
            StorageError: The object ends before.
        """

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return the object and the version it was read at. Raises ``ObjectNotFoundError``."""

    def put(self, path: str, body: bytes) -> None:
        """Write an immutable object: atomic and durable; an existing one is replaced whole."""

    def put_if(self, path: str, body: bytes, *, was: Version | None) -> Written | LostRace:
        """Write ``body`` if the object is still at ``was`` (None: if there is none).

        Atomic and durable: readers see the old bytes or the new, never a mixture.
        """

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose path begins with ``prefix``, a whole number of segments."""

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects in few requests; those that are not there are no error."""

    def delete_below(self, prefix: str) -> None:
        """Remove every object below ``prefix``, with the directories that held them."""
