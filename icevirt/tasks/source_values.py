"""Read values of unchanged source files again, for chunks that are stored.

The format's own library reads each box, as in `icevirt.verify`. A file is compared with what the
scan recorded when it is opened, and again when it is closed.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, FileColumns
from icevirt.archive.scanned import DEFAULT, ScanLimits
from icevirt.archive.sources import SourceFile
from icevirt.errors import (
    CombineError,
    NotFoundError,
    ScanMemoryError,
    SourcesChangedError,
    StaleReferenceError,
    UnsupportedError,
)
from icevirt.objects.opening import open_source
from icevirt.objects.source import OpenedSource
from icevirt.objects.source_access import SourceAccess, grant_access, in_force
from icevirt.planning.equality import first_difference
from icevirt.planning.remedies import scan_fix
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.scan.contract import Oracle, ScannerOptions
from icevirt.scan.registry import oracle_for
from icevirt.tasks.forkserver import Apart, in_worker

_OPEN = 8  # files at a time
_AT_ONCE = 1 << 22  # values that are compared
_KEPT = 1 << 14  # values of a variable, at most, that stay in memory
_MOST = 1 << 24  # values that are looked at for the sake of a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How source files are read."""

    group: str = "/"  # of the files, which is the root of paths
    scanner: str = ""  # that was named for them; "" where their content decides
    limits: ScanLimits = DEFAULT  # of each box
    access: SourceAccess = field(default_factory=SourceAccess)  # to the servers of files

    @classmethod
    def of(cls, options: ScannerOptions, limits: ScanLimits) -> Reading:
        """Return how files are read again that were scanned so, with the access in force."""
        access = in_force()
        return cls(group=options.group, scanner=options.scanner, limits=limits, access=access)


type _Opened = tuple[OpenedSource, Oracle]


class _Sources:
    """Files that are open, as they were scanned; the one used last at the end."""

    def __init__(self) -> None:
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def read(
        self, known: SourceFile, path: str, region: tuple[slice, ...], scanner: str
    ) -> NDArray[Any]:
        """Return the values of a box of a file that a scanner described."""
        if known.url not in self._opened:
            while len(self._opened) >= _OPEN:
                _close(self._opened.popitem(last=False)[1][0])
            self._opened[known.url] = _open(known, path, scanner)
        self._opened.move_to_end(known.url)
        source, oracle = self._opened[known.url]
        values = oracle.read_values(source, path, region)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def close(self, *, check: bool) -> None:
        """Close all files, and look whether they are what was opened."""
        while self._opened:
            source, _ = self._opened.popitem(last=False)[1]
            _close(source) if check else source.close()


def _open(known: SourceFile, path: str, scanner: str) -> _Opened:
    try:
        source = open_source(known.url)
    except NotFoundError as error:
        raise _change_of(known.url) from error
    try:
        _refuse_change(known, source.file)
        return source, oracle_for(source, scanner)
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


def _refuse_change(known: SourceFile, found: SourceFile) -> None:
    if known.etag and found.etag:
        same = known.etag == found.etag
    else:
        seconds = {known.last_modified_seconds, found.last_modified_seconds}
        same = 0 in seconds or len(seconds) == 1
    if not same or known.size != found.size:
        raise _change_of(known.url)


def _close(source: OpenedSource) -> None:
    try:
        source.check_unchanged()
    except StaleReferenceError as error:
        raise _change_of(source.file.url) from error
    finally:
        source.close()


_here = _Sources()  # of a child, which serves one `SourceValues`


def read_apart(
    known: SourceFile, how: Reading, path: str, region: tuple[slice, ...]
) -> NDArray[Any]:
    """Read a box in a child."""
    try:
        with grant_access(how.access):
            return _here.read(known, path, region, how.scanner)
    except MemoryError:
        raise ScanMemoryError(
            "the values of a file need more memory than is available",
            do=write_remedy("Raise ", write_option("file_memory"), ", or leave it out."),
            file=known.url,
            variable=path,
        ) from None


def close_apart(access: SourceAccess) -> None:
    """Close the files that a child opened, and check that none changed."""
    with grant_access(access):
        _here.close(check=True)


