"""Open an HDF5 file from a byte source, and explain libhdf5's errors.

Files are opened without file locks (archives are often read-only mounts) and closed with everything
that was opened through them. External links are never followed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import h5py
from h5py import h5f, h5p

from icevirt.errors import IcevirtError, ScanError, UnsupportedError
from icevirt.scan.contract import ByteSource
from icevirt_scanners.hdf5.plugins import no_plugins

# what h5py raises for damage somewhere inside a file
_TOLD = {
    "truncated": ("the file is truncated", "Fetch it again, or leave it out."),
    "already open for": (
        "the file was not closed by its writer",
        "Wait until its writer has finished, or mark it as closed with `h5clear -s`.",
    ),
    "close degree": (
        "the source of a virtual dataset is open in this process",
        "Close it first, or pass file_timeout to scan in a separate process.",
    ),
    "": ("the file is damaged", "Fetch it again, or leave it out."),
}
_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, EOFError)


class HeldFile:
    """A file that libhdf5 opens for reading when it is first asked for.

    ``again``: libhdf5 itself may open it as well, as the source of a virtual dataset.
    """

    __slots__ = ("_again", "_fid", "_source")

    def __init__(self, source: ByteSource, *, again: bool = False) -> None:
        self._source, self._again = source, again
        self._fid: h5f.FileID | None = None

    @property
    def fid(self) -> h5f.FileID:
        """The open file. Raises ``ScanError`` where libhdf5 cannot open it."""
        if self._fid is None:
            source = self._source
            with explained(source.file.url):
                if source.local_path is None:
                    self._fid = h5py.File(RangeReader(source), "r").id
                else:
                    access = _access(strong=not self._again)
                    self._fid = h5f.open(source.local_path.encode(), h5f.ACC_RDONLY, access)
        return self._fid

    def close(self) -> None:
        """Close the file and all that was opened through it."""
        if self._fid is not None:
            self._fid.close()


@contextmanager
def held(source: ByteSource, *, again: bool = False) -> Iterator[HeldFile]:
    """Yield a file that is opened when it is first asked for, and closed in the end."""
    with no_plugins():
        file = HeldFile(source, again=again)
        try:
            yield file
        finally:
            file.close()


@contextmanager
def opened(source: ByteSource, *, again: bool = False) -> Iterator[h5f.FileID]:
    """Open ``source`` for reading, ``again`` as for `HeldFile`.

    Raises:
        ScanError: libhdf5 cannot open it.
    """
    with held(source, again=again) as file:
        yield file.fid


@cache
def _access(*, strong: bool) -> h5p.PropFAID:
    access = h5p.create(h5p.FILE_ACCESS)
    if strong:
        access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_file_locking(False, True)
    return access


class explained:  # noqa: N801  # used like a function; a generator would cost more than it does
    """Turn what h5py raises into a `ScanError` that names the file and the variable."""

    __slots__ = ("_facts",)

    def __init__(self, url: str, variable: str | None = None) -> None:
        self._facts = {"file": url} if variable is None else {"file": url, "variable": variable}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, _DAMAGE) or isinstance(error, IcevirtError):
            return
        if isinstance(error, RecursionError):
            raise UnsupportedError(
                "the file is nested deeper than Python's recursion limit",
                do="Leave the variable out with drop_variables.",
                **self._facts,
            ) from error
        cause = str(error).strip("'\"") or type(error).__name__
        what, do = next((told for word, told in _TOLD.items() if word in cause), _TOLD[""])
        raise ScanError(what, do=do, **self._facts, cause=cause) from error


class RangeReader(io.RawIOBase):
    """A byte source as the seekable file that h5py's file-object driver wants."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``offset`` from the start, the current place or the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.file.size}
        self._at = base[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the current place."""
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` from the current place; return how many bytes there were."""
        data = self._source.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
