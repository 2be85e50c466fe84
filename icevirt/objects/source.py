"""Open a source file for scanners once, capturing its size and time while opening it.

Scanners read small pieces here and there. On a server, the first request fetches the beginning.
Ranges that a scanner announces are fetched in parallel; where it announces none, each further miss
fetches more than the one before. A file that fits one request is fetched completely at the first
miss, and another small file when that is cheaper than the ranges. Of a larger file no
more than is read is fetched where a scanner says so. All answers must describe the same file as
the first one, so no final check is needed.
"""

from __future__ import annotations

import os
import shlex
import stat
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Self

from icevirt.archive.sources import REPOSITORY, STORES, SourceFile
from icevirt.connect import urls
from icevirt.connect.urls import Address
from icevirt.errors import (
    InvalidInputError,
    NotFoundError,
    ObjectNotFoundError,
    ScanError,
    StaleReferenceError,
    StorageError,
)
from icevirt.model.chunks import END_SECOND
from icevirt.objects import answers
from icevirt.objects.answers import Body, Meta, ObjectBytes, as_text
from icevirt.objects.authorize import object_key
from icevirt.objects.backends import Backend, bucket_reach
from icevirt.objects.source_access import in_force
from icevirt.objects.web_connections import HOSTS


class OpenedSource(ABC):
    """A source file, opened once; all facts about it are of that opening."""

    file: SourceFile
    requests: int = 0  # made to a server so far
    bytes_fetched: int = 0  # from it

    @property
    @abstractmethod
    def local_path(self) -> str | None:
        """The path on this machine, symbolic links followed; None for a file elsewhere."""

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file."""

    def prefetch(  # noqa: B027 - most need none
        self, ranges: Sequence[tuple[int, int]], *, page: int = 0
    ) -> None:
        """Take note of ranges (begin, end) that will be read soon; a server is asked at once."""

    def read_sparsely(self) -> None:  # noqa: B027 - local files do
        """Fetch no more than is read: small pieces that are far apart."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Compare the file with what was opened. Raises ``StaleReferenceError``."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def local_file(url: str, path: str, status: os.stat_result) -> SourceFile:
    """Return what is recorded about a file.

    Raises:
        InvalidInputError: A reference cannot carry its time: it is of 2106 or later.
    """
    file = SourceFile.of_status(url, status)
    if file.last_modified_seconds >= END_SECOND:
        raise InvalidInputError(
            "the modification time of a source cannot be stored (only times before 2106 can), so "
            "changes of the file would go unnoticed",
            do=f"Set it to now: touch {shlex.quote(path)}. Where that cannot be written, build from"
            " a copy.",
            path=path,
            seconds_since_1970=file.last_modified_seconds,
        )
    return file


_BLOCK = 64 * 1024
_FIRST = 8 * _BLOCK
_MOST = 4 * 1024 * 1024  # bytes of one request
_KEPT = 32 * 1024 * 1024  # bytes
_SMALL = 32 * 1024 * 1024  # bytes of a file that may be taken whole
_MISSES = 4  # after which it is
_WORTH = 1024 * 1024  # bytes that take as long as a request
_GAP = 2 * _BLOCK  # bytes between two blocks that are wanted which are fetched with them
_AHEAD = 8  # blocks of a page that are read ahead
_ANNOUNCED = _KEPT // 2  # bytes that are fetched ahead at a time, at most
_PIECE, _NEAR = 512, 16 * 1024  # block and gap of a file of which small pieces are read


