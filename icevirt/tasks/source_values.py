"""Read values of unchanged source files again, for chunks that are stored.

The format's own library reads each box, as in `icevirt.verify`. A file is compared with what the
scan recorded when it is opened, and again when it is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import FileColumns
from icevirt.archive.limits import DEFAULT, ScanLimits
from icevirt.archive.scanned import SourceFile
from icevirt.errors import (
    CombineError,
    IcevirtError,
    NotFoundError,
    ScanMemoryError,
    SourcesChangedError,
    StaleReferenceError,
    UnsupportedError,
)
from icevirt.objects.opened import OpenedSource
from icevirt.objects.source import open_source
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.scan.contract import Oracle
from icevirt.scan.registry import oracle_for
from icevirt.tasks.limit_enforcement import in_worker
from icevirt.tasks.scan_subprocess import Apart

_OPEN = 8  # files at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How source files are read."""

    group: str = "/"  # of the files, which is the root of paths
    limits: ScanLimits = DEFAULT  # of each box
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files


@dataclass(frozen=True, slots=True)
class _Opened:
    source: OpenedSource
    oracle: Oracle


class _Sources:
    """Files that are open, as they were scanned; the one used last at the end."""

    def __init__(self) -> None:
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def read(self, known: SourceFile, path: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the values of a box."""
        if known.url not in self._opened:
            while len(self._opened) >= _OPEN:
                _close(self._opened.popitem(last=False)[1])
            self._opened[known.url] = _fresh(known, path)
        self._opened.move_to_end(known.url)
        opened = self._opened[known.url]
        values = opened.oracle.read_values(opened.source, path, region)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def close(self, *, check: bool) -> None:
        """Close all files, and look whether they are what was opened."""
        while self._opened:
            opened = self._opened.popitem(last=False)[1]
            if check:
                _close(opened)
            else:
                opened.source.close()


def _fresh(known: SourceFile, path: str) -> _Opened:
    try:
        source = open_source(known.url)
    except NotFoundError as error:
        raise _changed(known.url) from error
    try:
        _check(known, source.file)
        return _Opened(source, oracle_for(source))
    except UnsupportedError as error:
        source.close()
        raise CombineError(
            f"chunks of {path} must be stored, but its values cannot be read: {error}",
            do="Leave the file out, or build the files that differ into another group.",
            variable=path,
            file=known.url,
        ) from error
    except BaseException:
        source.close()
        raise


def _check(known: SourceFile, found: SourceFile) -> None:
    if known.etag and found.etag:
        same = known.etag == found.etag
    else:
        seconds = {known.last_modified_seconds, found.last_modified_seconds}
        same = 0 in seconds or len(seconds) == 1
    if not same or known.size != found.size:
        raise _changed(known.url)


def _close(opened: _Opened) -> None:
    try:
        opened.source.check_unchanged()
    except StaleReferenceError as error:
        raise _changed(opened.source.file.url) from error
    finally:
        opened.source.close()


_here = _Sources()  # of a child, which serves one `SourceValues`


def read_apart(
    known: SourceFile, access: SourceAccess, path: str, region: tuple[slice, ...]
) -> NDArray[Any] | IcevirtError:
    """Read a box in a child; an error is the answer."""
    try:
        with granted(access):
            return _here.read(known, path, region)
    except IcevirtError as error:
        return error
    except MemoryError:
        return _hungry(known.url, path)


def close_apart(access: SourceAccess) -> IcevirtError | None:
    """Close the files that a child opened; one that changed is the answer."""
    try:
        with granted(access):
            _here.close(check=True)
    except IcevirtError as error:
        return error
    return None


class SourceValues:
    """Reads boxes of variables of some files; a context that closes them.

    A Spark worker reads them in a child process, where a library that crashes or hangs on damaged
    values costs an error that names the file.
    """

    def __init__(self, files: FileColumns, how: Reading) -> None:
        """Take the files as they were scanned."""
        self._files = files
        self._how = how
        self._sources = _Sources()
        self._apart = Apart(how.limits) if in_worker() else None
        self._used = False

    def read(self, file: int, path: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the undecoded values of a box.

        Args:
            file: Row of the file.
            path: Of the variable, below the group.
            region: A slice with start and stop for each of its dimensions.

        Raises:
            SourcesChangedError: The file is not what was scanned.
            CombineError: There is no library to read it with.
            ScanError: The library cannot read the values, or takes too long or too much memory.
        """
        known = SourceFile(
            url=self._files.url[file],
            size=int(self._files.size[file]),
            etag=self._files.etag[file],
            last_modified=int(self._files.last_modified[file]),
        )
        inside = self._how.group.rstrip("/") + path
        if self._apart is None:
            return self._sources.read(known, inside, region)
        self._used = True
        found = self._apart.call(known.url, read_apart, known, self._how.access, inside, region)
        if isinstance(found, IcevirtError):
            raise found
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._apart is None:
            self._sources.close(check=kind is None)
            return
        with self._apart as apart:
            if kind is None and self._used:
                changed = apart.call("", close_apart, self._how.access)
                if changed is not None:
                    raise changed


def _hungry(url: str, path: str) -> ScanMemoryError:
    return ScanMemoryError(
        "the values of a file need more memory than is available",
        do="Raise file_memory (--file-memory), or leave it out.",
        file=url,
        variable=path,
    )


def _changed(url: str) -> SourcesChangedError:
    return SourcesChangedError(
        "a file changed since the scan",
        do="Build again when it no longer changes, or with rescan_changed=True "
        "(--rescan-changed); nothing was committed.",
        files=[url],
    )


def checked(values: NDArray[Any], dtype: np.dtype[Any], *, path: str, url: str) -> NDArray[Any]:
    """Return the values if they have the type that the scan found. Raises ``CombineError``."""
    if values.dtype != dtype:
        raise CombineError(
            f"values of {path} are read as {values.dtype}, not as {dtype}",
            do=f"Leave the variable out with drop_variables=[{path!r}].",
            variable=path,
            file=url,
        )
    return values
