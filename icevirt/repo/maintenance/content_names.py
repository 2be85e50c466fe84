"""Compare objects with names that cover their content, and list the chunks that are named so.

Who writes what was read under a new name makes a name that fits any damage, and no check finds it
any more. So the bytes are compared with the old name, and damaged ones are refused. A chunk whose
name is random is taken as it is: lists tell these apart. They lie in a folder that other clients
neither read nor delete, and are written before the commit that refers to their chunks. Decision
0035 says why a list is one of ids: 12 bytes of magic, then ids of 12 bytes, ascending. It is named
by its own digest, so a damaged list is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import compress
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError, IcevirtError, ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.model.snapshot import ArrayNode
from icevirt.remedy_notation import change, write_code, write_remedy
from icevirt.repo import layout
from icevirt.storage.protocol import ObjectInfo, Storage, too_short
from icevirt.versioning.history.timestamps import is_old
from icevirt.versioning.id_columns import ID, column, of_names, places
from icevirt.wire.header import is_intact

MAGIC = b"ICVT-NAMES-1"


def encode(ids: NDArray[np.void]) -> tuple[ObjectId12, bytes]:
    """Return the name and the bytes of the file that lists these ids, which ascend."""
    raw = MAGIC + ids.tobytes()
    return ObjectId12.of_content(raw), raw


def decode(name: str, raw: bytes) -> NDArray[np.void]:
    """Return the ids that a file lists.

    Raises:
        FormatError: The file is damaged, or of a newer icevirt.
    """
    if str(ObjectId12.of_content(raw)) != name or len(raw) % ID.itemsize:
        raise FormatError(
            "a list of chunk names is damaged, so damaged chunks of this list count as"
            " unverifiable",
            do=write_remedy(
                "Restore the file. If there is no copy, delete it and run ",
                write_code(*["`icevirt check REPO --chunks --record`"] * 2),
                ".",
            ),
            name=name,
        )
    if not raw.startswith(MAGIC):
        raise FormatError(
            "this icevirt does not support the format of a list of chunk names",
            do="Upgrade icevirt.",
            name=name,
        )
    return np.frombuffer(raw, ID, offset=len(MAGIC))


_IDS = 1 << 20  # in one list
_TRIES = 5


def record(storage: Storage, ids: NDArray[np.void]) -> None:
    """Write down that chunks with these ids are named by their content."""
    for path, raw in _files(ids):
        storage.put(path, raw)


def forget(storage: Storage, ids: NDArray[np.void]) -> None:
    """Remove the lists that `record` made of just these ids."""
    for path, _ in _files(ids):
        storage.delete(path)


def read_recorded(storage: Storage) -> tuple[NDArray[np.void], dict[str, IcevirtError]]:
    """Return all listed ids, ascending, and what is wrong with lists that cannot be read, by path.

    Garbage collection replaces old lists by a new one: where a list went away, all are read again.
    """
    for _ in range(_TRIES):
        found, bad = [np.zeros(0, ID)], dict[str, IcevirtError]()
        for info in _list(storage):
            try:
                found.append(_read(storage, info.path))
            except IcevirtError as error:
                bad[info.path] = error
        if not any(isinstance(error, ObjectNotFoundError) for error in bad.values()):
            break
    return np.unique(np.concatenate(found)), bad


def compact(storage: Storage, existing: NDArray[np.void], older_than: int) -> None:
    """Replace the lists that were written before a time by one of the chunks that still exist.

    The time is microseconds since 1970 by the storage's clock; the ids that exist ascend.
    """

    def old() -> set[str]:
        return {each.path for each in _list(storage) if is_old(each.last_modified, older_than)}

    found, read = [np.zeros(0, ID)], set()
    for path in old():
        with suppress(IcevirtError):  # `check` reports it; what cannot be read is kept
            found.append(_read(storage, path))
            read.add(path)
    ids = np.unique(np.concatenate(found))
    kept = ids[places(existing, ids) >= 0]
    if superseded := read - {path for path, _ in _files(kept)}:
        record(storage, kept)
        # a writer of the same chunks may have written the same list again
        storage.delete_many(sorted(superseded & old()))


def _list(storage: Storage) -> list[ObjectInfo]:
    """Return the lists; what is not named like one is none, such as what file managers leave."""
    infos = list(storage.list(layout.CONTENT_NAMES))
    start = len(layout.CONTENT_NAMES) + 1
    _, is_name = of_names([info.path[start:] for info in infos])
    return list(compress(infos, is_name))


def _files(ids: NDArray[np.void]) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and bytes of the lists of some ids."""
    distinct = np.unique(ids)
    for at in range(0, len(distinct), _IDS):
        name, raw = encode(distinct[at : at + _IDS])
        yield layout.content_names(name), raw


def _read(storage: Storage, path: str) -> NDArray[np.void]:
    return decode(path.rpartition("/")[2], storage.get(path))


type Named = Callable[[], tuple[NDArray[np.void], Mapping[str, IcevirtError]]]

_VARIABLE = "VARIABLE"  # which `naming_variable` knows


def compare_manifest(storage: Storage, path: str) -> bytes:
    """Return the file of a manifest.

    Raises:
        FormatError: Its bytes are not those that its name was made of.
        ObjectNotFoundError: It is not there.
    """
    raw = storage.get(path)
    if is_intact(raw) is False:
        raise FormatError(
            "a manifest is damaged: its bytes do not agree with its name",
            do=_again(storage, "--rescan '*'"),
            path=path,
            repo=storage.url,
        )
    return raw


def compare_chunk(  # noqa: PLR0917 - an object, and what of it is wanted
    storage: Storage, path: str, key: ObjectId12, offset: int, length: int, named: Named
) -> bytes:
    """Return bytes of a native chunk; ``named`` returns what `recorded` does.

    Raises:
        FormatError: They are not those that its name was made of, or it cannot be said whether the
            name was made of them.
        StorageError: It is not there, or too short.
    """
    raw = storage.get(path)
    if ObjectId12.of_content(raw) != key:  # damaged, unless its name is a random one
        listed, unread = named()
        if (places(listed, column([key])) >= 0).any():
            raise FormatError(
                "a stored chunk is damaged: its bytes do not agree with its name",
                do=_again(storage, f"--variables {_VARIABLE}"),
                path=path,
                repo=storage.url,
            )
        if unread:
            raise FormatError(
                "a stored chunk may be damaged: its bytes do not agree with its name, and the list"
                " that says whether they should cannot be read",
                do=write_remedy(
                    "Look at both with ",
                    write_code(*["`icevirt check REPO --chunks`"] * 2),
                    ", and restore the list.",
                ),
                path=path,
                lists=sorted(unread),
                repo=storage.url,
            )
    if len(raw) < offset + length:
        raise too_short(f"{storage.url}/{path}", offset, length, len(raw))
    return raw[offset : offset + length]


def _again(storage: Storage, how: str) -> str:
    return (
        "Nothing was committed. Restore the object from a copy of the repository, or write it again"
        f" from the files: icevirt update {quote(storage.url)} {how}"
    )


@contextmanager
def naming_variable(node: ArrayNode) -> Iterator[None]:
    """Name the variable in errors about what is stored of it."""
    try:
        yield
    except FormatError as error:
        error.facts = {"variable": node.path, **error.facts}
        error.do = change(error.do, lambda text: text.replace(_VARIABLE, quote(node.path)))
        raise
