"""Open files on servers before they are scanned, a few at a time.

A scan is one thread, because libhdf5 is; it waits for answers of servers. So the beginnings of the
next files, which are all of a small file, are requested in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from icevirt.archive.scanned import SourceFile
from icevirt.connect.urls import is_url
from icevirt.errors import IcevirtError
from icevirt.objects.http.connections import HOSTS
from icevirt.objects.opened import OpenedSource
from icevirt.objects.remote_source import reach_for
from icevirt.objects.source import open_source
from icevirt.objects.source_access import carrying

AHEAD = 8
"""Files that are opened or waited for at a time."""


class Prefetcher:
    """The files of a task in the order in which they will be scanned; closes what nobody took."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self._rest = iter(files)
        self._opening: dict[str, Future[OpenedSource]] = {}

    def open(self, url: str) -> OpenedSource:
        """Return a file, opened. Raises as `open_source` does."""
        self._go_on()
        future = self._opening.pop(url, None)
        self._go_on()
        return open_source(url) if future is None else future.result()

    def _go_on(self) -> None:
        while len(self._opening) < AHEAD and (file := next(self._rest, None)) is not None:
            if not is_url(file.url) or file.url.startswith("file:") or file.url in self._opening:
                continue
            try:
                host = reach_for(file.url)[0].host
            except IcevirtError:  # whoever asks for the file is told
                continue
            work = carrying(open_source)
            self._opening[file.url] = HOSTS.submit(host, lambda work=work, url=file.url: work(url))  # type: ignore[misc]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for future in self._opening.values():
            if not future.cancel():
                future.add_done_callback(_close)
        self._opening.clear()


def _close(future: Future[OpenedSource]) -> None:
    if future.exception() is None:
        future.result().close()
