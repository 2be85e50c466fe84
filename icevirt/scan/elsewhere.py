"""Resolve the files that a scanned file refers to, check access to them, and read them.

A file of references can name any path. It may point into its own directory and below, and to where
the options allow; everything else is refused before it is opened, symbolic links followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Self
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import PROVIDERS, Address, file_url, is_url, local_path, spell
from icevirt.errors import (
    InvalidInputError,
    LocationError,
    NotFoundError,
    ScanError,
    StaleReferenceError,
    UnsupportedError,
)
from icevirt.model.chunks import Locations
from icevirt.model.strings import Strings
from icevirt.objects.locations import check_remote
from icevirt.objects.source import LocalSource, OpenedSource, RemoteSource, local_file
from icevirt.objects.source_access import carrying
from icevirt.objects.source_lists.listing import find_changes
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.scan.contract import ByteSource
from icevirt.threads import Threads

_FILE = "file://"
_OPEN = 16  # files kept open
_SHOWN = 5  # names in a message
_SCHEME = b"://"
# behind the schemes of URLs: perhaps they lead elsewhere
_UNUSUAL = re.compile(rb"[^A-Za-z0-9._/~:=+,-]|/[./]|::")


type Opening = Callable[[], OpenedSource | None]
"""Opens a file; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Files that were referred to."""

    locations: Locations
    size: NDArray[np.int64]  # (m,) bytes, -1 where it is not known
    unverifiable: frozenset[str]  # URLs of those without a checksum


class Elsewhere:
    """The files beside one that is scanned; a context that closes those it opened.

    Args:
        source: The scanned file.
        allowed: Directories and URL prefixes, beside the file's own directory.
        reads_servers: Whether values are read from files on servers, too.
    """

    def __init__(
        self, source: ByteSource, allowed: Iterable[str], *, reads_servers: bool = False
    ) -> None:
        self._source = source
        self._own = source.file
        own = self._own.url.rpartition("/")[0]
        self._prefixes = [own.rstrip("/") + "/", *prefixes_of(allowed)]
        self._reads_servers = reads_servers
        self._opened = lru_cache(_OPEN)(_open_target)
        # whatever its URL, it is not read from this disk, and neither are those beside it
        self.is_far = source.local_path is None

    def targets(self, names: Iterable[str]) -> Targets:
        """Return the files of the given names: URLs, or absolute paths of local files.

        Raises:
            UnsupportedError: One is not allowed, or is no such name.
            ScanError: One is missing.
        """
        files = [self._file(name) for name in names]
        return Targets(
            locations=Locations(
                url=Strings.of(file.url for file in files),
                etag=Strings.of(file.etag for file in files),
                last_modified=np.array([f.last_modified_seconds for f in files], np.uint32),
            ),
            size=np.array([file.size for file in files], np.int64),
            unverifiable=frozenset(
                file.url for file in files if not file.last_modified and not file.etag
            ),
        )

    def read(self, url: str, offset: int, length: int) -> bytes:
        """Return bytes of a file that `targets` returned, fewer only at its end.

        Raises:
            UnsupportedError: It lies on a server, is not the scanned one, and may not be read.
            StorageError: It cannot be read.
        """
        if url == self._own.url:
            return self._source.read(offset, length)
        if not (url.startswith(_FILE) or self._reads_servers):
            raise UnsupportedError(
                "values of a remote file are needed while scanning",
                do="Scan it without concat_dim, or leave the variable out with drop_variables.",
                file=self._own.url,
                target=url,
            )
        return self._opened(url).read(offset, length)

    def refuse_outside(self, urls: Strings, known: Iterable[str] = ()) -> None:
        """Check where many locations lead, those of plain names on servers without a look at each.

        Args:
            urls: The locations.
            known: Prefixes of which one is proposed where a location below it is refused, but for
                a whole disk: what was scanned chose them.

        Raises:
            UnsupportedError: One is not allowed.
            ScanError: One on this machine is missing.
        """
        inside = np.zeros(len(urls), np.bool_)
        for prefix in self._prefixes:
            inside |= urls.begin_with(prefix.encode())
        if not inside.all():
            url = urls[int(np.argmin(inside))]
            self._check(
                url,
                url,
                next((p for p in known if url.startswith(p) and p.rstrip("/") != "file:"), ""),
            )
        local = urls.begin_with(_FILE.encode())
        for url in urls[np.flatnonzero(local)]:  # each may be a symbolic link
            self._file(local_path(url))
        far = urls[np.flatnonzero(~local)]
        raw = far.data.tobytes()
        if raw.count(_SCHEME) != len(far) or _UNUSUAL.search(raw.replace(_SCHEME, b"")):
            for url in far:
                self._file(url)

    def beside(self, name: str) -> str:
        """Return the path of a name in the directory of the scanned file.

        Raises:
            UnsupportedError: That is not on local disk.
        """
        path = self._source.local_path
        if path is None:
            raise self._refusal(
                "references of a remote file to other files", name, "Copy them to local disk."
            )
        return str(Path(path).parent / name)

    def source(self, name: str) -> OpenedSource | None:
        """Open a file of the given name, an absolute path or a URL; None where there is none.

        Raises:
            UnsupportedError: It is not allowed.
            ScanError: It is no regular file, or cannot be read.
        """
        try:
            name = self._spell(name)
            if is_url(name) and (not name.startswith(_FILE) or self.is_far):
                self._check(name, name)
                return RemoteSource(name)
            url = file_url(name.removeprefix(_FILE))  # of what a symbolic link leads to
            if url != self._own.url:
                self._check(url, name)
            return LocalSource(local_path(url))
        except NotFoundError:
            return None

    def sources(self, names: Sequence[str]) -> list[Opening]:
        """Return what opens each of some files as `source` does; servers are asked at once."""
        if not self.is_far:
            return [partial(self.source, name) for name in names]
        with Threads(len(names), "icevirt-beside") as pool:
            return [pool.submit(carrying(self.source), name).result for name in names]

    def readable(self, locations: Locations) -> bool:
        """Say whether `read` can read all of these."""
        return self._reads_servers or all(
            url.startswith(_FILE) or url == self._own.url for url in locations.url
        )

    def close(self) -> None:
        """Close what was opened."""
        self._opened.cache_clear()  # files close when nothing refers to them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------

    def _file(self, name: str) -> SourceFile:
        if name == self._own.url:
            return self._own
        if "::" in name:
            raise self._refusal("chained file systems", name, "Write plain URLs into the file.")
        name = self._spell(name)
        path = name.removeprefix(_FILE)
        if not is_url(name) or path != name:
            return self._local(path, name)
        if any(unquote(part) in {".", ".."} for part in name.split("/")):
            raise self._refusal("a URL with relative segments", name, "Write it without them.")
        try:
            check_remote(name)
        except LocationError as error:
            raise self._refusal(error.what, name, error.do) from error
        self._check(name, name)
        return SourceFile(url=name, size=-1)

    def _spell(self, name: str) -> str:
        try:
            return spell(name)
        except InvalidInputError as error:
            raise self._refusal(error.what, name, "Write other URLs into the file.") from error

    def _local(self, path: str, name: str) -> SourceFile:
        if "\0" in path:
            raise self._refusal("not a file name", name, "Correct the references.")
        if not os.path.isabs(path):
            what = "a relative path without a known base"
            raise self._refusal(what, name, "Write absolute paths into the file.")
        url = file_url(path)  # of what a symbolic link leads to
        if url == self._own.url:
            return self._own
        self._check(url, name)
        cause: str | None = "not a regular file"
        try:
            facts = os.stat(local_path(url))
        except OSError as error:
            cause = error.strerror
        else:
            cause = None if stat.S_ISREG(facts.st_mode) else cause
        if cause is not None:
            raise ScanError(
                "a referenced file cannot be read",
                do="Restore it, or leave the file of references out.",
                file=self._own.url,
                target=name,
                cause=cause,
            )
        return local_file(url, local_path(url), facts)

    def _check(self, url: str, name: str, proposed: str = "") -> None:
        if any(url.startswith(prefix) for prefix in self._prefixes):
            return
        folder = proposed or url.rsplit("/", 1)[0] + "/"
        raise self._refusal(
            "references to paths outside the file's own directory",
            name,
            write_remedy(
                "If you trust the file, pass ",
                write_code(f"allow_references_to=[{folder!r}]", f"--allow-references-to {folder}"),
                ".",
            ),
        )

    def _refusal(self, what: str, name: str, do: str) -> UnsupportedError:
        return UnsupportedError(what, do=do, file=self._own.url, target=name)


def _open_target(url: str) -> OpenedSource:
    if url.startswith(_FILE):
        return LocalSource(local_path(url))
    found = RemoteSource(url)
    found.read_sparsely()
    return found


def beside(url: str, name: str) -> str | None:
    """Return the URL of a name in the folder of a remote file, None for one that leaves it."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in {"", ".", ".."} for part in parts):
        return None
    if url.partition("://")[0].lower() not in PROVIDERS:  # a store's own spelling
        return f"{url.rpartition('/')[0]}/{name}"
    own = Address.parse(url)
    folder = own.key.rpartition("/")[0]
    return own._replace(key=f"{folder}/{name}".lstrip("/")).url


def refuse_changed(files: Iterable[SourceFile], *, seen_from: str) -> None:
    """Look once more at files that a scan looked into.

    Raises:
        StaleReferenceError: One changed since, or is gone.
    """
    if changed := find_changes(files):
        raise StaleReferenceError(
            "a file that the scanned file refers to changed during the scan",
            do="Scan it again when it no longer changes.",
            file=seen_from,
            changed=sorted(changed)[:_SHOWN],
        )


def prefixes_of(allowed: Iterable[str]) -> Iterator[str]:
    """Yield directories and URL prefixes as prefixes of URLs, which end in a slash."""
    for text in map(spell, allowed):
        path = text.removeprefix(_FILE)
        prefix = text if is_url(text) and path == text else file_url(path)
        yield prefix.rstrip("/") + "/"
