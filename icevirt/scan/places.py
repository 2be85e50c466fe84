"""Note of variables where on earth their values are, as far as what is left out says so.

Files are compared by it, so that a grid mapping that is not selected is compared, too. Of one that
the file lacks, cannot describe, or that says nothing of a place, it is noted that nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

from icevirt.archive.array_layouts import LaidOutArrays, paths_of
from icevirt.archive.roles import resolve, words_of
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import UnsupportedError
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.planning.meaning.places import NAMING, only_places
from icevirt.scan.contract import ScannerOptions

_OF_FILE = "uuidOfHGrid"  # of ICON's grids, an attribute of the file
_CELLS = ("ncells", "cell", "vertex", "vertices", "edge")
_UNSTRUCTURED = {"CDI_grid_type": "unstructured"}

type _Places = Mapping[str, Mapping[str, JSON]]  # by path of what says them


def with_places(
    found: ScannedFile, options: ScannerOptions, scan: Callable[[ScannerOptions], ScannedFile]
) -> ScannedFile:
    """Return a file whose arrays say what places them and is left out.

    Args:
        found: The file.
        options: Of its scan.
        scan: Scans the file with other options.
    """
    of_file = {
        name: value
        for group in found.groups[:1]
        for name, value in group.attributes.values.items()
        if name == _OF_FILE
    }
    left_out = {path for path in found.left_out if not options.selects(path)}
    if not left_out and not of_file and isinstance(found.arrays, LaidOutArrays):
        return found  # their scanner says what places them
    kept = {*paths_of(found.arrays)}
    there: dict[str, set[str]] = defaultdict(set)
    for path in (*left_out, *kept):
        there[paths.name(path)].add(path)
    every = {array.path: _find(array, there) for array in found.arrays}
    named = {path: name for path, name in every.items() if name is not None and name not in kept}
    if not named and not of_file:
        return found
    wanted = {path for path in named.values() if path in left_out}
    said = _read(wanted, options, scan) if wanted else {}
    known: dict[tuple[str | None, bool], dict[str, JSON]] = {}  # arrays share what they say

    def note(array: ScannedArray) -> ScannedArray:
        key = named.get(array.path), bool(of_file) and _is_of_cells(array)
        places = known.setdefault(
            key, {**said.get(key[0] or "", {}), **(of_file if key[1] else {})}
        )
        if not places and key[0] is None:
            return array
        beside = array.beside
        if beside is not None and beside.values is not None:
            beside = replace(beside, values=replace(beside.values, placed_by=places))
        return replace(array, placed_by=places, beside=beside)

    return replace(found, arrays=tuple(map(note, found.arrays)))


def _find(array: ScannedArray, there: Mapping[str, set[str]]) -> str | None:
    """Return the mapping that an array names, "" where it is not there.

    None where it names none, or its scanner said already what places it.
    """
    text = array.attributes.values.get(NAMING)
    if not isinstance(text, str) or array.placed_by is not None:
        return None
    words = words_of(NAMING, text)[:1]
    return next((resolve(paths.parent(array.path), word, there) or "" for word in words), None)


def _is_of_cells(array: ScannedArray) -> bool:
    held = array.attributes.values
    return any((name or "").startswith(_CELLS) for name in array.dimension_names) or (
        bool(array.dimension_names) and _UNSTRUCTURED.items() <= held.items()
    )


def _read(
    wanted: set[str], options: ScannerOptions, scan: Callable[[ScannerOptions], ScannedFile]
) -> _Places:
    alone = replace(options, variables=tuple(sorted(wanted)), drop_variables=(), share=None)
    try:
        found = scan(alone)
    except UnsupportedError:
        return {}
    return {array.path: only_places(array.attributes.values) for array in found.arrays}
