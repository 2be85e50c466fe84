"""What builds and plans are asked for, as values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from types import NoneType
from typing import Any

from icevirt.api.pipeline.target import digest_of
from icevirt.archive import catalog
from icevirt.archive.limits import ScanLimits
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.errors import InvalidInputError
from icevirt.model.json import JSON
from icevirt.model.names import problem
from icevirt.planning.axes.new_dimensions import Labels, variable_of
from icevirt.planning.axes.regular_axes import spacing_of
from icevirt.planning.combine.data_vars import DataVars
from icevirt.planning.combine.deviation_rules import MAX_NATIVE_BYTES, ChunkGrid, Deviating, Rules
from icevirt.planning.combine.hints import CombineHints
from icevirt.repo.settings import as_json
from icevirt.scan.contract import ScanOptions
from icevirt.scan.policy import PolicyLike, rules_of
from icevirt.scan.registry import in_use, named
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Storage
from icevirt.storage.resolve import StorageLike, storage_of

type ConcatDim = str | Sequence[str] | None
type LabelsLike = Labels | Mapping[str, Labels]
type RegularLike = str | float | Mapping[str, str | float] | None

FILE_TIMEOUT = 600.0
"""Seconds that the scan of a file may take, by default."""

FILE_MEMORY = "4GiB"
"""Memory that the scan of a file may take, by default."""

_UNITS = {
    unit: base**power
    for power, letter in enumerate("kmgt", 1)
    for unit, base in ((f"{letter}ib", 1024), (f"{letter}b", 1000))
} | {"b": 1, "": 1}


def scan_options(
    *,
    concat_dim: ConcatDim = None,
    stack: bool = False,
    label_variables: str | Iterable[str] = (),
    pad: str | Iterable[str] = (),
    rename: Sequence[tuple[str, str]] = (),
    tolerant: Iterable[str] = (),
    group: str = "/",
    variables: str | Iterable[str] = (),
    drop_variables: str | Iterable[str] = (),
    max_native_bytes: int = MAX_NATIVE_BYTES,
    scanner: str = "",
    allow_references_to: str | Iterable[str] = (),
    policy: PolicyLike = "fail",
    data_vars: DataVars | None = None,
) -> ScanOptions:
    """Return the options of a scan; one name may stand without a list around it.

    Raises:
        InvalidInputError: One is of another type, or there is no such scanner.
    """
    dimensions = dimensions_of(concat_dim)
    check_arguments(group=group, scanner=scanner)
    if scanner:
        named(scanner)
    return ScanOptions(
        # one name is kept as it is, so that catalogs of earlier scans are found
        concat_dim=dimensions if len(dimensions) > 1 else next(iter(dimensions), None),
        stack=stack,
        label_variables=names_of("label_variables", label_variables),
        pad=names_of("pad", pad),
        rename=tuple(rename),
        tolerant=tuple(tolerant),
        group=group,
        variables=names_of("variables", variables),
        drop_variables=names_of("drop_variables", drop_variables),
        max_native_bytes=max_native_bytes,
        scanner=scanner,
        allow_references_to=names_of("allow_references_to", allow_references_to),
        policy=rules_of(policy),
        data_vars=tuple((data_vars or {}).items()) if stack else (),
    )


def dimensions_of(concat_dim: ConcatDim) -> tuple[str, ...]:
    """Return the dimensions that a person named, the outermost first.

    Raises:
        InvalidInputError: One is no name, or named twice.
    """
    if concat_dim is None:
        return ()
    given: Any = concat_dim
    is_many = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    names: tuple[Any, ...] = tuple(given) if is_many else (given,)
    found = tuple(name for name in names if isinstance(name, str) and name)
    if len(found) != len(names) or len(set(found)) != len(found):
        raise InvalidInputError(
            "concat_dim is neither a name nor several different ones",
            do="Correct the call.",
            given=concat_dim,
        )
    for name in found:
        if why := problem(name):
            raise InvalidInputError(
                f"concat_dim is not a valid name: {why}",
                do='If the dimension has this name in the files, rename it: rename={"old": "new"}.',
                concat_dim=name,
            )
    return found


def labels_of(given: LabelsLike | None, dimensions: Sequence[str]) -> dict[str, Labels]:
    """Return the labels of new dimensions by their names.

    Raises:
        InvalidInputError: It is not clear which dimension they are for, or it was not asked for.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in dimensions]:
            raise InvalidInputError(
                "labels are for dimensions that concat_dim does not name",
                do="Add them to concat_dim (on the command line --concat-dim).",
                unknown=unknown,
                concat_dim=list(dimensions),
            )
        return dict(given)
    if len(dimensions) != 1:
        raise InvalidInputError(
            "labels are for a new dimension, and "
            + ("none is named" if not dimensions else "several dimensions are named"),
            do="Name it with concat_dim (on the command line --concat-dim); where there are"
            ' several, pass {"member": labels} (--labels member=...).',
            concat_dim=list(dimensions),
        )
    return {dimensions[0]: given}


