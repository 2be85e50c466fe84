"""Define the operations of a repository's storage, and the laws they keep.

Paths are relative to the root, like ``manifests/1CECHNKREP0F1RSTCMT0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from icevirt.errors import InvalidInputError, StorageError

NOTHING: Mapping[str, bytes] = MappingProxyType({})
_UNFINISHED = r".+#\d+"
# The official client stages its files under such names too, and both listings skip them.


class Version(NamedTuple):
    """What a conditional put compares: an etag, a generation, a counter. Opaque."""

    token: str


class Written(NamedTuple):
    """The conditional put took place; the object is now at ``version``."""

    version: Version


class LostRace(NamedTuple):
    """Another writer was first; nothing was changed.

    Unless ``perhaps_first_written``: an answer of the storage got lost, so that our bytes may have
    been written all the same, and been read and replaced by the next writer.
    """

    perhaps_first_written: bool = False


class ObjectInfo(NamedTuple):
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
        """Say whether there is anything at the root, an empty directory excepted."""

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

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write ``body`` if the object is still at ``was`` (None: if there is none).

        Atomic and durable: readers see the old bytes or the new, never a mixture. Immutable objects
        that ``body`` refers to can be passed as ``after``, by their paths: they are written as by
        `put` before it is, and also if the race is lost.
        """

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose path begins with ``prefix``, a whole number of segments.

        With a slash at its end it is no object itself, which spares servers a question.
        With ``after``, a path: only those that sort behind it, in this order.
        """

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects in few requests; those that are not there are no error."""

    def delete_below(self, prefix: str) -> None:
        """Remove every object below ``prefix``, with the directories that held them."""


_NO_NAMES = frozenset({"", ".", ".."})


def check_path(path: str) -> str:
    """Return ``path`` if it names an object below the root.

    Raises:
        InvalidInputError: It is empty, absolute, or has an empty, ``.`` or ``..`` segment.
    """
    if not path or "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        raise InvalidInputError("this is not a valid object path of a repository", path=path)
    return path


def is_below(path: str, prefix: str) -> bool:
    """Say whether ``prefix`` is a whole number of leading segments of ``path``."""
    prefix = prefix.rstrip("/")
    return not prefix or path == prefix or path.startswith(prefix + "/")


def is_unfinished(name: str) -> bool:
    """Say whether a file of this name is an unfinished write, and no object."""
    return re.fullmatch(_UNFINISHED, name) is not None


def too_short(url: str, offset: int, length: int, found: int) -> StorageError:
    """Return the error of an object that ends before the requested bytes."""
    return StorageError(
        "the object is shorter than its references say",
        do="It was truncated or replaced after it was written.",
        url=url,
        offset=offset,
        length=length,
        found=found,
    )


LARGEST_WHOLE = 4 << 30
"""Bytes that are read at once: FlatBuffers end at half of that, and chunks are read by ranges."""


def refuse_huge(url: str, size: int) -> None:
    """Check that an object can be read whole. Raises ``StorageError``."""
    if size > LARGEST_WHOLE:
        raise StorageError(
            "the object is larger than any file of the format can be",
            do="It is damaged or was replaced: restore it from a copy of the repository.",
            url=url,
            size=size,
        )


class Below(NamedTuple):
    """The objects of ``storage`` under ``prefix``, which ends in ``/``."""

    storage: Storage
    prefix: str

    @property
    def url(self) -> str:
        """The prefix as a URL, without secrets."""
        return f"{self.storage.url.rstrip('/')}/{self.prefix.rstrip('/')}"

    def exists(self) -> bool:
        """Say whether there is anything under the prefix."""
        return next(self.list(), None) is not None

    def get(self, path: str) -> bytes:
        """Return the whole object. Raises ``ObjectNotFoundError``."""
        return self.storage.get(self.prefix + path)

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; see `Storage.get_range`."""
        return self.storage.get_range(self.prefix + path, offset=offset, length=length)

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return the object and its version. Raises ``ObjectNotFoundError``."""
        return self.storage.get_versioned(self.prefix + path)

    def put(self, path: str, body: bytes) -> None:
        """Write an immutable object; see `Storage.put`."""
        self.storage.put(self.prefix + path, body)

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write if unchanged; see `Storage.put_if`."""
        before = {self.prefix + each: content for each, content in after.items()}
        return self.storage.put_if(self.prefix + path, body, was=was, after=before)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects under the prefix, with paths relative to it."""
        behind = {"after": self.prefix + after} if after else {}
        for info in self.storage.list(self.prefix + prefix, **behind):
            yield info._replace(path=info.path.removeprefix(self.prefix))

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        self.storage.delete(self.prefix + path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects; see `Storage.delete_many`."""
        self.storage.delete_many([self.prefix + path for path in paths])

    def delete_all(self) -> None:
        """Remove everything under the prefix, and directories where the storage has them."""
        self.storage.delete_below(self.prefix.rstrip("/"))

    def delete_below(self, prefix: str) -> None:
        """Remove every object under a prefix; see `Storage.delete_below`."""
        self.storage.delete_below(self.prefix + prefix)

    def below(self, prefix: str) -> Below:
        """Return a part of this part."""
        return Below(self.storage, self.prefix + prefix)
