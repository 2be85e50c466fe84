"""Read files through the stores of VirtualiZarr's registry, and through nothing else.

The registry decides server and credentials. What the environment says is not looked at.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from icevirt.archive.sources import SourceFile
from icevirt.connect.library import ask
from icevirt.errors import InvalidInputError, NotFoundError, ObjectNotFoundError, ScanError
from icevirt.objects import answers
from icevirt.objects.answers import Check, Meta, ObjectBytes
from icevirt.objects.backends import Backend
from icevirt.objects.source import LocalSource, OpenedSource, RemoteSource
from icevirt.objects.source_access import SourceAccess


@dataclass(frozen=True, slots=True)
class RegistryAccess(SourceAccess):
    """Access to all files through a registry of stores.

    VirtualiZarr's manifests have no checksums, so a server may send none.
    """

    keeps_checksums: ClassVar[bool] = False
    registry: Any = None

    def way_to(self, url: str) -> tuple[Backend, str]:
        """Return the store of a URL, and the path in it.

        Raises:
            InvalidInputError: The registry has no store for it.
        """
        store, path = self.resolve(url)
        return StoreReach(store, url), path

    def resolve(self, url: str) -> tuple[Any, str]:
        """Return the store of a URL as it was registered, and the path in it.

        Raises:
            InvalidInputError: There is none.
        """
        try:
            store, path = self.registry.resolve(url)
        except ValueError as error:
            folder = url.rpartition("/")[0] + "/"
            raise InvalidInputError(
                "the registry has no store for a file",
                do=f"Register one: registry.register({folder!r}, store).",
                file=url,
            ) from error
        return store, path

    def open(self, url: str) -> OpenedSource:
        """Open a file: one that obstore reads on this machine directly.

        Raises:
            InvalidInputError: The registry has no store for it.
            NotFoundError: There is no such file.
            StorageError: The store refuses, or does not answer.
        """
        store, path = self.resolve(url)
        local = _local_path(store, path, url)
        return RemoteSource(url) if local is None else LocalSource(local)

    def facts(self, url: str) -> SourceFile:
        """Return what a reference records of a file: its length, and its etag or time.

        Raises:
            InvalidInputError: The registry has no store for it.
            NotFoundError: There is no such file.
            StorageError: The store refuses, or does not answer.
        """
        store, path = self.resolve(url)
        local = _local_path(store, path, url)
        if local is not None:
            with LocalSource(local) as source:
                return replace(source.file, url=url)
        try:
            meta = _meta(ask(url, lambda: store.head(path)))
        except ObjectNotFoundError as error:
            raise NotFoundError("no such file", do="Check the path.", file=url) from error
        is_weak = answers.is_weak(meta.etag)
        return SourceFile(
            url=url,
            size=meta.size or 0,
            etag="" if is_weak else meta.etag,
            last_modified=int(meta.last_modified or 0) * 1_000_000_000,
        )


def _local_path(store: Any, path: str, url: str) -> str | None:
    """Return where a local store of obstore has a file; None for other stores."""
    kind = type(store)
    if kind.__name__ != "LocalStore" or kind.__module__.partition(".")[0] != "obstore":
        return None
    try:
        meta = ask(url, lambda: store.head(path))
    except ObjectNotFoundError as error:
        rename = " VirtualiZarr does not find names that URLs encode: rename it." * ("%" in url)
        raise NotFoundError("no such file", do=f"Check the path.{rename}", file=url) from error
    found = Path(str(store.prefix or "/")) / meta["path"]
    try:
        is_same = os.stat(found).st_size == meta["size"]
    except OSError:
        is_same = False
    return str(found) if is_same else None


@dataclass(frozen=True, slots=True)
class StoreReach:
    """The files of one store of a registry, through the methods of obspec."""

    store: Any
    url: str  # of a file in it

    @property
    def host(self) -> str:
        """The limit of requests to this host counts."""
        return "/".join(self.url.split("/")[:3])

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of a file, fewer only at its end.

        Raises:
            ObjectNotFoundError: There is no such file.
            StorageError: The store refuses; or ``check`` raises it.
        """
        try:
            result = ask(self.url, lambda: self.store.get(key, options={"range": (begin, end)}))
        except ObjectNotFoundError:
            raise
        except Exception:
            meta = _meta(ask(self.url, lambda: self.store.head(key)))
            if begin < (meta.size or 0):
                raise
            return ObjectBytes(meta=meta, begin=begin, body=b"")  # the file ends before the range
        check(meta := _meta(result.meta))
        body = memoryview(ask(self.url, result.buffer))
        first, last = map(int, result.range)  # of stores that answer with more
        answers.exact_bytes(self.url, meta, first, last, body)
        return answers.exact_bytes(self.url, meta, begin, end, body[begin - first : end - first])


def _meta(found: Any) -> Meta:
    return Meta(
        size=found["size"],
        etag=found.get("e_tag") or "",
        last_modified=found["last_modified"].timestamp() or None,  # 1970: the server said nothing
    )


class ReaderSource(OpenedSource):
    """A file that a reader of VirtualiZarr's ``reader_factory`` reads.

    Args:
        url: Of the file.
        reader: Has ``read`` and ``seek``.
    """

    def __init__(self, url: str, reader: Any) -> None:
        self._reader, self._lock = reader, threading.Lock()
        self.file = SourceFile(url=url, size=int(reader.seek(0, os.SEEK_END)))

    @property
    def local_path(self) -> None:
        """None: only the reader knows where the file is."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file."""
        length = min(length, self.file.size - offset)
        if length <= 0:
            return b""
        with self._lock:
            self._reader.seek(offset)
            body = bytes(self._reader.read(length))
        if len(body) != length:
            raise ScanError(
                "the reader returned less of the file than there is",
                do="Leave out reader_factory, or report this to its author.",
                file=self.file.url,
                offset=offset,
                expected=length,
                found=len(body),
            )
        return body

    def check_unchanged(self) -> None:
        """Do nothing: a reader does not say when the file was modified."""

    def close(self) -> None:
        """Close the reader if it can be closed."""
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()
