"""Open a source file for scanners once, capturing its size and time while opening it."""

from __future__ import annotations

import os
import stat
import weakref

from icevirt.connect import urls
from icevirt.connect.urls import is_url, spelled
from icevirt.errors import NotFoundError, ScanError, StaleReferenceError, StorageError
from icevirt.objects.opened import OpenedSource, local_file
from icevirt.objects.remote_source import RemoteSource

_METADATA = ".zmetadata"
_BEGIN = 32 * 1024  # bytes of a file that are read once: in them are most headers of a small one


class LocalSource(OpenedSource):
    """A local file. Size and modification time are those of the open file, not of its name.

    Raises:
        NotFoundError: There is no such file.
        ScanError: It is a directory or device, or may not be read.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        url = urls.url_of_absolute(self._path)
        self._descriptor = _open(self._path, url)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self._status = os.fstat(self._descriptor)
        self._begin: bytes | None = None
        self.file = local_file(url, self._path, self._status)

    @property
    def local_path(self) -> str:
        """The path, symbolic links followed."""
        return self._path

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file.

        Raises:
            StorageError: The operating system cannot read it.
        """
        end = offset + length
        if not 0 <= offset <= end <= _BEGIN:
            return self._read(offset, length)
        if self._begin is None:
            self._begin = self._read(0, _BEGIN)
        return self._begin[offset:end]

    def _read(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        length = min(length, self.file.size)  # the file may state it
        try:
            while length > 0 and (part := os.pread(self._descriptor, length, offset)):
                parts.append(part)
                offset, length = offset + len(part), length - len(part)
        except OSError as error:
            raise _unreadable(self.file.url, error) from error
        return b"".join(parts)

    def check_unchanged(self) -> None:
        """Compare the open file, and what its path leads to, with what was opened.

        Raises:
            StaleReferenceError: They differ.
        """
        try:
            now = [os.fstat(self._descriptor), os.stat(self._path)]
        except (FileNotFoundError, NotADirectoryError):
            now = []
        except OSError as error:
            raise _unreadable(self.file.url, error) from error
        if not now or any(_identity(status) != _identity(self._status) for status in now):
            raise StaleReferenceError(
                "the file changed during the scan",
                do="Scan it again when it no longer changes.",
                file=self.file.url,
            )

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._close()


def _open(path: str, url: str) -> int:
    # a pipe or device must neither block the opening nor be read
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ScanError("not a regular file", do="Leave it out.", file=url)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFoundError("no such file", do="Check the path.", file=url) from error
    except OSError as error:
        raise StorageError(
            "the file cannot be opened", do="Check its permissions.", file=url, cause=error.strerror
        ) from error


def _unreadable(url: str, error: OSError) -> StorageError:
    return StorageError(
        "a source file cannot be read",
        do="Check the disk or network file system that holds it, then try again.",
        file=url,
        reason=error.strerror,
    )


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def open_source(url: str | os.PathLike[str]) -> OpenedSource:
    """Open a path or URL as a byte source; on servers, with the credentials of the environment.

    Raises:
        InvalidInputError: The URL has a scheme that is not supported.
        NotFoundError: There is no such file.
        ScanError: It cannot be read.
        StorageError: A server refused, or did not answer.
    """
    text = os.fspath(url)
    if not text.startswith("file:///"):
        text = spelled(text)
        if is_url(text) and not text.startswith("file://"):
            return RemoteSource(text)
    return LocalSource(metadata_of(urls.as_local_path(text)))


def metadata_of(path: str) -> str:
    """Return the file that stands for a directory of kerchunk's parquet references, else ``path``.

    The metadata of a zarr store, which has the same name, is distinguished by the scanner.
    """
    inside = os.path.join(path, _METADATA)
    return inside if os.path.isfile(inside) else path
