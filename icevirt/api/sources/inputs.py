"""Read what users pass as sources: files, directories, globs, URLs, and lists of them.

A list is marked: ``@list.txt``, ``@files.parquet``, or ``-`` for stdin. If a list gives size and
checksum, its files are not checked again before the scan; the scan itself, and the recheck before
the commit, compare them.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, fields
from itertools import batched, groupby
from operator import attrgetter
from typing import Any, Protocol, cast

import numpy as np

from icevirt.archive.sources import LISTING, SourceFile, SourceFiles
from icevirt.connect.urls import Address, as_local_path, is_pattern, is_url
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.model.strings import Strings
from icevirt.objects.answers import opaque
from icevirt.objects.authorize import object_key
from icevirt.objects.source_access import carrying
from icevirt.objects.source_lists.formats import rows_of, rows_of_arrow, rows_of_items
from icevirt.objects.source_lists.listing import find_changes, list_sources
from icevirt.objects.source_lists.names import SUFFIXES
from icevirt.objects.source_lists.rows import Row, bad_row, is_spark_frame, rows_of_spark
from icevirt.planning.containers import directories_of
from icevirt.threads import Threads

_SECOND = 1_000_000_000
_AT_A_TIME = 16  # files of servers that are looked at
_ROWS = 1 << 12  # that are looked at together
_ONE = (str, bytes, os.PathLike, Mapping)  # iterable, and yet one source


class ArrowStream(Protocol):
    """A table: of pyarrow, pandas, polars or whatever speaks Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with the stream."""


type Source = str | os.PathLike[str] | Mapping[str, Any]
"""A path or URL; or an item of STAC, a granule of CMR, as their clients return them."""

type Sources = Source | ArrowStream | Iterable[Source | ArrowStream]


class LateSources(Iterable[Source]):
    """Files that are named while the repository is read already, as a batch of Spark's.

    Args:
        name: Returns their paths and URLs, and of all of them what a listing said; nothing of any
            where they have to be looked at.
    """

    def __init__(self, name: Callable[[], tuple[list[str], Sequence[SourceFile]]]) -> None:
        self.name = name

    def __iter__(self) -> Iterator[Source]:
        return iter(self.name()[0])


class Inputs:
    """The sources of a build, read once: stdin does not come again.

    Args:
        sources: Paths, URLs, globs, directories, and lists: text beginning with ``@``, ``-``, or
            tables with a column ``url``, data frames of Spark among them.
        asset: Which asset of STAC items is meant.
        known: Instead of sources, files that were listed before. Those that changed since are
            looked at again.

    Raises:
        InvalidInputError: Nothing was named, or a list is wrong.
        NotFoundError: There is no such list.
        StorageError: A list cannot be read.
    """

    def __init__(
        self, sources: Sources, *, asset: str | None = None, known: Sequence[SourceFile] = ()
    ) -> None:
        self._parts: list[Any] = [
            each if isinstance(each, list) else PackedRows(_check(each, asset))
            for each in _parts(sources)
        ]
        self._files: SourceFiles | None = None
        self._begun: Future[SourceFiles] | None = None
        if known:
            self._parts.append(PackedRows(("catalog", file) for file in known))
            self._files = SourceFiles(known)
        if not any(self._parts):
            raise InvalidInputError(
                "no sources", do="Name files, directories, globs or lists of files."
            )

    def files(self) -> SourceFiles:
        """List the files; a second time, what changed since the first is looked at again.

        Raises:
            InvalidInputError: Nothing matched, a file cannot be referenced, or is not what a list
                says.
            NotFoundError: A file does not exist.
            ScanError: A change of a file would go unnoticed.
            StorageError: A file cannot be looked at.
        """
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self._files = begun.result()
            return self._files
        changed = () if self._files is None else frozenset(find_changes(self._files))
        self._files = SourceFiles(self._list(changed))
        return self._files

    def begin(self, pool: Executor) -> None:
        """Begin the first listing, beside whatever else is done; `files` waits for it."""
        self._begun = pool.submit(carrying(lambda: SourceFiles(self._list(()))))

    def expect(self, files: Sequence[SourceFile]) -> None:
        """Take the first listing from what is known of the files."""
        self._begun = Future()
        self._begun.set_result(SourceFiles(files))

    def folders(self) -> tuple[str, ...]:
        """Return the directories of the files that were listed last, as URLs; none before.

        A store lies in the directory that holds its own.
        """
        if self._files is None:
            return ()
        urls, are_stores = self._files.urls, self._files.etags.begin_with(LISTING.encode())
        found = directories_of(urls[np.flatnonzero(~are_stores)])
        own = Strings.of([url.rpartition("/")[0] for url in urls[np.flatnonzero(are_stores)]])
        return tuple(sorted(found | directories_of(own)))

    def _list(self, changed: Collection[str]) -> Iterator[SourceFile]:
        """Yield each file once, looking at those that changed."""
        seen: set[bytes] = set()  # digests of URLs: there may be ten millions
        for part in self._parts:
            for file in list_sources(part) if isinstance(part, list) else _of_rows(part):
                key = hashlib.blake2b(
                    file.url.encode(errors="surrogatepass"), digest_size=16
                ).digest()
                if key not in seen:
                    seen.add(key)
                    yield from list_sources([file.url]) if file.url in changed else (file,)


def _parts(sources: Any) -> Iterator[Any]:
    """Yield runs of plain sources as lists, of items as tuples, and the lists of sources by one."""
    is_many = isinstance(sources, Iterable) and not isinstance(sources, _ONE)
    for kind, run in groupby(sources if is_many and not _is_table(sources) else [sources], _kind):
        several = list(run)
        if kind == "list":
            yield from several
        else:
            yield tuple(several) if kind == "item" else several


def _kind(source: Any) -> str:
    if _is_list(source) or _is_table(source):
        return "list"
    return "item" if isinstance(source, Mapping) else "plain"


def _is_list(source: Any) -> bool:
    return isinstance(source, str) and (source == "-" or source.startswith("@"))


def _is_table(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__") or is_spark_frame(source)


def _check(source: Any, asset: str | None) -> Iterator[tuple[str, Row | SourceFile]]:
    """Read a list; what it says of a file on a server is all there is to know before the scan."""
    if isinstance(source, str):
        where = source.removeprefix("@")
        name = "stdin" if where == "-" else where
        rows = rows_of(where, asset)
    elif isinstance(source, tuple):
        name, rows = "items", rows_of_items(source, asset)
    else:
        of_table = rows_of_spark if is_spark_frame(source) else rows_of_arrow
        name, rows = type(source).__name__, of_table(source)
    empty = True
    for each in rows:
        empty = False
        yield name, as_listed(each, name) or each
    if empty:
        raise InvalidInputError("a list of sources is empty", do="Check it.", list=name)


def as_listed(row: Row, name: str) -> SourceFile | None:
    """Return the file, if it is elsewhere and the row says all that a listing would.

    Args:
        row: Of a list of files.
        name: Of the list.

    Raises:
        InvalidInputError: Its URL is not the plain URL of an object.
    """
    is_known = row.size is not None and (row.etag or row.last_modified)
    if not is_known or not _is_remote(row.url):
        return None
    try:
        object_key(row.url, has_bucket=True)
        url = Address.parse(row.url).url
    except InvalidInputError as error:
        error.facts |= {"list": name, "line": row.line}
        raise
    seconds = (row.last_modified or 0) // _SECOND  # all that answers hold
    return SourceFile(url=url, size=row.size or 0, etag=row.etag, last_modified=seconds * _SECOND)


def _is_remote(url: str) -> bool:
    return is_url(url) and not url.startswith("file://")


def _of_rows(rows: PackedRows) -> Iterator[SourceFile]:
    """Yield the files of a list, looking at files of servers side by side."""
    with Threads(_AT_A_TIME, "icevirt-list") as pool:
        for some in rows.pieces():
            asked = {
                number: pool.submit(carrying(_look_at), name, each)
                for number, (name, each) in enumerate(some)
                if isinstance(each, Row) and _is_remote(each.url)
            }
            for number, (name, each) in enumerate(some):
                if isinstance(each, SourceFile):
                    yield each
                elif number in asked:
                    yield from asked[number].result()
                else:
                    yield from _look_at(name, each)


def _look_at(name: str, row: Row) -> tuple[SourceFile, ...]:
    """List what a row names, and compare it with what the row says.

    Raises:
        InvalidInputError: It is not what the list says.
    """
    try:
        files = list_sources([row.url])
    except IcevirtError as error:
        error.facts |= {"list": name, "line": row.line}
        raise
    says_something = (row.size, row.last_modified) != (None, None) or row.etag
    if says_something and len(files) != 1:
        raise bad_row(
            "a list of sources gives size or checksum for an entry that is not a single file",
            name,
            row.line,
            url=row.url,
        )
    for what, listed, found in _differences(row, files[0]):
        raise bad_row(
            "a file differs from its entry in the list of sources",
            name,
            row.line,
            file=files[0].url,
            **{f"{what}_listed": listed, f"{what}_found": found},
        )
    return files


def _differences(row: Row, file: SourceFile) -> Iterator[tuple[str, Any, Any]]:
    """Yield what a list says otherwise; times are compared as far as all lists can tell them."""
    if row.size is not None and row.size != file.size:
        yield "size", row.size, file.size
    if row.etag and file.etag and opaque(row.etag) != opaque(file.etag):
        yield "etag", row.etag, file.etag
    listed = row.last_modified
    if listed is not None and listed // _SECOND != file.last_modified // _SECOND:
        yield "last_modified", listed // _SECOND, file.last_modified // _SECOND


class PackedRows:
    """Rows in compressed pieces of some thousand; each comes with the name of its list."""

    def __init__(self, rows: Iterable[tuple[str, Row | SourceFile]]) -> None:
        pieces = (
            [(name, _facts(each) if isinstance(each, SourceFile) else each) for name, each in some]
            for some in batched(rows, _ROWS)  # plain values pickle sooner
        )
        self._pieces = [zlib.compress(pickle.dumps(piece), 1) for piece in pieces]

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(map(len, self._pieces))

    def pieces(self) -> Iterator[tuple[tuple[str, Row | SourceFile], ...]]:
        """Yield the rows, some thousand at a time."""
        for piece in self._pieces:
            rows = pickle.loads(zlib.decompress(piece))  # noqa: S301  # made above
            yield tuple(
                (
                    name,
                    each
                    if isinstance(each, Row)
                    else SourceFile(**dict(zip(_FIELDS, each, strict=True))),
                )
                for name, each in rows
            )


_FIELDS = tuple(field.name for field in fields(SourceFile))
_facts = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedSources:
    """Sources, each one file, and the place of each along every dimension."""

    sources: tuple[Any, ...]
    places: tuple[tuple[int, ...], ...]

    def by_url(self, files: Sequence[SourceFile]) -> dict[str, tuple[int, ...]]:
        """Return the places of the listed files.

        Raises:
            InvalidInputError: A source is not exactly one file, or a file occurs twice.
        """
        if len(files) != len(self.places):
            raise InvalidInputError(
                f"{len(self.places)} nested sources are {len(files)} files",
                do="Name each file once, without patterns and directories.",
            )
        return {file.url: place for file, place in zip(files, self.places, strict=True)}


def nest_of(
    sources: Sources | None, dimensions: Sequence[str], combine: str
) -> NestedSources | None:
    """Read nested lists, as deep as there are dimensions; None where files lie in the order given.

    A missing file is None.

    Raises:
        InvalidInputError: The lists are less deep or deeper.
    """
    if combine != "nested" or len(dimensions) < 2:
        return None
    found = list(_leaves(sources, len(dimensions), ()))
    return NestedSources(
        sources=tuple(source for source, _ in found), places=tuple(place for _, place in found)
    )


def _leaves(
    sources: Any, depth: int, place: tuple[int, ...]
) -> Iterator[tuple[Any, tuple[int, ...]]]:
    is_list = isinstance(sources, Iterable) and not isinstance(sources, _ONE)
    if is_list != bool(depth):
        raise InvalidInputError(
            "nested sources need one level of lists per dimension in concat_dim",
            do='For ["init", "member"] pass [[member 1, member 2], [member 1, member 2]].',
            found=sources if isinstance(sources, str) else type(sources).__name__,
        )
    if not depth:
        yield sources, place
        return
    for at, each in enumerate(cast("Iterable[Any]", sources)):
        if each is not None:
            yield from _leaves(each, depth - 1, (*place, at))


def each_source(sources: Any) -> list[Any]:
    """Return sources one by one."""
    is_many = isinstance(sources, Iterable) and not (
        isinstance(sources, _ONE) or hasattr(sources, "__arrow_c_stream__")
    )
    return list(sources) if is_many and isinstance(sources, list | tuple | set) else [sources]


def is_listable(sources: Any) -> bool:
    """Say whether sources can be listed again: stdin, tables, iterators and nested lists cannot."""
    return all(
        isinstance(each, str | os.PathLike) and os.fspath(each) != "-"
        for each in each_source(sources)
    )


def names_many(source: str) -> bool:
    """Say whether a source stands for whatever is there: a list, a pattern or a directory."""
    if source.startswith("@") or source.endswith("/"):
        return True
    if is_url(source) and not source.startswith("file://"):
        return is_pattern(source.partition("://")[2]) or not source.lower().endswith(SUFFIXES)
    path = as_local_path(source)
    return os.path.isdir(path) or (is_pattern(path) and not os.path.lexists(path))
