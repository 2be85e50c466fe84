"""Hold the arguments of builds and plans as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from icevirt.api.pipeline.target import digest_of
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.scan_notes import described_scans
from icevirt.errors import Fix, FormatError, InvalidInputError
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.model.paths import problem
from icevirt.planning.axes.dates import is_date
from icevirt.planning.axes.file_labels import NamePattern, is_pattern
from icevirt.planning.axes.new_dimensions import Labels
from icevirt.planning.axes.placement import spacing_of
from icevirt.planning.combine.hints import CombineHints
from icevirt.planning.combine.options import LabelsLike, SpacingLike
from icevirt.planning.remedies import build_fix
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import in_use
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Storage

type ConcatDim = str | Sequence[str] | None


def checked_group(group: object) -> str:
    """Return a group's path. Raises ``InvalidInputError`` unless a node may have it."""
    if not isinstance(group, str):
        raise InvalidInputError(
            f"group must be str, not {type(group).__name__}", do="Correct the call.", group=group
        )
    paths.creatable(group)
    return group


def dimensions_of(concat_dim: ConcatDim) -> tuple[str, ...]:
    """Return the dimensions that a caller named, the outermost first.

    Raises:
        InvalidInputError: One is not a name, or occurs twice.
    """
    if concat_dim is None:
        return ()
    given: Any = concat_dim
    is_many = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    names: tuple[Any, ...] = tuple(given) if is_many else (given,)
    found = tuple(name for name in names if isinstance(name, str) and name)
    if len(found) != len(names) or len(set(found)) != len(found):
        raise InvalidInputError(
            "concat_dim must be a name, or several different names",
            do="Correct the call.",
            given=concat_dim,
        )
    for name in found:
        if why := problem(name):
            raise InvalidInputError(
                f"concat_dim is not a valid name: {why}",
                do="If the dimension has this name in the files, rename it:"
                ' combine_options={"rename": {"old": "new"}} (--rename old=new).',
                concat_dim=name,
            )
    return found


