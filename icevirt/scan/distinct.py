"""Check that each node and dimension of a scanned file has its own valid Zarr path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from icevirt.archive.scanned import ScannedFile
from icevirt.errors import InvalidInputError, ScanError, UnsupportedError
from icevirt.model import paths


def check_paths(scanned: ScannedFile) -> None:
    """Refuse a description in which two nodes share a path, or a path is none for Zarr.

    Raises:
        UnsupportedError: Names in the file become one name in Zarr.
        ScanError: The scanner describes a hierarchy that cannot be.
    """
    url, arrays = scanned.source.url, {array.path for array in scanned.arrays}
    found = Counter([*(group.path for group in scanned.groups), *(a.path for a in scanned.arrays)])
    if twice := sorted(path for path, count in found.items() if count > 1):
        raise UnsupportedError(
            "several variables or groups would have the same name in Zarr",
            do=f"Leave the variables out: drop_variables={twice}; or rename them in the file.",
            file=url,
            paths=twice,
        )
    for path in found:
        try:
            fits = paths.creatable(path) == path and paths.parent(path) not in arrays - {path}
        except InvalidInputError as error:
            raise _unfit(scanned, path, str(error)) from error
        if not fits:
            raise _unfit(scanned, path, "it is not canonical, or lies below an array")


def check_dimensions(found: Iterable[str], url: str) -> None:
    """Refuse dimensions whose names become one: their lengths and labels would be mixed up.

    Args:
        found: The path of each dimension, or its name where there are no groups.
        url: Of the file.

    Raises:
        UnsupportedError: There are some.
    """
    if twice := sorted(name for name, count in Counter(found).items() if count > 1):
        raise UnsupportedError(
            "several dimensions would have the same name in Zarr",
            do="Rename one of them in the file.",
            file=url,
            dimensions=twice,
        )


def _unfit(scanned: ScannedFile, path: str, cause: str) -> ScanError:
    return ScanError(
        "the scanner returned a node that Zarr cannot store",
        do="Fix the scanner: icevirt.model.paths.node_name escapes names.",
        file=scanned.source.url,
        scanner=scanned.scanner,
        path=path,
        cause=cause,
    )
