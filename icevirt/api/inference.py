"""Which dimensions files follow one another along, where nobody says so: those whose labels differ.

Two files are looked at, the first and the last of the sources. What is inferred from them holds for
all or is refused: the plan places every file by its coordinates, and compares whatever lacks the
dimension.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from icevirt.api.inputs import Inputs, Sources
from icevirt.api.request import FILE_TIMEOUT
from icevirt.api.scan import scan_file
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import IcevirtError
from icevirt.logic.tolerance import COORDINATES
from icevirt.model import paths
from icevirt.objects.grants import SourceAccess, granted


def inferred_dimensions(
    sources: Sources | None,
    *,
    asset: str | None,
    access: Mapping[str, Any] | None,
    leave: Collection[str] = (),
    **options: Any,
) -> tuple[str, ...]:
    """Return the dimensions whose coordinate differs between the first file and the last.

    Args:
        sources: Of the build. From stdin and nested lists nothing is inferred.
        asset: Of STAC items.
        access: To the servers of files.
        leave: Dimensions whose coordinates may differ; where all may, nothing is inferred.
        options: Of `scan_file`.
    """
    if not _is_plain(sources) or COORDINATES in leave:
        return ()
    with granted(SourceAccess.of(access)):
        try:
            files = Inputs(sources, asset=asset).files()  # type: ignore[arg-type]  # no None
            if len(files) < 2:
                return ()
            ends = [
                _labels(files[at].url, access=access, file_timeout=FILE_TIMEOUT, **options)
                for at in (0, -1)
            ]
        except IcevirtError:
            return ()  # the listing and the scan of all files say what is wrong with these
    first, last = ends
    return tuple(
        name for name in first if name in last and name not in leave and first[name] != last[name]
    )


def _is_plain(sources: object) -> bool:
    if isinstance(sources, str | os.PathLike):
        return sources != "-"
    return isinstance(sources, list | tuple) and all(
        isinstance(each, str | os.PathLike) and each != "-" for each in sources
    )


def _labels(url: str, **options: Any) -> dict[str, object]:
    """Return the labels of all dimensions of a file that have some, in the order of the file."""
    scanned = scan_file(url, **options)
    names = [paths.name(array.path) for array in _coordinates(scanned)]
    if not names:
        return {}
    again = scan_file(url, concat_dim=names, **options)
    return {
        paths.name(array.path): (array.labels, array.labels_dtype, _dates(array))
        for array in _coordinates(again)
        if array.labels is not None
    }


def _coordinates(scanned: ScannedFile) -> list[ScannedArray]:
    return [array for array in scanned.arrays if array.dimension_names == (paths.name(array.path),)]


def _dates(array: ScannedArray) -> tuple[object, ...]:
    """Return what a time's numbers mean."""
    return tuple(array.attributes.values.get(name) for name in ("units", "calendar"))
