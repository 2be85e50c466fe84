"""Look at objects, and compare bytes of two copies of them, with memory bounded by a batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import SourceFile
from icevirt.errors import IcevirtError, StorageError
from icevirt.objects import answers, fetch, remote
from icevirt.objects.answers import UNCHECKED, Body, Checksum, refuse
from icevirt.objects.authorize import Grant, LocalGrant
from icevirt.objects.fetch import FILES
from icevirt.objects.source import source_file
from icevirt.objects.web_connections import HOSTS

PIECE = 1 << 22
"""Bytes of a copy that are read at a time, at most."""
_BATCH = 1 << 25  # bytes that are held of each copy


@dataclass(frozen=True, slots=True)
class Looked:
    """An object as it is now."""

    size: int  # bytes
    checksum: Checksum  # as a scan would record it
    change: StorageError | None  # from what a scan recorded
    seconds: float | None  # since 1970, when it was modified

    @property
    def is_unchanged(self) -> bool:
        """Whether a reader accepts it as what was recorded."""
        return self.change is None


@dataclass(frozen=True, slots=True)
class Copy:
    """An object that may be read, as it has to be."""

    grant: Grant
    checksum: Checksum


def look_at(copies: Sequence[Copy]) -> list[Looked | IcevirtError]:
    """Return what is known of each object, or why nothing is; those on servers side by side."""
    found: list[Looked | IcevirtError | Future[Looked | IcevirtError]] = []
    for copy in copies:
        if isinstance(copy.grant, LocalGrant):
            found.append(_local(copy.grant, copy.checksum))
            continue
        try:
            host = remote.object_of(copy.grant, UNCHECKED, _bear).reach.host
        except IcevirtError as error:
            found.append(error)
        else:
            found.append(HOSTS.submit(host, lambda copy=copy: _remote(copy)))  # type: ignore[misc]
    return [each.result() if isinstance(each, Future) else each for each in found]


def pieces(
    offset: NDArray[np.uint64], length: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ranges of one object as (offset, length) without overlaps, cut into pieces.

    Args:
        offset: Where each range begins, shape (n,), bytes; in any order.
        length: Of each, shape (n,), bytes.
    """
    order = np.argsort(offset, kind="stable")
    begin = offset[order].astype(np.int64)
    end = np.maximum.accumulate(begin + length[order].astype(np.int64))
    opens = np.ones(len(begin), np.bool_)
    opens[1:] = begin[1:] > end[:-1]
    low = begin[opens]
    high = end[np.append(np.flatnonzero(opens)[1:], len(begin)) - 1]
    counts = -(-(high - low) // PIECE)
    nth = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(low, counts) + nth * PIECE
    return starts, np.minimum(np.repeat(high, counts) - starts, PIECE)


def first_difference(
    one: Copy, other: Copy, offset: NDArray[np.int64], length: NDArray[np.int64]
) -> int | None:
    """Return where the first of some ranges differs in two copies, in bytes; None: nowhere.

    Raises:
        StorageError: A copy cannot be read, or is not what it has to be.
    """
    ends = np.cumsum(length)
    low = high = 0
    while high < len(length):
        low, before = high, int(ends[high - 1]) if high else 0
        high = max(low + 1, int(np.searchsorted(ends, before + _BATCH, side="right")))
        ranges: list[tuple[int, int]] = list(
            zip(offset[low:high].tolist(), length[low:high].tolist(), strict=True)
        )
        for (at, _), mine, theirs in zip(
            ranges, _read(one, ranges), _read(other, ranges), strict=True
        ):
            if memoryview(mine) != memoryview(theirs):
                left, right = np.frombuffer(mine, np.uint8), np.frombuffer(theirs, np.uint8)
                return int(at) + int(np.argmax(left != right))
    return None


def _read(copy: Copy, ranges: Sequence[tuple[int, int]]) -> list[Body]:
    if isinstance(copy.grant, LocalGrant):
        return [
            fetch.read(copy.grant, offset=at, length=size, checksum=copy.checksum)
            for at, size in ranges
        ]
    source = remote.object_of(copy.grant, copy.checksum, refuse)
    found = remote.fetch_all([remote.RemoteRange(source, at, size) for at, size in ranges])
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found  # type: ignore[return-value]  # no errors are left


def _local(grant: LocalGrant, checksum: Checksum) -> Looked | IcevirtError:
    try:
        file, size = FILES.get(grant)
        stat = os.fstat(file.fd)
    except IcevirtError as error:
        return error
    except (FileNotFoundError, NotADirectoryError):
        return answers.not_found(grant.url)
    except OSError as error:
        return answers.unreadable_file(grant.url, reason=error.strerror)
    seconds = SourceFile.of_status(grant.url, stat).last_modified_seconds
    change = fetch.compare_with_scan(grant, checksum, stat)
    return Looked(size, Checksum(last_modified=seconds), change, seconds)


def _remote(copy: Copy) -> Looked | IcevirtError:
    assert not isinstance(copy.grant, LocalGrant)
    url = copy.grant.url
    try:
        source = remote.object_of(copy.grant, UNCHECKED, _bear)
        meta = source.get(0, 1).meta
        if meta.size is None:
            return answers.unreadable(url, reason="the server does not say how long the file is")
        change = answers.compare_with_scan(url, copy.checksum, meta)
        now = Checksum()
        if change is not None or copy.checksum.is_time:
            file = source_file(url, meta)
            seconds = 0 if file.etag else file.last_modified_seconds
            now = Checksum(etag=file.etag, last_modified=seconds)
    except IcevirtError as error:
        return error
    return Looked(meta.size, now, change, meta.last_modified)


def _bear(_: StorageError) -> None:
    """Take an object as it is."""
