"""Describe source files as they were listed or scanned: one, and columns of many."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import overload

import numpy as np
from numpy.typing import NDArray

from icevirt.model.strings import FoldingStrings, Strings

STORES = ("zarr.json", ".zgroup", ".zarray")
"""Names of the documents that stand for a Zarr store; the first that is there counts."""

REPOSITORY = "repo"
"""The name of the object that stands for a repository of Icechunk."""

LISTING = "listing:"
"""With what the etag of a file begins that is a store of objects: the digest of their listing."""


def source_of_url(url: str) -> str:
    """Return what a person calls the source of a URL: a store or repository is its folder."""
    folder, _, name = url.rpartition("/")
    return folder if name in (*STORES, REPOSITORY) else url


def name_of_url(url: str) -> str:
    """Return the name of a file or store."""
    return source_of_url(url).rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file as it was when it was listed or scanned; the checksum goes into every reference."""

    url: str  # absolute and canonical, "file:///..." for local files
    size: int  # bytes
    etag: str = ""  # "" where the storage has none, and for local files
    last_modified: int = 0  # nanoseconds since 1970; 0 unknown

    @classmethod
    def of_status(cls, url: str, status: os.stat_result) -> SourceFile:
        """Return a file of this machine. One of 1970 or before is of a nanosecond after that.

        Images and packages that are made reproducibly have such files.
        """
        return cls(url=url, size=status.st_size, last_modified=max(status.st_mtime_ns, 1))

    @property
    def is_store(self) -> bool:
        """Whether it stands for all objects below its folder."""
        return self.etag.startswith(LISTING)

    @property
    def last_modified_seconds(self) -> int:
        """Whole seconds, rounded up: what a reference carries (the official client truncates)."""
        return -(-self.last_modified // 1_000_000_000)


_ROWS_AT_ONCE = 4096  # of which files are made


class SourceFiles(Sequence[SourceFile]):
    """A sequence of files, each made when it is accessed, and their columns.

    Args:
        files: Taken over one after the other; they need not all be there at once.
    """

    def __init__(self, files: Iterable[SourceFile] = ()) -> None:
        self.urls, self.etags = FoldingStrings(()), FoldingStrings(())
        sizes, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for some in batched(files, FoldingStrings.block_rows):
            self.urls.add(Strings.of([file.url for file in some]))
            self.etags.add(Strings.of([file.etag for file in some]))
            sizes.append(np.array([file.size for file in some], np.int64))
            times.append(np.array([file.last_modified for file in some], np.int64))
        self.sizes = np.concatenate(sizes)  # (n,) bytes
        self.times = np.concatenate(times)  # (n,) nanoseconds
        self.sizes.flags.writeable = self.times.flags.writeable = False

    def fold(self) -> None:
        """Compress the names until they are next read, for all holders of the columns."""
        self.urls.fold()
        self.etags.fold()

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, at: int) -> SourceFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[SourceFile, ...]: ...
    def __getitem__(self, at: int | slice) -> SourceFile | tuple[SourceFile, ...]:
        if isinstance(at, slice):
            return tuple(self.at(np.arange(*at.indices(len(self)))))
        at = int(at)
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return next(self.at(np.array([at % len(self)])))

    def __iter__(self) -> Iterator[SourceFile]:
        return self.at(np.arange(len(self)))

    def at(self, rows: NDArray[np.integer]) -> Iterator[SourceFile]:
        """Yield the files of some rows, in their order."""
        for low in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[low : low + _ROWS_AT_ONCE]
            columns = self.sizes[some].tolist(), self.times[some].tolist()
            named = zip(self.urls[some], self.etags[some], *columns, strict=True)
            for url, etag, size, time in named:
                yield SourceFile(url=url, size=size, etag=etag, last_modified=time)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SourceFiles)
            and self.urls == other.urls
            and self.etags == other.etags
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.times, other.times)
        )

    __hash__ = None  # type: ignore[assignment]
