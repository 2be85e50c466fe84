"""Values of source files for chunks that are stored: read once more, from files that are unchanged.

Each box is read by the format's own library, as `icevirt.verify` reads it. A file is held against
what the scan saw of it when it is opened, and once more when it is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import FileColumns
from icevirt.errors import (
    CombineError,
    NotFoundError,
    ScanMemoryError,
    SourcesChangedError,
    StaleReferenceError,
    UnsupportedError,
)
from icevirt.objects.grants import SourceAccess
from icevirt.objects.opened import OpenedSource
from icevirt.objects.source import open_source
from icevirt.scan.oracle import Oracle, oracle_for
from icevirt.spark.limits import DEFAULT, Limits
from icevirt.spark.watch import held_to

_OPEN = 8  # files at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How source files are read."""

    group: str = "/"  # of the files, which is the root of paths
    limits: Limits = DEFAULT  # of each box
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files


@dataclass(frozen=True, slots=True)
class _Opened:
    source: OpenedSource
    oracle: Oracle


class SourceValues:
    """Reads boxes of variables of some files; a context that closes them."""

    def __init__(self, files: FileColumns, how: Reading) -> None:
        """Take the files as they were scanned."""
        self._files = files
        self._how = how
        self._opened: OrderedDict[int, _Opened] = OrderedDict()  # the one used last at the end

    def read(self, file: int, path: str, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return the undecoded values of a box.

        Args:
            file: Row of the file.
            path: Of the variable, below the group.
            region: A slice with start and stop for each of its dimensions.

        Raises:
            SourcesChangedError: The file is not what was scanned.
            ScanMemoryError: The values take more memory than they may.
            CombineError: There is no library to read it with.
            ScanError: The library cannot read the values.
        """
        opened = self._open(file, path)
        inside = self._how.group.rstrip("/") + path
        try:
            with held_to(self._how.limits):
                values = opened.oracle.read_values(opened.source, inside, region)
        except MemoryError as error:
            raise ScanMemoryError(
                "the values of a file need more memory than there is",
                do="Give it more with file_memory, or leave it out.",
                file=self._files.url[file],
                variable=path,
            ) from error
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def _open(self, file: int, path: str) -> _Opened:
        if file not in self._opened:
            while len(self._opened) >= _OPEN:
                self._close(self._opened.popitem(last=False)[1])
            self._opened[file] = self._fresh(file, path)
        self._opened.move_to_end(file)
        return self._opened[file]

    def _fresh(self, file: int, path: str) -> _Opened:
        url = self._files.url[file]
        try:
            source = open_source(url)
        except NotFoundError as error:
            raise _changed(url) from error
        try:
            self._check(file, source)
            return _Opened(source, oracle_for(source))
        except UnsupportedError as error:
            source.close()
            raise CombineError(
                f"chunks of {path} must be stored, and nothing reads its values: {error}",
                do="Leave the file out, or build the files that differ into another group.",
                variable=path,
                file=url,
            ) from error
        except BaseException:
            source.close()
            raise

    def _check(self, file: int, source: OpenedSource) -> None:
        known, found = self._files, source.file
        etag = known.etag[file]
        if etag and found.etag:
            same = etag == found.etag
        else:
            before = int(known.last_modified[file]), found.last_modified
            same = 0 in before or len({-(-each // 1_000_000_000) for each in before}) == 1
        if not same or int(known.size[file]) != found.size:
            raise _changed(known.url[file])

    def _close(self, opened: _Opened) -> None:
        try:
            opened.source.check_unchanged()
        except StaleReferenceError as error:
            raise _changed(opened.source.file.url) from error
        finally:
            opened.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._opened:
            opened = self._opened.popitem(last=False)[1]
            if kind is None:
                self._close(opened)
            else:
                opened.source.close()


def _changed(url: str) -> SourcesChangedError:
    return SourcesChangedError(
        "a file changed since the scan",
        do="Build again when nobody writes to it, or with rescan_changed=True (--rescan-changed);"
        " nothing was committed.",
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