def regular_of(given: RegularLike, dimensions: Sequence[str]) -> dict[str, str | float]:
    """Return how far apart the steps of dimensions are, by their names.

    Raises:
        InvalidInputError: It is no such thing, or it is not clear for which dimension.
    """
    if given is None:
        return {}
    told = given if isinstance(given, Mapping) else dict.fromkeys(dimensions, given)
    if unknown := [name for name in told if name not in dimensions] or (
        len(dimensions) != 1 and not isinstance(given, Mapping)
    ):
        raise InvalidInputError(
            "regular is for one of the dimensions of concat_dim",
            do='Name it: regular={"time": "6h"} (--regular time=6h).',
            unknown=unknown,
            concat_dim=list(dimensions),
        )
    return {name: spacing_of(each) for name, each in told.items()}


def label_variables(labels: Mapping[str, Labels]) -> tuple[str, ...]:
    """Return the names of the variables that tell labels."""
    return tuple(name for each in labels.values() if (name := variable_of(each)) is not None)


def as_choice(labels: Mapping[str, Labels]) -> dict[str, JSON] | None:
    """Return labels as a snapshot tells them."""
    told: dict[str, JSON] = {
        name: each if isinstance(each, str) else list(each) for name, each in labels.items()
    }
    return told or None


def rules(
    deviating: Deviating,
    float_variables: str | Iterable[str],
    chunk_grid: ChunkGrid,
    max_native_bytes: int,
) -> Rules:
    """Return what is stored that cannot be referenced. Raises ``InvalidInputError``."""
    made = Rules(
        deviating=deviating,
        float_variables=names_of("float_variables", float_variables),
        chunk_grid=chunk_grid,
        max_native_bytes=max_native_bytes,
    )
    made.check()
    if chunk_grid == "rectilinear" and tuple(map(int, version("zarr").split(".")[:2])) < (3, 4):
        raise InvalidInputError(
            "chunks whose lengths differ need zarr 3.4 or newer",
            do='Install it, or leave chunk_grid at "regular".',
            installed=version("zarr"),
        )
    return made


def names_of(argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; one may stand without a list around it.

    Raises:
        InvalidInputError: Something is no name.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"{argument} holds something else than names", do="Correct it.", given=names
        )
    return names


def identity_of(options: ScanOptions, version: int = catalog.VERSION) -> str:
    """Return a digest of what decides how a file is described: options and scanners."""
    told = told_of(options, version)
    return digest_of(told["options"], list(told["scanners"].items()))


def told_of(options: ScanOptions, version: int = catalog.VERSION) -> dict[str, Any]:
    """Return what decides how a file is described: options, and scanners with their versions.

    How files are combined decides nothing, except in catalogs of an earlier ``version``.
    """
    scanners = {each.name: each.version for each in in_use(options)}
    hidden = {"share", "equal", "strict"}
    if version == catalog.VERSION:
        hidden |= {field.name for field in fields(CombineHints)}
    elif not options.stack:  # they were described before there was such a field
        hidden.add("data_vars")
    asked = {name: value for name, value in asdict(options).items() if name not in hidden}
    return {"options": asked, "scanners": scanners}


