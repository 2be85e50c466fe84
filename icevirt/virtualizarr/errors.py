"""Raise what a scan raises as errors that programs written for VirtualiZarr catch, too.

VirtualiZarr's parsers raise ``ValueError``, ``NotImplementedError`` and ``FileNotFoundError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from icevirt.errors import IcevirtError, NotFoundError, ScanError, UnsupportedError
from icevirt.remedy_notation import write_remedy


class ParseError(ScanError, ValueError):
    """A file cannot be parsed: it is damaged, of another kind, or has no such group."""


class UnparsableError(UnsupportedError, NotImplementedError):
    """A file is sound, but holds something that has no exact representation."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """There is no such file."""


_TWINS: tuple[tuple[type[IcevirtError], type[IcevirtError]], ...] = (
    (UnsupportedError, UnparsableError),
    (ScanError, ParseError),
    (NotFoundError, MissingFileError),
)


_OTHERWISE = (
    "To store object references as paths, parse the file with"
    " virtualizarr.parsers.HDFParser(links_and_references=True)."
)


@contextmanager
def caught_by_virtualizarr() -> Iterator[None]:
    """Raise the errors of a scan as the classes of this module."""
    try:
        yield
    except IcevirtError as error:
        twin = next((twin for kind, twin in _TWINS if isinstance(error, kind)), None)
        if twin is None:
            raise
        do = error.do
        if twin is UnparsableError and "variables" in error.facts:  # of types that zarr lacks
            do = write_remedy(do, " ", _OTHERWISE)
        raise twin(error.what, do=do, fixes=error.fixes, **error.facts) from error
