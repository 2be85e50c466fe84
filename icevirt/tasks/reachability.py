"""Find out what a process reaches: the storages of a build, and its source files.

The driver leaves a note in each storage that tasks write to. Who does not find it looks into
another place of the same name, as a machine does that does not share the disk, and writes nothing.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypedDict

from icevirt.errors import IcevirtError, ObjectNotFoundError
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.storage.protocol import Storage
from icevirt.tasks.forkserver import STAGES

DRIVER = "driver"
"""Name of the driver's note; those of tasks are their numbers."""

_PATIENCE = 2.0  # seconds until a network file system shows what another machine wrote

type Role = Literal["storage", "source"]
type Kind = Literal["unshared", "unwritable", "unreachable", "unread", "silent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachTask:
    """What a process is to reach."""

    folder: str
    """Where notes are, in every storage."""

    note: bytes
    """What they say."""

    written: tuple[Storage, ...] = ()
    """Storages that tasks write to, with the driver's note."""

    read: tuple[tuple[Storage, str], ...] = ()
    """Storages that tasks only read, and an object that is there."""

    sources: tuple[str, ...] = ()
    """URLs of source files, one of each place."""

    access: SourceAccess = field(default_factory=SourceAccess)
    seconds: float = 60.0
    """How long all of it may take."""


class Unreached(TypedDict):
    """Something that a process does not reach."""

    kind: Kind
    role: Role
    url: str
    cause: str


def load(*, has_hdf5: bool) -> None:
    """Import what tasks import.

    Args:
        has_hdf5: Whether h5py is there; it is an extra.

    Raises:
        ImportError: A package is missing, or its libraries are.
    """
    for name in STAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            if has_hdf5 or error.name != "h5py":
                raise


def reach(task: ReachTask, name: str) -> list[Unreached]:
    """Read the driver's note everywhere and leave one beside it; read a byte of each source.

    Args:
        task: What to reach.
        name: Of the note that is left.

    Returns:
        What was not reached; nothing is raised. What has not answered in ``task.seconds`` counts
        as silent, for a network without a way out answers nothing.
    """
    looks: list[tuple[Role, str, Callable[[], Iterator[Unreached]]]] = [
        *(("storage", each.url, partial(_note, task, each, name)) for each in task.written),
        *(("storage", each.url, partial(_object, each, path)) for each, path in task.read),
        *(("source", url, partial(_source, task, url)) for url in task.sources),
    ]
    found: list[list[Unreached] | None] = [None] * len(looks)

    def look(number: int) -> None:
        found[number] = [*looks[number][2]()]

    threads = [
        threading.Thread(target=look, args=(number,), name="icevirt-reach", daemon=True)
        for number in range(len(looks))
    ]
    end = time.monotonic() + task.seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    cause = f"no answer in {task.seconds:g} s"
    unreached: list[Unreached] = []
    for (role, url, _), outcome in zip(looks, found, strict=True):
        silent = Unreached(kind="silent", role=role, url=url, cause=cause)
        unreached += [silent] if outcome is None else outcome
    return unreached


def _note(task: ReachTask, storage: Storage, name: str) -> Iterator[Unreached]:
    try:
        if not finds(storage, f"{task.folder}/{DRIVER}", task.note):
            yield Unreached(kind="unshared", role="storage", url=storage.url, cause="")
            return
    except Exception as error:  # noqa: BLE001  # whatever a library raises
        yield Unreached(kind="unreachable", role="storage", url=storage.url, cause=_cause(error))
        return
    try:
        storage.put(f"{task.folder}/{name}", task.note)
    except Exception as error:  # noqa: BLE001
        yield Unreached(kind="unwritable", role="storage", url=storage.url, cause=_cause(error))


def finds(storage: Storage, path: str, note: bytes) -> bool:
    """Say whether a note is there, now or soon."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return storage.get(path) == note
        except ObjectNotFoundError:
            if time.monotonic() > end:
                return False
            time.sleep(_PATIENCE / 8)


def _object(storage: Storage, path: str) -> Iterator[Unreached]:
    try:
        storage.get_range(path, offset=0, length=1)
    except ObjectNotFoundError:
        yield Unreached(kind="unshared", role="storage", url=storage.url, cause="")
    except Exception as error:  # noqa: BLE001
        yield Unreached(kind="unreachable", role="storage", url=storage.url, cause=_cause(error))


def _source(task: ReachTask, url: str) -> Iterator[Unreached]:
    try:
        with grant_access(task.access), open_source(url) as source:
            source.read(0, 1)
    except Exception as error:  # noqa: BLE001
        yield Unreached(kind="unread", role="source", url=url, cause=_cause(error))


def _cause(error: Exception) -> str:
    if isinstance(error, IcevirtError):
        return error.summary
    return f"{type(error).__name__}: {error}".partition("\n")[0]
