"""Send tasks to executors: small ones through Spark, large ones through a storage.

Spark's driver holds every task several times in its JVM. The names of ten million files are too
much for that; they are in a storage that all executors reach while the tasks run. A digest of each
travels through Spark, so that no other writer of the storage can make a task run their code.
Credentials travel through Spark too: others may read the repository's storage.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from icevirt.connect.credentials.common import PickledFunction, Refreshable, Secret
from icevirt.connect.stores import Bucket
from icevirt.errors import BuildError, StorageError
from icevirt.objects.authorize import GrantedAccess
from icevirt.objects.source_access import SourceAccess
from icevirt.storage.protocol import Storage

THROUGH_SPARK = 4 << 20
"""Bytes of all tasks together that Spark carries."""

TOGETHER = 1 << 20
"""Bytes of tasks that are collected to share one object."""

# all passwords, functions and stores that a caller passes are in one of these
_SECRET = (SourceAccess, GrantedAccess, Refreshable, PickledFunction, Bucket, Secret)


@dataclass(frozen=True, slots=True)
class _Left:
    """Where a task is in the storage, and its digest."""

    storage: Storage
    path: str
    offset: int
    length: int
    digest: bytes
    secrets: tuple[Any, ...] = field(default=(), repr=False)  # of the task, in order

    def load(self) -> Any:
        """Return the task.

        Raises:
            BuildError: Another program replaced it.
            ObjectNotFoundError: Another program deleted it.
        """
        raw = self.storage.get_range(self.path, offset=self.offset, length=self.length)
        if _digest(raw) != self.digest:
            raise BuildError(
                "a waiting task of this build was replaced",
                do="Check which program writes to this folder, and build again.",
                path=f"{self.storage.url}{self.path}",
            )
        return _Filled(io.BytesIO(raw), self.secrets).load()  # the very bytes that `packed` made


@contextmanager
def pack(
    tasks: Iterable[Any],
    storage: Storage | None,
    *,
    through_spark: int = THROUGH_SPARK,
    together: int = TOGETHER,
) -> Iterator[Iterator[bytes]]:
    """Yield the tasks as Spark carries them; those in the storage are removed at the end.

    Args:
        tasks: They pickle.
        storage: What all executors reach; None: all tasks go through Spark.
        through_spark: Bytes of the first tasks, which Spark carries.
        together: Bytes of other tasks that lie in one object.
    """
    if storage is None:
        yield map(pickle.dumps, tasks)
        return
    folder = _Folder(storage, f"tasks/{secrets.token_hex(8)}")
    try:
        yield folder.take(tasks, through_spark, together)
    finally:
        if folder.objects:
            with suppress(StorageError):  # what remains does no harm
                storage.delete_below(folder.path)


@dataclass(slots=True)
class _Folder:
    """The tasks of one job in the storage."""

    storage: Storage
    path: str
    objects: int = 0

    def take(self, tasks: Iterable[Any], through_spark: int, together: int) -> Iterator[bytes]:
        """Yield the first tasks as they are, and the places of the others."""
        sent = waiting = 0
        held: list[tuple[bytes, tuple[Any, ...]]] = []
        for task in tasks:
            if sent <= through_spark:
                raw = pickle.dumps(task)
                sent += len(raw)
                if sent <= through_spark:
                    yield raw
                    continue
            file = io.BytesIO()
            pickler = _Emptied(file)
            pickler.dump(task)
            held.append((file.getvalue(), tuple(pickler.held)))
            waiting += len(held[-1][0])
            if waiting > together:
                yield from self._put(held)
                held, waiting = [], 0
        if held:
            yield from self._put(held)

    def _put(self, tasks: Sequence[tuple[bytes, tuple[Any, ...]]]) -> Iterator[bytes]:
        path = f"{self.path}/{self.objects}"
        self.objects += 1
        self.storage.put(path, b"".join(raw for raw, _ in tasks))
        offset = 0
        for raw, held in tasks:
            left = _Left(self.storage, path, offset, len(raw), _digest(raw), held)
            offset += len(raw)
            yield pickle.dumps(left)


class _Emptied(pickle.Pickler):
    """Pickles a task and keeps its secrets back."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.held: list[Any] = []

    def reducer_override(self, thing: Any) -> Any:
        """Put a number in the place of a secret; strings and numbers do not come here."""
        if not isinstance(thing, _SECRET):
            return NotImplemented
        self.held.append(thing)
        return _Held, (len(self.held) - 1,)


class _Held(int):
    """The number of a secret in a task that was emptied; only there."""


class _Filled(pickle.Unpickler):
    """Reads a task that was emptied."""

    def __init__(self, file: io.BytesIO, held: Sequence[Any]) -> None:
        super().__init__(file)
        self._held = held

    def find_class(self, module: str, name: str, /) -> Any:
        """Return a class or function; for `_Held`, what returns the secret of a number."""
        found = super().find_class(module, name)
        return self._held.__getitem__ if found is _Held else found


def unpack(payload: bytes) -> Any:
    """Return a task that came through Spark."""
    task = pickle.loads(payload)  # noqa: S301  # made by `packed`
    return task.load() if isinstance(task, _Left) else task


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=32).digest()
