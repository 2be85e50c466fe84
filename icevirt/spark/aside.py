"""Tasks on their way to executors: small ones through Spark, the others through a storage.

Spark's driver holds every task several times in its JVM. The names of ten million files are too
much for that; they lie in a storage that all executors reach while the tasks run. A digest of each
travels through Spark, so that nobody who may write to the storage can make a task run his code.
"""

from __future__ import annotations

import hashlib
import pickle
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from icevirt.errors import BuildError, StorageError
from icevirt.storage.protocol import Storage

_THROUGH_SPARK = 32 << 20  # bytes of all tasks together that go the short way


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """Where a task lies, and what it has to be."""

    storage: Storage
    path: str
    digest: bytes

    def load(self) -> Any:
        """Return the task.

        Raises:
            BuildError: Somebody replaced it.
            ObjectNotFoundError: Somebody deleted it.
        """
        raw = self.storage.get(self.path)
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
    folder = f"tasks/{secrets.token_hex(8)}"
    used = False

    def each() -> Iterator[bytes]:
        nonlocal used
        sent = 0
        for number, task in enumerate(tasks):
            raw = pickle.dumps(task)
            sent += len(raw)
            if storage is not None and sent > _THROUGH_SPARK:
                used = True
                left = _Left(storage=storage, path=f"{folder}/{number}", digest=_digest(raw))
                storage.put(left.path, raw)
                raw = pickle.dumps(left)
            yield raw

    try:
        yield each()
    finally:
        if used and storage is not None:
            with suppress(StorageError):  # it is in nobody's way
                storage.delete_below(folder)


def unpacked(payload: bytes) -> Any:
    """Return a task that came through Spark."""
    task = pickle.loads(payload)  # noqa: S301  # made by `packed`
    return task.load() if isinstance(task, _Left) else task


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=32).digest()