class RemoteSource(OpenedSource):
    """A file on a server, in memory by blocks.

    Raises:
        InvalidInputError: The URL is not the plain URL of an object.
        NotFoundError: There is no such file.
        ScanError: The server sends nothing by which a change of the file could be noticed.
        StorageError: It cannot be read.
    """

    def __init__(self, url: str) -> None:
        self._reach, self._key, url = reach_for(url)
        self._url = url
        self._meta: Meta | None = None
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._block, self._gap = _BLOCK, _GAP
        self._misses = 0
        self._change: StaleReferenceError | None = None
        try:
            answer = self._get(0, _FIRST)
        except ObjectNotFoundError as error:
            raise NotFoundError("no such file", do="Check the URL.", file=url) from error
        self._meta = answer.meta
        self.requests, self.bytes_fetched = 1, len(answer.body)
        self._keep(0, bytes(answer.body))
        self.file = source_file(url, answer.meta)

    @property
    def local_path(self) -> None:
        """None: it is not on this machine."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file.

        Raises:
            StaleReferenceError: The file changed since it was opened.
            StorageError: It cannot be read.
        """
        end = min(offset + length, self.file.size)
        if offset >= end:
            return b""
        if end - offset > _MOST:
            return self._large(offset, end)
        size = self._block
        first, last = offset // size, (end - 1) // size
        missing = [block for block in range(first, last + 1) if block not in self._blocks]
        if missing:
            self._fetch(missing[0], missing[-1])
        blocks = [self._blocks[block] for block in range(first, last + 1)]
        for block in range(first, last + 1):
            self._blocks.move_to_end(block)
        self._forget()
        return b"".join(blocks)[offset - first * size : end - first * size]

    def check_unchanged(self) -> None:
        """Report a change that an answer showed. Raises ``StaleReferenceError``.

        Every answer was compared with the file that was opened, and readers of references compare
        again.
        """
        if self._change is not None:
            raise self._change

    def prefetch(self, ranges: Sequence[tuple[int, int]], *, page: int = 0) -> None:
        """Fetch the blocks that ranges need and that are not there, side by side.

        What follows them in a page of the file is read ahead: such files keep what describes them
        together.

        Raises:
            StaleReferenceError: The file changed since it was opened.
            StorageError: It cannot be read.
        """
        wanted: set[int] = set()
        size, most = self._block, _ANNOUNCED // self._block
        for begin, end in ranges:
            first, last = begin // size, (min(end, self.file.size) - 1) // size
            wanted.update(range(first, min(last, first + most) + 1))
            if len(wanted) > most:
                break
        missing = sorted(wanted.difference(self._blocks))[:most]
        if not missing:
            return
        blocks, count = set(missing), -(-self.file.size // size)
        for block in missing if (per_page := page // size) else ():
            end_of_page = (block // per_page + 1) * per_page
            blocks.update(range(block, min(end_of_page, block + _AHEAD, count)))
        runs: list[tuple[int, int]] = []  # with small gaps between them
        for block in sorted(blocks.difference(self._blocks)):
            if runs and (block - runs[-1][1]) * size <= self._gap:
                runs[-1] = (runs[-1][0], block + 1)
            else:
                runs.append((block, block + 1))
        if self.file.size <= min(max(_MOST, len(runs) * _WORTH), _SMALL):
            runs = [(0, count)]
        self._forget()  # large reads may have left all that was announced before
        self._fetch_runs(runs)

    def read_sparsely(self) -> None:
        """Fetch no more than is read from now on, where the file is not one to be taken whole."""
        if self.file.size <= _SMALL or self._block == _PIECE:
            return
        count = next(
            number for number in range(len(self._blocks) + 1) if number not in self._blocks
        )
        begin = b"".join(self._blocks[number] for number in range(count))
        self._blocks.clear()
        self._block, self._gap = _PIECE, _NEAR
        self._keep(0, begin)

    def close(self) -> None:
        """Forget what was read."""
        self._blocks.clear()

    def _forget(self) -> None:
        """Drop the blocks that were not read for the longest time, where there are many."""
        while len(self._blocks) > _KEPT // self._block:
            self._blocks.popitem(last=False)

    def _fetch(self, first: int, last: int) -> None:
        """Fetch blocks, and more behind them the more often something was missing."""
        self._misses += 1
        count = -(-self.file.size // self._block)
        small = self.file.size <= _MOST  # one request takes all that there is
        if small or (self._misses > _MISSES and self.file.size <= _SMALL):
            first, stop = 0, count
        else:
            ahead = 1 << min(self._misses - 1, 5) if self._block == _BLOCK else 0
            stop = min(max(last + 1, first + ahead), count)
        missing = [block for block in range(first, stop) if block not in self._blocks]
        # what is there already between them comes again: a request costs more than some blocks
        self._fetch_runs([(missing[0], missing[-1] + 1)])

    def _fetch_runs(self, runs: list[tuple[int, int]]) -> None:
        """Fetch runs of blocks and keep them."""
        size, most = self._block, _MOST // self._block
        cut = [
            (at, min(at + most, stop)) for first, stop in runs for at in range(first, stop, most)
        ]
        ranges = [(at * size, min(stop * size, self.file.size)) for at, stop in cut]
        for (at, _), body in zip(cut, self._bodies(ranges), strict=True):
            self._keep(at, bytes(body))

    def _bodies(self, ranges: Sequence[tuple[int, int]]) -> list[Body]:
        """Return the bytes of ranges, fetched side by side."""
        if len(ranges) == 1:
            found = [self._get(*ranges[0])]
        else:
            parts = [HOSTS.submit(self._reach.host, partial(self._get, *each)) for each in ranges]
            found = [part.result() for part in parts]
        self.requests += len(found)
        self.bytes_fetched += sum(len(answer.body) for answer in found)
        return [answer.body for answer in found]

    def _keep(self, first: int, body: bytes) -> None:
        size = self._block
        for at in range(0, len(body), size):
            self._blocks[first + at // size] = body[at : at + size]

    def _large(self, begin: int, end: int) -> bytes:
        """Read many bytes in parts, side by side, if they are not all there."""
        size = self._block
        first, stop = begin // size, -(-end // size)
        if all(block in self._blocks for block in range(first, stop)):
            held = b"".join(self._blocks[block] for block in range(first, stop))
            return held[begin - first * size : end - first * size]
        cuts = [*range(begin, end, _MOST), end]
        return b"".join(self._bodies(list(pairwise(cuts))))

    def _get(self, begin: int, end: int) -> ObjectBytes:
        answer = self._reach.get(self._key, begin, end, self._check)
        if self._meta is not None and len(answer.body) != end - begin:
            raise self._note_change(answer.meta)
        return answer

    def _check(self, meta: Meta) -> None:
        if self._meta is not None and meta != self._meta:
            raise self._note_change(meta)

    def _note_change(self, meta: Meta) -> StaleReferenceError:
        self._change = StaleReferenceError(
            "the file changed during the scan",
            do="Scan it again when it no longer changes.",
            file=self._url,
            opened=_facts(self._meta) if self._meta else {},
            found=_facts(meta),
        )
        return self._change


def _facts(meta: Meta) -> dict[str, int | str | None]:
    modified = as_text(meta.last_modified)
    return {"size": meta.size, "etag": meta.etag, "last_modified": modified}


def reach_for(url: str) -> tuple[Backend, str, str]:
    """Return the way to an object as `access` or the environment says, its key, and its URL.

    Raises:
        InvalidInputError: It is not the plain URL of an object on a server.
    """
    access = in_force()
    if (way := access.way_to(url)) is not None:
        return *way, url
    key = object_key(url, has_bucket=True)
    address = Address.parse(url)
    directory = url.rpartition("/")[0] + "/"
    if address.provider == "http":
        return access.site(directory), key, address.url
    return bucket_reach(access.bucket(url), directory), key, address.url


def source_file(url: str, meta: Meta) -> SourceFile:
    """Return what a scan records about a file. Raises ``ScanError``."""
    seconds = meta.last_modified or 0.0
    has_checksum = seconds or (meta.etag and not answers.is_weak(meta.etag))
    if meta.size is None or (in_force().keeps_checksums and not has_checksum):
        raise ScanError(
            "the server sends neither a strong etag nor a modification time, so changes of the "
            "file would go unnoticed",
            do="Copy the files to a server that does, or to local disk.",
            file=url,
        )
    return SourceFile(
        url=url,
        size=meta.size,
        etag="" if answers.is_weak(meta.etag) else meta.etag,
        last_modified=int(seconds) * 1_000_000_000,  # answers tell whole seconds, listings more
    )


_METADATA, _SNAPSHOTS = ".zmetadata", "snapshots"
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


def is_store(url: str) -> bool:
    """Say whether a URL is that of a document that stands for a Zarr store."""
    return url.rpartition("/")[2] in STORES


def metadata_of(path: str) -> str:
    """Return the file that stands for a directory, else ``path``.

    Of a Zarr store it is the metadata of its root, of kerchunk's parquet references ``.zmetadata``,
    of a repository of Icechunk ``repo``.
    """
    if os.path.isdir(path):
        if os.path.isfile(inside := os.path.join(path, REPOSITORY)) and os.path.isdir(
            os.path.join(path, _SNAPSHOTS)
        ):
            return inside
        for name in (*STORES, _METADATA):
            if os.path.isfile(inside := os.path.join(path, name)):
                return inside
    return path