def hints_of(options: ScanOptions) -> dict[str, Any]:
    """Return how files will be combined, as far as scans take facts for it."""
    return {field.name: getattr(options, field.name) for field in fields(CombineHints)}


def listed(files: Iterable[SourceFile]) -> list[list[str | int]]:
    """Return what identifies the files, for a digest."""
    return [[file.url, file.size, file.etag, file.last_modified] for file in files]


def check_arguments(**given: Any) -> None:
    """Check the types of what a person passed, by name.

    Raises:
        InvalidInputError: One is of another type, or a number is negative.
    """
    types = {
        "group": (str,),
        "scanner": (str,),
        "branch": (str,),
        "message": (str, NoneType),
        "metadata": (Mapping, NoneType),
        "max_bad_files": (int, str),
    }
    for name, value in given.items():
        if not isinstance(value, types[name]):
            wanted = " or ".join(kind.__name__ for kind in types[name])
            raise InvalidInputError(f"{name} is no {wanted}", do="Correct the call.", given=value)
    bad_files_allowed(given.get("max_bad_files", 0), 0)
    as_json(given.get("metadata") or {})


def bad_files_allowed(given: int | str, files: int) -> int:
    """Return how many of ``files`` may be bad, given a number or a share like ``"1%"``.

    Raises:
        InvalidInputError: It is neither, or negative.
    """
    try:
        if isinstance(given, str) and given.endswith("%"):
            allowed = math.floor(files * float(given[:-1]) / 100)
        else:
            allowed = int(given)
    except (ValueError, OverflowError) as error:  # the latter of "inf%"
        raise InvalidInputError(
            "max_bad_files is neither a number nor a share",
            do='Pass a number of files, or a share like "1%".',
            max_bad_files=given,
        ) from error
    if allowed < 0 or (isinstance(given, str) and given.startswith("-")):
        raise InvalidInputError("max_bad_files is negative", do="Pass 0 or more.")
    if isinstance(given, str) and given.endswith("%") and float(given[:-1]) > 100:
        raise InvalidInputError(
            "max_bad_files is more than all", do="Pass at most 100%.", max_bad_files=given
        )
    return allowed


def limits_of(file_timeout: float, file_memory: int | str) -> ScanLimits:
    """Return what the scan of a file may take; memory is bytes, or text like ``"4GiB"``.

    Raises:
        InvalidInputError: One is no number, or not above 0.
    """
    seconds, memory = _seconds(file_timeout), _bytes(file_memory)
    if not (0 < seconds < math.inf):
        raise InvalidInputError(
            "file_timeout is no number of seconds above 0",
            do="Pass how many seconds the scan of one file may take.",
            file_timeout=file_timeout,
        )
    if not 0 < memory < 1 << 63:
        raise InvalidInputError(
            "file_memory is no number of bytes above 0",
            do='Pass a number of bytes, or text like "4GiB".',
            file_memory=file_memory,
        )
    return ScanLimits(seconds=seconds, memory=memory)


def _seconds(given: object) -> float:
    return float(given) if isinstance(given, int | float) else 0.0


def _bytes(given: object) -> int:
    if isinstance(given, int):
        return given
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", str(given).strip().lower())
    if found is None or found[2] not in _UNITS:
        return 0
    return int(float(found[1]) * _UNITS[found[2]])


def outside(repo: Storage, files: SourceFiles) -> SourceFiles:
    """Leave out files of the repository itself, which a wide glob finds.

    Raises:
        InvalidInputError: There are no others.
    """
    root = repo.url.rstrip("/") + "/"
    if not any(file.url.startswith(root) for file in files):
        return files
    kept = SourceFiles(file for file in files if not file.url.startswith(root))
    if not kept:
        raise InvalidInputError(
            "all sources lie in the repository itself", do="Name other files.", repo=repo.url
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
            "catalog and repository are one path", do="Name another directory.", path=repo.url
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
            do="Use a directory; memory belongs to one process.",
            storage=storage.url,
        )
    return storage
