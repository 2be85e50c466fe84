"""Tasks on their way to executors: small ones through Spark, the others through a storage.

Spark's driver holds every task several times in its JVM. The names of ten million files are too
much for that; they lie in a storage that all executors reach while the tasks run. A digest of each
travels through Spark, so that nobody who may write to the storage can make a task run his code.
"""

from __future__ import annotations

import hashlib
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from icevirt.errors import BuildError, StorageError
from icevirt.storage.protocol import Storage

_THROUGH_SPARK = 4 << 20  # bytes of all tasks together that go the short way
_TOGETHER = 1 << 20  # bytes of tasks that wait for one another, to lie in one object


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """Where a task lies, and what it has to be."""

    storage: Storage
    path: str
    offset: int
    length: int
    digest: bytes

    def load(self) -> Any:
        """Return the task.

        Raises:
            BuildError: Somebody replaced it.
            ObjectNotFoundError: Somebody deleted it.
        """
        raw = self.storage.get_range(self.path, offset=self.offset, length=self.length)
        if _digest(raw) != self.digest:
            raise BuildError(
                "a task of this build was replaced by something else while it waited",
                do="Look who writes to this folder, and build again.",
                path=f"{self.storage.url}{self.path}",
            )
        return pickle.loads(raw)  # noqa: S301  # the very bytes that `packed` made


@contextmanager
def packed(tasks: Iterable[Any], storage: Storage | None) -> Iterator[Iterator[bytes]]:
    """Yield the tasks as Spark shall carry them; what lies in the storage is removed at the end.

    Args:
        tasks: They pickle.
        storage: What all executors reach; None: all tasks go through Spark.
    """
    if storage is None:
        yield map(pickle.dumps, tasks)
        return
    folder = _Folder(storage, f"tasks/{secrets.token_hex(8)}")
    try:
        yield folder.take(map(pickle.dumps, tasks))
    finally:
        folder.remove()


class _Folder:
    """Where the tasks of one job lie."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self._path = storage, path
        self._objects = 0

    def take(self, raws: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the first tasks as they are, and where the others lie."""
        sent = 0
        together: list[bytes] = []
        for raw in raws:
            sent += len(raw)
            if sent <= _THROUGH_SPARK:
                yield raw
                continue
            together.append(raw)
            if sent > _THROUGH_SPARK + _TOGETHER:
                sent = _THROUGH_SPARK
                yield from self._put(together)
                together.clear()
        if together:
            yield from self._put(together)

    def _put(self, raws: Sequence[bytes]) -> Iterator[bytes]:
        path = f"{self._path}/{self._objects}"
        self._objects += 1
        self._storage.put(path, b"".join(raws))
        offset = 0
        for raw in raws:
            where = _Left(
                storage=self._storage,
                path=path,
                offset=offset,
                length=len(raw),
                digest=_digest(raw),
            )
            offset += len(raw)
            yield pickle.dumps(where)

    def remove(self) -> None:
        """Remove what was written."""
        if self._objects:
            with suppress(StorageError):  # it is in nobody's way
                self._storage.delete_below(self._path)


def unpacked(payload: bytes) -> Any:
    """Return a task that came through Spark."""
    task = pickle.loads(payload)  # noqa: S301  # made by `packed`
    return task.load() if isinstance(task, _Left) else task


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=32).digest()