class SourceValues:
    """Reads boxes of variables of some files; a context that closes them.

    Args:
        files: As they were scanned.
        how: To read them.
        is_apart: Whether a child process reads, where a library that crashes or hangs on damaged
            values costs an error that names the file. By default in Spark workers.
    """

    def __init__(self, files: FileColumns, how: Reading, *, is_apart: bool | None = None) -> None:
        self._files, self._how = files, how
        self._sources = _Sources()
        is_apart = in_worker() if is_apart is None else is_apart
        self._apart = Apart(how.limits) if is_apart else None
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
            return self._sources.read(known, inside, region, self._how.scanner)
        self._used = True
        return self._apart.call(known.url, read_apart, known, self._how, inside, region)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._apart is None:
            self._sources.close(check=kind is None)
            return
        with self._apart as apart:
            if kind is None and self._used:
                apart.call("", close_apart, self._how.access)


def _change_of(url: str) -> SourcesChangedError:
    return SourcesChangedError(
        "a file changed since the scan",
        do=write_remedy(
            "Build again when it no longer changes, or with ",
            write_code("rescan_changed=True", "--rescan-changed"),
            "; nothing was committed.",
        ),
        files=[url],
    )


def refuse_other_dtype(
    values: NDArray[Any], dtype: np.dtype[Any], *, path: str, url: str
) -> NDArray[Any]:
    """Return the values if they have the type that the scan found. Raises ``CombineError``."""
    if values.dtype != dtype:
        raise CombineError(
            f"values of {path} are read as {values.dtype}, not as {dtype}",
            fixes=[scan_fix(f"the dataset lacks {path}", drop_variables=[path])],
            variable=path,
            file=url,
        )
    return values


class Differences:
    """Finds the first difference between one variable's values in two files, for an error.

    What cannot be read says nothing: the files are refused all the same.

    Args:
        facts: Of the files.
        how: To read them.
        before: That of an earlier plan of the same files. Both share what either of them reads.
    """

    def __init__(
        self, facts: CatalogFacts, how: Reading, before: Differences | None = None
    ) -> None:
        self._facts = facts
        self.how = how
        self.compared: dict[tuple[Any, ...], dict[str, Any] | None] = {}
        self.held: dict[tuple[str, str], NDArray[Any] | None] = {}
        if before is not None and before.how == how:
            self.compared, self.held = before.compared, before.held

    def __call__(self, one: tuple[str, str], other: tuple[str, str]) -> dict[str, Any] | None:
        """Return index and values of the first difference, given URL and path in each file."""
        if (one, other) not in self.compared:
            try:
                with SourceValues(self._facts.files, self.how, is_apart=True) as source:
                    self.compared[one, other] = self._first(source, one, other)
            except Exception:  # noqa: BLE001 - whatever it is, it must not hide the refusal
                self.compared[one, other] = None
        return self.compared[one, other]

    def values(self, url: str, path: str) -> NDArray[Any] | None:
        """Return the values of a variable in a file; None where they are many, or unreadable."""
        if (url, path) in self.held:
            return self.held[url, path]
        values = self._values(url, path)
        if values is not None:
            values.setflags(write=False)  # plans share them
        if values is None or values.size <= _KEPT:
            self.held[url, path] = values
        return values

    def _values(self, url: str, path: str) -> NDArray[Any] | None:
        try:
            file, shape = self._find(url, path)
            if shape is None or math.prod(shape) > _AT_ONCE:
                return None
            with SourceValues(self._facts.files, self.how, is_apart=True) as source:
                return source.read(file, path, tuple(slice(0, length) for length in shape))
        except Exception:  # noqa: BLE001 - whatever it is, it must not hide the refusal
            return None

    def _first(self, source: SourceValues, *both: tuple[str, str]) -> dict[str, Any] | None:
        (one, shape), (other, same) = (self._find(*place) for place in both)
        if shape is None or shape != same:
            return None
        row = math.prod(shape[1:])
        step = max(1, _AT_ONCE // max(1, row))
        rest = tuple(slice(0, length) for length in shape[1:])
        for low in range(0, min(shape[0], _MOST // max(1, row) + 1) if shape else 1, step):
            region = (slice(low, min(low + step, shape[0])), *rest) if shape else ()
            left = source.read(one, both[0][1], region)
            right = source.read(other, both[1][1], region)
            if (found := first_difference(left, right)) is not None:
                if shape:
                    found["index"][0] += low
                return found
        return None

    def _find(self, url: str, path: str) -> tuple[int, tuple[int, ...] | None]:
        """Return the row of a file, and the shape of one of its variables, None without it."""
        file = next(row for row, each in enumerate(self._facts.files.url) if each == url)
        arrays = self._facts.arrays
        if path not in arrays.path.values:
            return file, None
        mine = (arrays.file == file) & (arrays.path.codes == arrays.path.values.index(path))
        shape = tuple(json.loads(arrays.shape[int(np.argmax(mine))])) if mine.any() else None
        return file, shape
