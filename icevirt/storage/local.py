"""Store a repository in a local directory, as safe for icevirt's writers as an object store.

Promises: every write is atomic and durable; conditional writes exclude one another by an exclusive
lock on the root's directory descriptor, so no acknowledged write is lost, in threads and between
processes. The lock does not bind the official client, whose local commits overwrite
unconditionally: do not let both write to one local repository at the same time. On file systems
that are not of one machine a file is locked as well, and what they do is tried out before the first
commit; where ``flock`` is local to the machine, one machine at a time may write
(`icevirt.storage.file_systems`). All of it is plain system calls, so that each error is known.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from icevirt.connect import urls
from icevirt.errors import ObjectNotFoundError, StorageError
from icevirt.storage.protocol import (
    NOTHING,
    LostRace,
    ObjectInfo,
    Version,
    Written,
    check_path,
    is_unfinished,
    refuse_huge,
    too_short,
)

if TYPE_CHECKING:
    from icevirt.storage import durable

_TRIES = 20  # to open a file that is there
_REPLACING = (0.001, 0.004, 0.016, 0.064, 0.2)  # seconds that FUSE may take to replace a file

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_REMEDIES = {
    errno.EACCES: "Give this user permission to read and write there, or choose another path.",
    errno.EPERM: "Give this user permission to read and write there, or choose another path.",
    errno.EROFS: "The file system is mounted read-only; choose another path.",
    errno.ENOSPC: "The disk is full; free some space, then run this again.",
    errno.EDQUOT: "The disk quota is used up; free some space, then run this again.",
    errno.ENOTDIR: "A part of the path is a file; choose another path.",
    errno.ENAMETOOLONG: "Choose a shorter path.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


class LocalStorage:
    """The root is a directory, created by the first write."""

    def __init__(self, path: str | os.PathLike[str], *, wait_for_disk: bool = True) -> None:
        self._root = urls.as_local_path(path)
        self._below = os.path.join(self._root, "")
        self._wait_for_disk = wait_for_disk
        self._last = b"", ""  # the object whose version was asked for last, and its digest

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_last": (b"", "")}

    @cached_property
    def url(self) -> str:
        """The root as a ``file://`` URL."""
        return urls.file_url(self._root)

    def __repr__(self) -> str:
        waits = "" if self._wait_for_disk else ", does not wait for the disk"
        return f"<icevirt.LocalStorage {self._root}{waits}>"

    @property
    def _sync(self) -> durable.Sync:
        from icevirt.storage import durable

        return durable.sync if self._wait_for_disk else durable.no_sync

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStorage) and self._root == other._root

    def __hash__(self) -> int:
        return hash(self._root)

    def not_waiting(self) -> Self:
        """Return the same storage as one that does not wait for the disk."""
        return type(self)(self._root, wait_for_disk=False)

    # -- reading -----------------------------------------------------------------------------

    def exists(self) -> bool:
        """Say whether there is anything at the root, empty directories excepted.

        A write that failed on a full disk leaves the directory of its object.
        """
        with _StorageErrors(self._root):
            try:
                return _holds_something(self._root)
            except NotADirectoryError:
                return os.path.lexists(self._root)  # else a part of the path is a file
            except FileNotFoundError:
                return False

    def get(self, path: str) -> bytes:
        """Return the whole object."""
        return self._read(path)[0]

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes."""
        full = self._full(path)
        with _StorageErrors(full), _opened(full) as fd:
            available = os.fstat(fd).st_size - offset
            # a length from a file of others must not allocate that much
            body = _read_exactly(fd, offset, length) if length <= available else b""
        if len(body) != length:
            raise too_short(full, offset, length, max(0, len(body) or available))
        return body

    def get_versioned(self, path: str) -> tuple[bytes, Version]:
        """Return the object and its version."""
        return self._with_version(*self._read(path))

    def _read(self, path: str) -> tuple[bytes, os.stat_result]:
        full = self._full(path)
        with _StorageErrors(full), _opened(full) as fd:
            facts = os.fstat(fd)
            refuse_huge(full, facts.st_size)
            return _read_exactly(fd, 0, facts.st_size), facts

    def _with_version(self, body: bytes, facts: os.stat_result) -> tuple[bytes, Version]:
        """Return an object and its version, which covers the content, and the file.

        So equal content that is written anew is another version.
        """
        last, digest = self._last  # a commit reads the same object several times
        if last == body:
            body = last
        else:
            digest = hashlib.blake2b(body, digest_size=16).hexdigest()
            self._last = body, digest
        at = f"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_ctime_ns:x}"
        return body, Version(f"{digest}-{at}")

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below ``prefix``, in no particular order unless behind a path."""
        prefix = prefix.strip("/")
        start = self._full(prefix) if prefix else self._root
        with _StorageErrors(start):
            infos = _walk(start, prefix)
            if after:
                infos = iter(sorted((i for i in infos if i.path > after), key=lambda i: i.path))
            yield from infos

    # -- writing -----------------------------------------------------------------------------

    def put(self, path: str, body: bytes) -> None:
        """Write an object; one that holds these very bytes already becomes as young as new."""
        from icevirt.storage import durable

        full = self._full(path)
        folder, name = os.path.split(full)

        def act(at: int) -> None:
            with suppress(durable.NoHardLinksError):
                if durable.create(at, name, body, self._sync):
                    return
            if _renew(full, body):
                self._sync([at])  # the writer that linked it may not have come to this yet
                return
            staged = durable.name_unfinished(name)
            durable.replace(at, name, body, staged=staged, sync=self._sync)

        with _StorageErrors(full):
            durable.within(folder, act, self._sync)

    def put_if(
        self,
        path: str,
        body: bytes,
        *,
        was: Version | None,
        after: Mapping[str, bytes] = NOTHING,
    ) -> Written | LostRace:
        """Write ``body`` if the object is still at ``was``, under the root's lock.

        The disk is waited for three times, however many objects there are: for all bytes, for the
        names of the objects, for the replacement. Nobody waits for the lock longer than the last.
        """
        from icevirt.storage import durable
        from icevirt.storage.file_systems import alone

        full = self._full(path)
        folder, name = os.path.split(full)
        unnamed: int | None = None

        def act(at: int) -> Written | LostRace:
            if folder == self._root:
                with alone(at, self._root):
                    return write(at)
            with durable.directory(self._root) as root, alone(root, self._root):
                return write(at)

        def write(at: int) -> Written | LostRace:
            if was is None:
                won = _create(at, name, body, self._sync)
            elif won := self._is_at(path, was):
                how: dict[str, Any] = {"staged": f"{name}#0", "sync": self._sync}
                if unnamed is None or not durable.replace_by_unnamed(unnamed, at, name, **how):
                    durable.replace(at, name, body, **how)
            if not won:
                return LostRace()
            # a writer that asks for no lock, as the official client's, may have been quicker
            facts = os.stat(name, dir_fd=at, follow_symlinks=False)
            if unnamed is not None and os.path.samestat(facts, os.fstat(unnamed)):
                return Written(self._with_version(body, facts)[1])
            found, version = self.get_versioned(path)
            return Written(version) if found == body else LostRace()

        with _StorageErrors(full), durable.UnnamedFiles(self._sync) as files:
            if after:
                unnamed = self._put_together(files, after, None if was is None else (folder, body))
            return durable.within(folder, act, self._sync)

    def _is_at(self, path: str, version: Version) -> bool:
        try:
            return self.get_versioned(path)[1] == version
        except ObjectNotFoundError:
            return False

    def _put_together(
        self,
        files: durable.UnnamedFiles,
        objects: Mapping[str, bytes],
        last: tuple[str, bytes] | None,
    ) -> int | None:
        """Put objects, and write a last file, which is returned without a name if that can be."""
        written = []
        for path, body in objects.items():
            folder, name = os.path.split(self._full(path))
            written.append((path, folder, name, files.write(folder, body)))
        unnamed = None if last is None else files.write(*last)
        files.sync()
        left = [
            path
            for path, folder, name, fd in written
            if fd is None or not files.name(fd, folder, name)
        ]
        files.sync_names()
        for path in left:
            self.put(path, objects[path])
        return unnamed

    def delete(self, path: str) -> None:
        """Remove an object, and the directories below the root that are empty then."""
        full = self._full(path)
        with _StorageErrors(full):
            try:
                os.unlink(full)
            except (FileNotFoundError, NotADirectoryError):
                return
        with suppress(OSError):  # not empty, or in use by a writer
            while (full := os.path.dirname(full)) != self._root:
                os.rmdir(full)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error."""
        for path in paths:
            self.delete(path)

    def delete_below(self, prefix: str) -> None:
        """Remove every object below ``prefix``, and the directories that are empty then."""
        full = self._full(prefix)
        with _StorageErrors(full):
            for folder, _, names in os.walk(full, topdown=False):
                for name in names:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(folder, name))
                with suppress(OSError):  # in use by a writer
                    os.rmdir(folder)
            with suppress(OSError):  # a parent that is not empty, or was never there
                while full != self._root:
                    full = os.path.dirname(full)
                    os.rmdir(full)

    def free_bytes(self) -> int:
        """Return how many bytes the disk has left."""
        with _StorageErrors(self._root):
            return shutil.disk_usage(self._root).free

    def refuse_unsafe(self) -> None:
        """Look whether commits to the root are safe, and try it out where nobody knows.

        Raises:
            StorageError: They are not, or nothing can be written there, or another machine writes
                and locks do not reach it.
        """
        from icevirt.storage.file_systems import refuse_other_machines

        with _StorageErrors(self._root):
            refuse_other_machines(self._root)

    def _full(self, path: str) -> str:
        return self._below + check_path(path)


def local_filesystem_storage(
    path: str | os.PathLike[str], *, wait_for_disk: bool = True
) -> LocalStorage:
    """Return the storage of a repository on local disk.

    Args:
        path: A path, or a ``file://`` URL.
        wait_for_disk: False for scratch repositories that are made again if they are lost: writes
            return before the disk has them, so a power cut or a crash of the machine may lose them
            or damage the repository, with what others commit after them. A killed process damages
            nothing. It is never persisted: each writer decides for itself.
    """
    return LocalStorage(path, wait_for_disk=wait_for_disk)


def _create(at: int, name: str, body: bytes, sync: durable.Sync) -> bool:
    """Create a file that must not exist, under the lock; False when it does."""
    from icevirt.storage import durable

    try:
        return durable.create(at, name, body, sync)
    except durable.NoHardLinksError:
        if os.access(name, os.F_OK, dir_fd=at, follow_symlinks=False):
            return False
        durable.replace(at, name, body, staged=f"{name}#0", sync=sync)
        return True


class _opened:  # noqa: N801 - as `open`
    __slots__ = ("_fd",)

    def __init__(self, full: str) -> None:
        try:
            self._fd = _open(full)
        except OSError as error:
            if error.errno in _ABSENT:
                raise ObjectNotFoundError("no such object", path=full) from error
            raise

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _open(full: str) -> int:
    """Open a file; of FUSE, one that is replaced at that moment seems not to be there."""
    waits = iter(_REPLACING)
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return os.open(full, os.O_RDONLY | os.O_CLOEXEC)
        if not os.path.lexists(full):
            from icevirt.storage.file_systems import mount_of

            mount = mount_of(full)
            if mount is None or not mount.is_fuse or (wait := next(waits, None)) is None:
                break
            time.sleep(wait)
    return os.open(full, os.O_RDONLY | os.O_CLOEXEC)


def _holds_something(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return any(
            _holds_something(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else not is_unfinished(entry.name)
            for entry in entries
        )


class _StorageErrors:
    """Converts errors of the operating system to errors with the path and a remedy."""

    __slots__ = ("_full",)

    def __init__(self, full: str) -> None:
        self._full = full

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IsADirectoryError):
            raise ObjectNotFoundError("no such object", path=self._full) from error
        if isinstance(error, OSError):
            raise StorageError(
                f"cannot use the repository's storage: {os.strerror(error.errno or 0)}",
                do=_REMEDIES.get(error.errno or 0, "Check the disk and the path."),
                path=self._full,
            ) from error


def _read_exactly(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _renew(full: str, body: bytes) -> bool:
    """Say whether a file holds these very bytes; garbage collection takes it for new then."""
    with suppress(FileNotFoundError), open(full, "rb") as file:
        if os.fstat(file.fileno()).st_size == len(body) and file.read() == body:
            os.utime(file.fileno())
            return os.fstat(file.fileno()).st_nlink > 0
    return False


def _walk(folder: str, path: str) -> Iterator[ObjectInfo]:
    """Yield the files below a folder, or the one that it is, with ``path`` before their names."""
    try:
        with os.scandir(folder) as found:
            entries = [*found]
    except FileNotFoundError:
        return
    except NotADirectoryError:
        if path and os.path.isfile(folder):
            yield _info(path, os.stat(folder))
        return
    for entry in entries:
        inner = f"{path}/{entry.name}" if path else entry.name
        if entry.is_dir():
            yield from _walk(entry.path, inner)
        elif not is_unfinished(entry.name):
            with suppress(FileNotFoundError):  # deleted while we listed
                yield _info(inner, entry.stat())


def _info(path: str, facts: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path=path, size=facts.st_size, last_modified=facts.st_mtime_ns // 1000)