def labels_of(given: LabelsLike | None, dimensions: Sequence[str]) -> dict[str, Labels]:
    """Return the labels of new dimensions by their names.

    Raises:
        InvalidInputError: It is not clear which dimension they are for, or concat_dim lacks it.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in dimensions]:
            raise InvalidInputError(
                "labels name dimensions that are not in concat_dim",
                do="Add them to concat_dim (on the command line --concat-dim).",
                unknown=unknown,
                concat_dim=list(dimensions),
            )
        return dict(given)
    if is_pattern(given):
        return dict.fromkeys(_labelled(str(given), dimensions), given)
    if len(dimensions) != 1:
        raise InvalidInputError(
            "labels need a new dimension, but "
            + ("concat_dim names none" if not dimensions else "concat_dim names several"),
            do="Name it with concat_dim (on the command line --concat-dim); where there are"
            ' several, pass {"member": labels} (--labels member=...).',
            concat_dim=list(dimensions),
        )
    return {dimensions[0]: given}


def _labelled(pattern: str, dimensions: Sequence[str]) -> tuple[str, ...]:
    """Return the dimensions that a pattern of names labels."""
    found = NamePattern.of(pattern).names
    if unknown := [name for name in found if name not in dimensions]:
        raise InvalidInputError(
            "the pattern of the labels names dimensions that are not in concat_dim",
            do="Add them to concat_dim (on the command line --concat-dim), or write * in their"
            " place.",
            unknown=unknown,
            concat_dim=list(dimensions),
        )
    return found


def dimensions_in(labels: LabelsLike | None) -> tuple[str, ...]:
    """Return the dimensions that a pattern of names labels, where one was given."""
    return NamePattern.of(str(labels)).names if is_pattern(labels) else ()


def spacing_by(given: SpacingLike, dimensions: Sequence[str]) -> dict[str, str | float]:
    """Return how far apart the steps of dimensions are, by their names.

    Raises:
        InvalidInputError: A spacing is wrong, or it is not clear for which dimension it is.
    """
    if given is None:
        return {}
    by_dimension = given if isinstance(given, Mapping) else dict.fromkeys(dimensions, given)
    if unknown := [name for name in by_dimension if name not in dimensions] or (
        len(dimensions) != 1 and not isinstance(given, Mapping)
    ):
        raise InvalidInputError(
            "spacing must name one of the dimensions of concat_dim",
            fixes=_spacings(by_dimension, dimensions),
            do='It is written as combine_options={"spacing": {"time": "6h"}} (--spacing time=6h).',
            unknown=unknown,
            concat_dim=list(dimensions),
        )
    return {name: spacing_of(each) for name, each in by_dimension.items()}


def _spacings(given: Mapping[str, str | float], dimensions: Sequence[str]) -> list[Fix]:
    """Return fixes for the spacing of a dimension that is not there."""
    if len(given) != 1:
        return []
    ((name, spacing),) = given.items()
    return [
        build_fix(
            f"for steps along {each}",
            without={"spacing": name},
            combine_options={"spacing": {each: spacing}},
        )
        for each in dimensions[:2]
    ] + [build_fix("steps that no file holds get no place", without={"spacing": name})]


def as_choice(labels: Mapping[str, Labels]) -> dict[str, JSON] | None:
    """Return labels as a snapshot records them."""
    return {name: _as_recorded(each) for name, each in labels.items()} or None


def _as_recorded(labels: Labels) -> JSON:
    if isinstance(labels, str) or not any(map(is_date, labels)):
        return labels if isinstance(labels, str) else list(labels)  # type: ignore[arg-type]
    return {"dates": [f"{each} {getattr(each, 'calendar', '')}".strip() for each in labels]}


def identity_of(options: ScannerOptions) -> str:
    """Return a digest of what decides how a file is described: options and scanners."""
    identity = recorded_options(options)
    return _identity(identity["options"], identity["scanners"])


def _identity(options: Mapping[str, Any], scanners: Mapping[str, Any]) -> str:
    return digest_of(options, list(scanners.items()))


def identity_by(options: ScannerOptions, scanners: Mapping[str, Any]) -> str:
    """Return the identity of a scan with the same options, by other versions of scanners."""
    identity = recorded_options(options)
    order = [*identity["scanners"]]  # metadata of snapshots has none
    known = {name: scanners[name] for name in (*order, *sorted(scanners)) if name in scanners}
    return _identity(identity["options"], known)


def identities_in(catalog_: Storage, options: ScannerOptions) -> tuple[str, ...]:
    """Return the scans of a catalog that had these options, whatever the versions of scanners."""
    asked = json.loads(json.dumps(recorded_options(options)["options"]))
    try:
        there = described_scans(catalog_)
    except FormatError:
        return ()
    return tuple(sorted(name for name, scan in there.items() if scan["options"] == asked))


def recorded_options(options: ScannerOptions) -> dict[str, Any]:
    """Return what decides how a file is described: options, and scanners with their versions.

    How files are combined decides nothing.
    """
    scanners = {each.name: each.version for each in in_use(options)}
    hidden = {"share", "equal", "strict", *(field.name for field in fields(CombineHints))}
    asked = {name: value for name, value in asdict(options).items() if name not in hidden}
    return {"options": asked, "scanners": scanners}


def hints_of(options: ScannerOptions) -> dict[str, Any]:
    """Return how files will be combined, as far as scans take facts for it."""
    return {field.name: getattr(options, field.name) for field in fields(CombineHints)}


def listed(files: Iterable[SourceFile]) -> list[list[str | int]]:
    """Return what identifies the files, for a digest."""
    return [[file.url, file.size, file.etag, file.last_modified] for file in files]


def outside(repo: Storage, files: SourceFiles) -> SourceFiles:
    """Leave out files of the repository itself, which a wide glob finds.

    Raises:
        InvalidInputError: There are no others.
    """
    root = repo.url.rstrip("/") + "/"
    if not files.urls.begin_with(root.encode()).any():
        return files
    kept = SourceFiles(file for file in files if not file.url.startswith(root))
    if not kept:
        raise InvalidInputError(
            "all sources lie inside the repository", do="Name other files.", repo=repo.url
        )
    return kept


def apart(repo: Storage, catalog: StorageLike) -> Storage:
    """Return the storage of a catalog, which may not be where the repository is.

    Raises:
        InvalidInputError: It is the same place.
    """
    storage = shared(catalog)
    if storage.url == repo.url:
        raise InvalidInputError(
            "catalog and repository have the same path", do="Name another directory.", path=repo.url
        )
    return storage


def shared(root: StorageLike) -> Storage:
    """Return a storage that Spark's workers reach as well.

    Raises:
        InvalidInputError: It is this process's memory.
    """
    storage = storage_of(root)
    if isinstance(storage, MemoryStorage):
        raise InvalidInputError(
            "a build needs a storage that all Spark workers reach",
            do="Use a directory; other processes cannot read memory.",
            storage=storage.url,
        )
    return storage
