"""Scan one file, here or in a child; anything wrong with it becomes its row in the catalog.

A scan is one thread, because libhdf5 is, and it waits for answers of servers. So `Prefetcher`
meanwhile requests the beginnings of the next files, which are all of a small file.

Damaged files can make libhdf5 crash or run forever. Files suspected of having killed a process are
scanned in a child, and all comparisons run in one, where a crash, a hang or memory use costs only
one file: a child reads file after file, and another starts only if it dies. See
`icevirt.tasks.forkserver`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Self

from icevirt.archive.scanned import ScanLimits, ScanOutcome
from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import is_url
from icevirt.errors import (
    IcevirtError,
    ScanCrashError,
    ScanError,
    ScanMemoryError,
    ScanTimeoutError,
    StaleReferenceError,
)
from icevirt.objects.answers import opaque
from icevirt.objects.opening import open_source
from icevirt.objects.source import OpenedSource, reach_for
from icevirt.objects.source_access import SourceAccess, carrying, grant_access, in_force
from icevirt.objects.stores import StoreSource
from icevirt.objects.web_connections import HOSTS
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import record, scan_share
from icevirt.tasks.forkserver import Apart

AHEAD = 8
"""Files that are opened or waited for at a time."""


def attempt(
    file: SourceFile,
    options: ScannerOptions,
    opening: Callable[[str], AbstractContextManager[OpenedSource]] = open_source,
    piece: tuple[int, int] | None = None,
) -> ScanOutcome:
    """Scan a file; errors are part of the outcome.

    Args:
        file: As it was listed.
        options: Of the scan.
        opening: Returns a file by its URL, opened; it may have opened it already.
        piece: The number of a share and how many there are; None scans the whole file.
    """
    begin = time.perf_counter()
    share, scanned, error = None, None, None
    source: OpenedSource | None = None
    try:
        with opening(file.url) as source:
            if isinstance(source, StoreSource):
                source.expect(file)
                if piece is not None:
                    source.share(file)
            _refuse_change(file, source.file)
            if piece is None:
                scanned = record(source, options)
            else:
                share, scanned = scan_share(source, options, *piece)
    except IcevirtError as refused:
        error = refused
    except MemoryError:
        error = ScanMemoryError(
            "the file needs more memory than its limit, or than is available",
            do=write_remedy("Leave it out, or raise ", write_option("file_memory"), "."),
            file=file.url,
        )
    except Exception as bug:  # noqa: BLE001  # one odd file must not cost the other thousands
        error = ScanError(
            f"the scanner failed: {type(bug).__name__}: {bug}",
            do="Please report this file.",
            file=file.url,
        )
    return ScanOutcome(
        file=file,
        scanned=scanned,
        error=error,
        seconds=time.perf_counter() - begin,
        requests=0 if source is None else source.requests,
        bytes_fetched=0 if source is None else source.bytes_fetched,
        share=share,
    )


def _refuse_change(listed: SourceFile, opened: SourceFile) -> None:
    """Compare by the stronger checksum that both know; lists of sources may lack one."""
    if opened.etag and listed.etag:
        same = opaque(opened.etag) == opaque(listed.etag)
    else:
        same = opened.last_modified == listed.last_modified
    if not same or opened.size != listed.size:
        raise StaleReferenceError(
            "the file changed after it was listed",
            do="Build again when it is no longer written to.",
            file=listed.url,
        )


class Prefetcher:
    """Opens files on servers before they are scanned; a context that closes those left over.

    Args:
        files: In the order in which they will be scanned.
        before: What opened files before, which are taken over.
    """

    def __init__(self, files: Iterable[SourceFile], before: Prefetcher | None = None) -> None:
        self._rest, self._before = iter(files), before
        self._opening: dict[str, Future[OpenedSource]] = {}

    def begin(self, files: Iterable[SourceFile]) -> None:
        """Begin to open files, as many as may be open at a time."""
        self._rest = iter(files)
        self._go_on()

    def take(self, url: str) -> Future[OpenedSource] | None:
        """Hand over a file that is opened, or about to be."""
        return self._opening.pop(url, None)

    def open(self, url: str) -> OpenedSource:
        """Return a file, opened. Raises as `open_source` does."""
        self._go_on()
        future = self.take(url)
        self._go_on()
        return open_source(url) if future is None else future.result()

    def _go_on(self) -> None:
        while len(self._opening) < AHEAD and (file := next(self._rest, None)) is not None:
            if not is_url(file.url) or file.url.startswith("file:") or file.url in self._opening:
                continue
            if self._before and (taken := self._before.take(file.url)) is not None:
                self._opening[file.url] = taken
                continue
            try:
                host = reach_for(file.url)[0].host
            except IcevirtError:  # `open` raises it in the file's turn
                continue
            work = carrying(open_source)
            self._opening[file.url] = HOSTS.submit(host, lambda work=work, url=file.url: work(url))  # type: ignore[misc]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._opening.values():
            if not future.cancel():
                future.add_done_callback(_close)
        self._opening.clear()


_BEFORE: ContextVar[Prefetcher | None] = ContextVar("_BEFORE", default=None)


@contextmanager
def opening_ahead() -> Iterator[Prefetcher]:
    """Yield what opens files before a scan in this thread begins, which takes them over."""
    with Prefetcher(()) as ahead:
        token = _BEFORE.set(ahead)
        try:
            yield ahead
        finally:
            _BEFORE.reset(token)


def prefetching(files: Iterable[SourceFile]) -> Prefetcher:
    """Return what opens the files of a scan."""
    return Prefetcher(files, _BEFORE.get())


def _close(future: Future[OpenedSource]) -> None:
    if future.exception() is None:
        future.result().close()


class Containment(Apart):
    """Scans files in children."""

    def __init__(self, options: ScannerOptions, limits: ScanLimits) -> None:
        super().__init__(limits)
        self._options = options

    def attempt(self, file: SourceFile, piece: tuple[int, int] | None = None) -> ScanOutcome:
        """Scan a file, or a share of it, in a child."""
        begin = time.perf_counter()
        try:
            return self.call(file.url, attempt_as, in_force(), file, self._options, piece)
        except (ScanCrashError, ScanTimeoutError, ScanMemoryError) as error:
            seconds = time.perf_counter() - begin
            return ScanOutcome(file=file, scanned=None, error=error, seconds=seconds)


def attempt_as(
    access: SourceAccess,
    file: SourceFile,
    options: ScannerOptions,
    piece: tuple[int, int] | None = None,
) -> ScanOutcome:
    """Scan a file with the access of the parent."""
    with grant_access(access):
        return attempt(file, options, piece=piece)
