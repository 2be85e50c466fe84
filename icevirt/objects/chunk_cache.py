"""Keep encoded chunks of servers in a directory of this machine, for readers in many processes.

An entry is a file with a chunk, or with the small chunks of a stretch of an object. Its name is a
digest of what it holds: server, location, checksum and place. So a file of another version has
other entries, and none is ever out of date. Every entry repeats its name and carries checksums.
It is written beside its place and renamed, and what is damaged is deleted and read from its server.
Nothing waits for the disk: after a loss of power entries may be damaged, and that is noticed.

A cache of decoded chunks keeps values where icevirt's own reader decodes them, under a name that
covers the codecs, too. What zarr's pipeline decodes is kept encoded.

Trouble of any kind, like a full disk, ends the use of the cache with a warning, and never a read.

The directory belongs to this user alone. Which locations may be read is decided before
(`icevirt.objects.authorize`): the cache is asked for ranges of objects that were granted.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import stat
import struct
import threading
import time
import warnings
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple
from weakref import WeakSet

import numpy as np

from icevirt.amounts import parse_size
from icevirt.connect.urls import as_local_path, is_url, spell
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.objects.answers import Body

SIZE = "10GiB"
"""Bytes of a cache where nothing is said."""

STRETCH = 1 << 18
"""Bytes of an object whose small chunks share an entry: a file for each costs more than it has."""

_SMALL = 1 << 16  # bytes
_MOST = 4 * STRETCH  # bytes of an entry of small chunks, which may overlap
_MARK = b"icevirt\x02"
_HEAD = struct.Struct("<8s24sII")  # mark, digest, chunks, checksum of the index
_ROW = struct.Struct("<QQQI")  # of the index: begin, end, bytes that are kept, checksum
_PLACE = struct.Struct("<cQQ")
_BLOCK = 4096  # bytes that a file takes at least
_SMALLEST = 1 << 20
_UNIT = 256  # of the size: a part that is counted
_SWEEP = 16  # parts that are written between two looks at all entries
_LARGEST = 8  # of the size: a larger chunk is not kept
_WRITERS = 32  # at once, of a process
_GRAIN = 1.0  # seconds in which a use is noted once
_FORGOTTEN = 3600.0  # seconds after which nobody still writes a file
_COUNT, _LOCK = "icevirt.written", "icevirt.lock"
_OURS = re.compile(r"[0-9a-f]{48}\.([0-9a-f]+\.)?(chunk|new)")  # nothing else is counted or deleted


type Span = tuple[int, int]
"""Begin and end of a range of an object."""

type Form = Literal["encoded", "decoded"]
"""What a cache keeps of a chunk: its bytes, or its values."""


class ChunkCacheCounts(NamedTuple):
    """What readers in this process took from a cache, and what they had to fetch."""

    hits: int = 0  # chunks, or parts of them, that came from the cache
    misses: int = 0  # that came from a server and could be kept
    hit_bytes: int = 0
    missed_bytes: int = 0
    damaged: int = 0  # entries that were deleted, because they were not what was written


class ChunkCacheWarning(UserWarning):
    """Chunks are read without the cache from now on."""


class ChunkCache:
    """Chunks in a directory. Safe in threads and processes.

    Args:
        directory: Where. It is made if it is not there, for this user alone.
        size: Bytes that the files may take, or text like ``10GiB``; what many processes write in
            the same moment may come to it.
        form: What is kept of a chunk.

    Raises:
        InvalidInputError: It is no place for a cache, or the size is none.
        UnauthorizedError: Others can write to the directory, or it is another user's.
    """

    def __init__(
        self, directory: str | os.PathLike[str], size: int | str = SIZE, form: Form = "encoded"
    ) -> None:
        self.directory, self.size, self.form = _path_of(directory), parse_size(size), form
        if form not in ("encoded", "decoded"):
            raise InvalidInputError(
                "unknown form of what a cache of chunks keeps",
                do='Pass "encoded" or "decoded".',
                chunk_cache_form=form,
            )
        if self.size < _SMALLEST:
            raise InvalidInputError(
                "this is not a size that a cache of chunks can have",
                do='Pass a number of bytes of at least 1 MiB, or text like "10GiB".',
                chunk_cache_size=size,
            )
        self._given = os.fspath(directory), size, form
        self._files = _EntryFiles(self.directory)
        self.unlock()
        _all.add(self)
        self._counts = [0] * len(ChunkCacheCounts._fields)
        self._is_over = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, self._given

    def unlock(self) -> None:
        """Take new locks: in a forked child, other threads may have held the old ones."""
        self._lock = threading.Lock()
        self._writing = [threading.Lock() for _ in range(_WRITERS)]

    @property
    def counts(self) -> ChunkCacheCounts:
        """What was taken and fetched so far."""
        return ChunkCacheCounts(*self._counts)

    def of(self, *identity: str) -> CachedObject:
        """Return the ranges of one version of one object, which all these words name together."""
        start = blake2b(digest_size=24)
        for each in identity:
            raw = each.encode("utf-8", "surrogatepass")
            start.update(len(raw).to_bytes(8, "little") + raw)
        return CachedObject(self, start)

    def read(self, digest: bytes, spans: Sequence[Span]) -> list[memoryview | None]:
        """Return ranges out of an entry; None for those that it lacks, or that are not whole."""
        found: list[memoryview | None] = [None] * len(spans)
        if self._is_over:
            return found
        is_whole = True
        try:
            entry = self._files.read(digest)
            if entry is not None:
                found = [entry.body(each) for each in spans]
                is_whole = not any(
                    body is None and each in entry.rows
                    for each, body in zip(spans, found, strict=True)
                )
        except _DamagedError:
            is_whole = False
        except OSError as error:
            self._end(error)
        hits = [len(body) for body in found if body is not None]
        if not is_whole:
            self._files.delete(digest)
        with self._lock:
            self._counts[0] += len(hits)
            self._counts[2] += sum(hits)
            self._counts[4] += not is_whole
        return found

    def write(self, digest: bytes, bodies: Mapping[Span, Body]) -> None:
        """Note what a server sent, and keep it, if the cache is large enough."""
        length = sum(map(len, bodies.values()))
        with self._lock:
            self._counts[1] += len(bodies)
            self._counts[3] += length
        if self._is_over or length * _LARGEST > self.size:
            return
        try:
            if self._files.has_room(self.size):
                with self._writing[digest[0] % _WRITERS]:  # else threads lose what others add
                    written = self._files.write(digest, bodies)
                self._files.count(written, self.size)
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        with self._lock:
            is_news, self._is_over = not self._is_over, True
        if is_news:
            warnings.warn(
                f"chunks are read without their cache from now on: {error.strerror}"
                f" ({self.directory})",
                ChunkCacheWarning,
                stacklevel=2,
            )


class CachedObject(NamedTuple):
    """What a cache holds of one version of one object."""

    cache: ChunkCache
    start: Any  # of the digest of each entry
    width: int = 0  # bytes of the values of each chunk; 0: chunks are encoded

    def decode(self, codecs: bytes, width: int) -> CachedObject:
        """Return what it holds of values.

        Args:
            codecs: Everything that chunks are decoded by.
            width: Bytes of the values of each chunk.
        """
        start = self.start.copy()
        start.update(b"decoded" + blake2b(codecs, digest_size=24).digest())
        return CachedObject(self.cache, start, width)

    def get(self, offset: int, length: int) -> memoryview | None:
        """Return a range; None where the cache has none."""
        return self.get_all([(offset, offset + length)])[0]

    def get_all(self, spans: Sequence[Span]) -> list[memoryview | None]:
        """Return ranges, given by begin and end; None for what the cache has not."""
        found: dict[Span, memoryview | None] = {}
        for digest, some in self._by_entry(spans):
            found |= zip(some, self.cache.read(digest, some), strict=True)
        return [found[each] for each in spans]

    def put(self, bodies: Mapping[Span, Body]) -> None:
        """Keep ranges that a server sent."""
        for digest, some in self._by_entry(bodies):
            self.cache.write(digest, {each: bodies[each] for each in some})

    def _by_entry(self, spans: Iterable[Span]) -> Iterator[tuple[bytes, list[Span]]]:
        places: dict[bytes, list[Span]] = {}
        for begin, end in spans:
            is_small = (self.width or end - begin) < _SMALL
            stretch = STRETCH // 8 if self.width else STRETCH  # values are larger
            place = (b"s", begin // stretch, 0) if is_small else (b"c", begin, end)
            places.setdefault(_PLACE.pack(*place), []).append((begin, end))
        for named, some in places.items():
            known = self.start.copy()
            known.update(named)
            yield known.digest(), some


class FreshChunks:
    """Notes which chunks a server sent just as they were scanned: these may be kept, decoded."""

    def __init__(self) -> None:
        self._spans: set[Span] = set()

    def get(self, offset: int, length: int) -> None:
        """Return nothing: what is kept was taken before."""

    def put(self, bodies: Iterable[Span]) -> None:
        """Note chunks."""
        self._spans.update(bodies)

    def take(self, span: Span) -> bool:
        """Say whether a chunk was noted, and forget it."""
        is_noted = span in self._spans
        self._spans.discard(span)
        return is_noted


_all: WeakSet[ChunkCache] = WeakSet()


def _unlock_in_child() -> None:
    for cache in list(_all):
        cache.unlock()


os.register_at_fork(after_in_child=_unlock_in_child)


@lru_cache(32)
def _open_again(directory: str, size: int | str, form: Form) -> ChunkCache | None:
    """Open a cache in a process that readers were sent to; None where it has no such place."""
    try:
        return ChunkCache(directory, size, form)
    except (InvalidInputError, UnauthorizedError) as error:
        warnings.warn(f"chunks are read without a cache: {error}", ChunkCacheWarning, stacklevel=2)
        return None


def _path_of(directory: str | os.PathLike[str]) -> str:
    text = os.fspath(directory)
    if not text or (is_url(spell(text)) and not text.startswith("file://")):
        raise InvalidInputError(
            "a cache of chunks is a directory of this machine",
            do='Pass a path: chunk_cache="/scratch/me/chunks".',
            chunk_cache=text,
        )
    return os.path.abspath(as_local_path(text))


# -- files ---------------------------------------------------------------------------------------


class _EntryFiles:
    """The files of a cache, reached by the descriptor of a directory that was looked at.

    Raises:
        InvalidInputError: The directory cannot be made or opened.
        UnauthorizedError: Others can write to it, or it is another user's.
        OSError: From every method.
    """

    def __init__(self, path: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._at = os.open(path, flags)
        except OSError as error:
            raise InvalidInputError(
                "the directory for a cache of chunks cannot be used",
                do="Name another one, or leave chunk_cache out.",
                chunk_cache=path,
                reason=error.strerror,
            ) from error
        facts = os.fstat(self._at)
        is_ours = facts.st_uid == os.geteuid()
        if not is_ours or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnauthorizedError(
                "others can write to the directory for a cache of chunks"
                if is_ours
                else "the directory for a cache of chunks belongs to another user",
                do=f"Run `chmod 700` on it, or name a directory of your own: {path}/NAME."
                if is_ours
                else f"Name a directory of your own, like {path}/NAME.",
                chunk_cache=path,
            )

    def __del__(self, close: Any = os.close) -> None:
        if hasattr(self, "_at"):
            with suppress(OSError):
                close(self._at)

    def read(self, digest: bytes) -> _Entry | None:
        """Return an entry, whose chunks are not yet checked; None where there is none.

        Raises:
            _DamagedError: It is none.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            number = os.open(_name_of(digest), flags, dir_fd=self._at)
        except FileNotFoundError:
            return None
        try:
            facts = os.fstat(number)
            entry = _Entry.of(_read(number, facts.st_size), digest)
            if time.time() - facts.st_mtime > _GRAIN:
                os.utime(number)
        finally:
            os.close(number)
        return entry

    def delete(self, digest: bytes) -> None:
        """Delete an entry."""
        with suppress(OSError):
            os.unlink(_name_of(digest), dir_fd=self._at)

    def write(self, digest: bytes, bodies: Mapping[Span, Body]) -> int:
        """Write chunks into an entry, beside others that it has; return how many bytes it has then.

        It is there as a whole or not at all. What two processes add in one moment may be lost.
        """
        rows = {each: (zlib.crc32(body), body) for each, body in bodies.items()}
        with suppress(_DamagedError):
            if (entry := self.read(digest)) is not None and len(entry.raw) < _MOST:
                rows = entry.rows | rows
        index = b"".join(_ROW.pack(*each, len(body), known) for each, (known, body) in rows.items())
        head = _HEAD.pack(_MARK, digest, len(rows), zlib.crc32(index))
        new = f"{digest.hex()}.{os.urandom(8).hex()}.new"
        raw = b"".join([head, index, *(body for _, body in rows.values())])
        number = self._open(new, os.O_WRONLY | os.O_EXCL)
        try:
            try:
                _write(number, raw)
            finally:
                os.close(number)
            os.replace(new, _name_of(digest), src_dir_fd=self._at, dst_dir_fd=self._at)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=self._at)
            raise
        return len(raw)

    def has_room(self, size: int) -> bool:
        """Say whether another entry may be written; look at all entries where much was.

        While another writer does that, which takes a moment or is stopped, nothing is written.
        """
        if not self._is_due():
            return True
        with self._alone() as is_alone:
            if is_alone and self._is_due():  # unless another one just did it
                self._sweep(size - size * 2 * _SWEEP // _UNIT)
                os.close(self._open(_COUNT, os.O_WRONLY | os.O_TRUNC))
            return is_alone

    def count(self, length: int, size: int) -> None:
        """Count what was written, by chance instead of exactly.

        Writers share a file that has a byte for each part of the size that they wrote together. A
        writer adds one with the chance that its bytes have in a part, so that no process has to
        live long enough, or to end well, to be counted.
        """
        parts, rest = divmod(_taken(length) * _UNIT, size)
        parts += random.random() * size < rest  # noqa: S311 - no secret
        if parts:
            number = self._open(_COUNT, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(number, bytes(parts))
            finally:
                os.close(number)

    def _is_due(self) -> bool:
        try:
            return os.stat(_COUNT, dir_fd=self._at, follow_symlinks=False).st_size >= _SWEEP
        except FileNotFoundError:
            return False

    def _sweep(self, most: int) -> None:
        """Delete what was not used for longest, so that the rest takes no more than ``most``."""
        times, sizes, total = array("d"), array("q"), 0
        for _, facts in self._files():
            times.append(facts.st_mtime)
            sizes.append(taken := _taken(facts.st_size))
            total += taken
        last, left = 0.0, total - most
        for at in sorted(range(len(times)), key=times.__getitem__):
            if left <= 0:
                break
            last, left = times[at], left - sizes[at]
        over, forgotten = total - most, time.time() - _FORGOTTEN
        for name, facts in self._files():
            is_old = over > 0 and facts.st_mtime <= last and name.endswith(".chunk")
            if is_old or (name.endswith(".new") and facts.st_mtime < forgotten):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._at)
                    over -= _taken(facts.st_size)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self._at) as found:
            for each in found:
                if _OURS.fullmatch(each.name):
                    with suppress(FileNotFoundError):
                        yield each.name, each.stat(follow_symlinks=False)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Say whether no other writer is here; it stays so while the block runs."""
        number = self._open(_LOCK, os.O_WRONLY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            try:
                yield True
            finally:  # a child that was forked meanwhile has it open, too
                fcntl.flock(number, fcntl.LOCK_UN)
        finally:
            os.close(number)

    def _open(self, name: str, flags: int) -> int:
        flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, 0o600, dir_fd=self._at)


def _taken(size: int) -> int:
    """Return the bytes of a disk that a file takes."""
    return -(-size // _BLOCK) * _BLOCK


def _name_of(digest: bytes) -> str:
    return f"{digest.hex()}.chunk"


def _read(number: int, size: int) -> memoryview:
    body: memoryview = np.empty(size, np.uint8).data
    left = body
    while left and (got := os.readv(number, [left])):
        left = left[got:]
    return body


def _write(number: int, body: bytes) -> None:
    left = memoryview(body)
    while left:
        left = left[os.write(number, left) :]


class _DamagedError(Exception):
    """A file is not the entry that was written."""


class _Entry(NamedTuple):
    """The chunks of an entry."""

    raw: memoryview
    rows: dict[Span, tuple[int, Body]]  # checksum and bytes

    @classmethod
    def of(cls, raw: memoryview, digest: bytes) -> _Entry:
        """Read a file. Raises `_DamagedError`."""
        if len(raw) < _HEAD.size:
            raise _DamagedError
        *names, count, known = _HEAD.unpack_from(raw)
        at = _HEAD.size + count * _ROW.size
        index = raw[_HEAD.size : at]
        if names != [_MARK, digest] or len(raw) < at or zlib.crc32(index) != known:
            raise _DamagedError
        rows: dict[Span, tuple[int, Body]] = {}
        for begin, end, length, checksum in _ROW.iter_unpack(index):
            rows[begin, end] = checksum, raw[at : at + length]
            at += length
        if at != len(raw):
            raise _DamagedError
        return cls(raw, rows)

    def body(self, span: Span) -> memoryview | None:
        """Return a chunk if it is there, and is what was written."""
        checksum, body = self.rows.get(span, (0, None))
        if body is None or zlib.crc32(body) != checksum:
            return None
        return memoryview(body)
