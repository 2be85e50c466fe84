"""Store a repository in this process's memory, for tests, examples and scratch work.

It pickles within the process only: another process could not see its objects.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from icevirt.errors import ObjectNotFoundError, StorageError
from icevirt.storage.protocol import (
    NOTHING,
    LostRace,
    ObjectInfo,
    Version,
    Written,
    check_path,
    is_below,
    too_short,
)

_numbers = itertools.count(1)
_alive: WeakValueDictionary[tuple[int, int], MemoryStorage] = WeakValueDictionary()


class MemoryStorage:
    """Objects in a dictionary; versions are a counter."""

    def __init__(self) -> None:
        self._number, self._process = next(_numbers), os.getpid()
        self._lock = threading.Lock()
        self._clock = itertools.count(1)
        self._objects: dict[str, tuple[bytes, Version, int]] = {}
        _alive[self._process, self._number] = self

    @property
    def url(self) -> str:
        """``memory://`` and a number."""
        return f"memory://{self._number}"

    def __repr__(self) -> str:
        return f"<icevirt.MemoryStorage {self.url} {len(self._objects)} objects>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._process, self._number)

    def exists(self) -> bool:
        """Say whether there is any object."""
        return bool(self._objects)

    def get(self, path: str) -> bytes:
        """Return the whole object."""
        return self.get_versioned(path)[0]

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes."""
        body = self.get(path)[offset : offset + length]
        if len(body) != length:
            raise too_short(f"{self.url}/{path}", offset, length, len(body))
        return body

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return the object and its version."""
        found = self._objects.get(check_path(path))
        if found is None:
            raise ObjectNotFoundError("no such object", url=f"{self.url}/{path}")
        return found[0], found[1]

    def put(self, path: str, body: bytes) -> None:
        """Write an object."""
        with self._lock:
            self._write(check_path(path), body)

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write ``body`` if the object is still at ``was``, after the objects it refers to."""
        for each, content in after.items():
            self.put(each, content)
        with self._lock:
            found = self._objects.get(check_path(path))
            if (found[1] if found else None) != was:
                return LostRace()
            return Written(self._write(path, body))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below ``prefix``, in the order of their paths."""
        with self._lock:
            objects = sorted(self._objects.items())
        for path, (body, _, at) in objects:
            if is_below(path, prefix) and path > after:
                yield ObjectInfo(path=path, size=len(body), last_modified=at)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._refuse_elsewhere()
        with self._lock:
            self._objects.pop(check_path(path), None)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error."""
        for path in paths:
            self.delete(path)

    def delete_below(self, prefix: str) -> None:
        """Remove every object below ``prefix``."""
        self.delete_many([info.path for info in self.list(prefix)])

    def _refuse_elsewhere(self) -> None:
        """Refuse changes in a forked process: they would be lost with its copy of the objects."""
        if os.getpid() != self._process:
            raise _invisible()

    def _write(self, path: str, body: bytes) -> Version:
        self._refuse_elsewhere()
        version = Version(str(next(self._clock)))
        self._objects[path] = (bytes(body), version, time.time_ns() // 1000)
        return version


def _attach(process: int, number: int) -> MemoryStorage:
    found = _alive.get((process, number))
    if found is None or process != os.getpid():
        raise _invisible()
    return found


def _invisible() -> StorageError:
    return StorageError(
        "a repository in memory is visible only to its own process",
        do="Use a repository on disk to share it between processes.",
    )


def in_memory_storage() -> MemoryStorage:
    """Return a new, empty storage in memory."""
    return MemoryStorage()
