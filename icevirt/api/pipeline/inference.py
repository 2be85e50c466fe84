"""Infer the dimensions to concatenate along: those whose labels differ between files.

It compares two files, the first and the last of the sources. The inference must hold for all files
or it is refused: the plan places every file by its coordinates, and compares whatever lacks the
dimension.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from icevirt.api.sources.inputs import Inputs
from icevirt.archive.scanned import ScannedArray, SourceFile
from icevirt.archive.shares import ScanLimits
from icevirt.errors import IcevirtError
from icevirt.model import paths
from icevirt.objects.source_access import in_force
from icevirt.planning.combine.options import COORDINATES
from icevirt.scan.contract import ScannerOptions
from icevirt.tasks.scan_subprocess import Apart, attempt_as


def with_dimensions(
    options: ScannerOptions, inputs: Inputs, *, limits: ScanLimits, leave: Collection[str] = ()
) -> ScannerOptions:
    """Return the options with the dimensions whose coordinate differs between two of the files.

    Args:
        options: Of the scan, which name no dimension.
        inputs: The sources; they are listed, unless their dimensions cannot be inferred.
        limits: Of the scan of a file.
        leave: Dimensions whose coordinates may differ; where all may, nothing is inferred.
    """
    if COORDINATES in leave:
        return options
    try:
        files = inputs.look()
        if len(files) < 2:
            return options
        with Apart(limits) as apart:
            first, last = (_labels(files[at], options, apart) for at in (0, -1))
    except IcevirtError:
        return options  # the listing and the scan of all files say what is wrong with these
    found = tuple(
        name for name in first if name in last and name not in leave and first[name] != last[name]
    )
    # one name is kept as it is, as where a person gives it
    return replace(options, concat_dim=found if len(found) > 1 else next(iter(found), None))


def _labels(file: SourceFile, options: ScannerOptions, apart: Apart) -> dict[str, object]:
    """Return the labels of all dimensions of a file that have some, in the order of the file."""
    found = _coordinates(_arrays(file, options, apart))
    if any(array.labels is None for array in found):  # a file of references, or a large one
        names = tuple(paths.name(array.path) for array in found)
        found = _coordinates(_arrays(file, replace(options, concat_dim=names), apart))
    labelled = ((array, array if array.labels is not None else array.beside) for array in found)
    return {
        paths.name(array.path): (told.labels, told.labels_dtype, _dates(array))
        for array, told in labelled
        if told is not None and told.labels is not None
    }


def _arrays(file: SourceFile, options: ScannerOptions, apart: Apart) -> tuple[ScannedArray, ...]:
    """Scan a file; one that cannot be scanned has no arrays, and is a bad file soon."""
    outcome = apart.call(file.url, attempt_as, in_force(), file, options)
    return () if outcome.scanned is None else outcome.scanned.arrays


def _coordinates(arrays: tuple[ScannedArray, ...]) -> list[ScannedArray]:
    return [array for array in arrays if array.dimension_names == (paths.name(array.path),)]


def _dates(array: ScannedArray) -> tuple[object, ...]:
    """Return what a time's numbers mean."""
    return tuple(array.attributes.values.get(name) for name in ("units", "calendar"))
