"""Read the arguments of `build`, `plan` and `scan_files` once, as values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from icevirt.amounts import parse_size
from icevirt.api.commit_options import CommitOptions
from icevirt.api.dataset.records import identity_of, options_of
from icevirt.api.editing import Edits
from icevirt.api.sources.inputs import Inputs, NestedSources, Sources, nest_of
from icevirt.archive.options import names
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.catalog.parts import check_mark, files_asked, read_scans
from icevirt.errors import Fix, InvalidInputError
from icevirt.execution.selection import ExecutorChoice
from icevirt.model import paths
from icevirt.model.paths import problem
from icevirt.objects.source_access import is_word
from icevirt.planning.axes.axis import spacing_of
from icevirt.planning.axes.file_labels import Labels, NamePattern, is_pattern
from icevirt.planning.axes.new_dimensions import variable_of
from icevirt.planning.combine.data_vars import DataVars, data_vars_of, refuse_unknown_dimensions
from icevirt.planning.combine.options import (
    CombineOptions,
    CombineSpec,
    LabelsLike,
    SpacingLike,
    tolerance_of,
)
from icevirt.planning.remedies import build_fix
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.scan.contract import ScannerOptions, rules_of
from icevirt.scan.options import ScanOptions
from icevirt.scan.registry import find_named
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Storage

type ScanOptionsLike = ScanOptions | Mapping[str, Any] | None

type CombineOptionsLike = CombineOptions | Mapping[str, Any] | None

type CommitOptionsLike = CommitOptions | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Options of a call, and what follows from several of them together."""

    dimensions: tuple[str, ...]  # that the caller named, the outermost first
    scan: ScanOptions
    combine: CombineOptions
    labels: Mapping[str, Labels]  # by new dimension
    data_vars: DataVars
    tolerance: Mapping[str, float]
    edits: Edits
    infers: bool  # dimensions from the files

    @classmethod
    def of(
        cls,
        concat_dim: ConcatDim,
        scan_options: ScanOptionsLike,
        combine_options: CombineOptionsLike,
    ) -> Choices:
        """Read the arguments of a call.

        Raises:
            InvalidInputError: One is wrong, or they contradict one another.
        """
        scan, combine = ScanOptions.of(scan_options), CombineOptions.of(combine_options)
        dimensions = dimensions_of(concat_dim) or dimensions_in(combine.labels)
        data_vars = data_vars_of(combine.data_vars)
        if dimensions:
            refuse_unknown_dimensions(data_vars, dimensions)
        return cls(
            dimensions=dimensions,
            scan=scan,
            combine=combine,
            labels=labels_of(combine.labels, dimensions),
            data_vars=data_vars,
            tolerance=tolerance_of(combine.tolerance),
            edits=Edits.of(combine.rename, combine.attrs, combine.preprocess),
            infers=concat_dim is None
            and combine.combine == "by_coords"
            and not (combine.labels or combine.rename),
        )

    @property
    def scanner(self) -> ScannerOptions:
        """What scanners of the files are given."""
        edits, pad = self.edits, names(self.combine.pad)
        return scanner_options(
            self.scan,
            # one name is kept as it is, so that catalogs of earlier scans are found
            concat_dim=self.dimensions
            if len(self.dimensions) > 1
            else next(iter(self.dimensions), None),
            stack=bool(self.labels),
            data_vars=tuple(
                (name, edits.add_names_before(each)) for name, each in self.data_vars.items()
            )
            if self.labels
            else (),
            label_variables=tuple(
                name for each in self.labels.values() if (name := variable_of(each)) is not None
            ),
            pad=pad,
            rename=edits.choose_for_scan((*self.dimensions, *pad)),
            tolerant=edits.add_names_before(self.tolerance),
            most_together=parse_size(self.combine.split_contiguous or 0),
        )

    @property
    def inferring(self) -> Mapping[str, float] | None:
        """How far coordinates may differ that are the same; None where nothing is inferred."""
        return self.tolerance if self.infers else None

    def spec(
        self,
        dimensions: Sequence[str] | None,
        *,
        group: str,
        build_id: str = "",
        nest: Mapping[str, tuple[int, ...]] | None = None,
    ) -> CombineSpec:
        """Return what a plan is made by; ``dimensions`` are None until they are inferred."""
        return CombineSpec(
            build_id=build_id,
            options=self.combine,
            concat_dim=tuple(dimensions or ()),
            group=paths.creatable(group),
            labels=self.labels,
            spacing={} if dimensions is None else spacing_by(self.combine.spacing, dimensions),
            nest=nest,
        )


def scanner_options(scan: ScanOptions, **combining: Any) -> ScannerOptions:
    """Return what scanners are given: the options of a scan, and hints of how files combine.

    Raises:
        InvalidInputError: The scanner that they name does not exist.
        ScanError: It does not load.
    """
    if scan.scanner:
        find_named(scan.scanner)
    return ScannerOptions(
        group=scan.source_group,
        variables=names(scan.variables),
        drop_variables=names(scan.drop_variables),
        max_native_bytes=scan.max_native_bytes_per_file,
        scanner=scan.scanner,
        allow_references_to=names(scan.allow_references_to),
        policy=rules_of(scan.variable_policy),
        sidecar=scan.sidecar,
        grids=scan.grids,
        codecs=names(scan.codecs),
        source_version=scan.source_version,
        **combining,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFiles:
    """Files that an earlier step listed, and how it scanned them."""

    files: Sequence[SourceFile]
    options: ScannerOptions
    nest: NestedSources | None
    closed: ClosedCatalog | None = field(default=None, repr=False)  # what was read of the scan
    named: Sources | None = None  # as the caller named them
    plan: str = ""  # digest of the plan that was made of them; "" where any will do


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Arguments of a build or plan, checked."""

    sources: Sources | None
    choices: Choices
    commit: CommitOptions
    group: str = "/"
    catalog: StorageLike | None = None
    access: Mapping[str, Any] | None = field(default=None, repr=False)
    executor: ExecutorChoice = None
    listed: ListedFiles | None = None

    @property
    def words(self) -> dict[str, str]:
        """How servers are reached, as far as that can be written down."""
        return {prefix: how for prefix, how in (self.access or {}).items() if is_word(how)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle may hold: no storage, credentials or session, but how to get them.

        They are made anew of the environment, and facts are read of the catalog again.
        """
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        held["access"] = self.words or None
        if not isinstance(self.catalog, str | os.PathLike | None):
            held["catalog"] = storage_of(self.catalog).url
        if self.listed is not None:
            held["listed"] = replace(self.listed, closed=None)
        if not isinstance(self.executor, str):
            held["executor"] = None
        return partial(Asked, **held), ()

    @property
    def named(self) -> Sources | None:
        """The sources as the caller named them."""
        return self.sources if self.listed is None else self.listed.named

    def inputs(self) -> tuple[Inputs, ScannerOptions, NestedSources | None]:
        """Return the files, what scanners of them are given, and their places in nested lists."""
        if self.listed is not None:
            known = self.listed
            return Inputs((), known=known.files), known.options, known.nest
        choices = self.choices
        nest = nest_of(self.sources, choices.dimensions, choices.combine.combine)
        inputs = inputs_of(
            self.sources if nest is None else nest.sources,
            self.catalog,
            choices.scanner,
            asset=choices.scan.asset,
        )
        return inputs, choices.scanner, nest


type ConcatDim = str | Sequence[str] | None


def check_group(group: object) -> str:
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
                do=write_remedy(
                    "If the dimension has this name in the files, rename it: ",
                    write_code('combine_options={"rename": {"old": "new"}}', "--rename old=new"),
                    ".",
                ),
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
                do=write_remedy("Add them to ", write_option("concat_dim"), "."),
                unknown=unknown,
                concat_dim=list(dimensions),
            )
        return dict(given)
    if is_pattern(given):
        found = NamePattern.of(str(given)).names
        if unknown := [name for name in found if name not in dimensions]:
            raise InvalidInputError(
                "the pattern of the labels names dimensions that are not in concat_dim",
                do=write_remedy(
                    "Add them to ", write_option("concat_dim"), ", or write * in their place."
                ),
                unknown=unknown,
                concat_dim=list(dimensions),
            )
        return dict.fromkeys(found, given)
    if len(dimensions) != 1:
        raise InvalidInputError(
            "labels need a new dimension, but "
            + ("concat_dim names none" if not dimensions else "concat_dim names several"),
            do=write_remedy(
                "Name it with ",
                write_option("concat_dim"),
                "; where there are several, pass ",
                write_code('{"member": labels}', "--labels member=..."),
                ".",
            ),
            concat_dim=list(dimensions),
        )
    return {dimensions[0]: given}


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
            do=write_remedy(
                "It is written as ",
                write_code('combine_options={"spacing": {"time": "6h"}}', "--spacing time=6h"),
                ".",
            ),
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
    storage = share(catalog)
    if storage.url == repo.url:
        raise InvalidInputError(
            "catalog and repository have the same path", do="Name another directory.", path=repo.url
        )
    return storage


def share(root: StorageLike) -> Storage:
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


def inputs_of(
    sources: Sources | None,
    catalog: StorageLike | None,
    options: ScannerOptions,
    *,
    asset: str | None,
) -> Inputs:
    """Return the sources; without any, the files that the catalog's scans with ``options`` list.

    Args:
        sources: As for `build`.
        catalog: Of earlier scans.
        options: Of the scan.
        asset: Of STAC items.

    Raises:
        InvalidInputError: There is neither, or the catalog has no scan with these options.
        NotFoundError: There is no such catalog.
        AlreadyExistsError: Its path holds something else.
        FormatError: It is of another version, or damaged.
    """
    if sources is not None:
        return Inputs(sources, asset=asset)
    if catalog is None:
        raise InvalidInputError(
            "neither sources nor a catalog given",
            do="Name files, directories, globs or lists of files, or a catalog that was scanned.",
        )
    storage = share(catalog)
    check_mark(storage)
    files = files_asked(storage, identity_of(options))
    if not files:
        raise _no_scan(storage, options)
    return Inputs((), known=files)


def _no_scan(storage: Storage, options: ScannerOptions) -> InvalidInputError:
    scans = read_scans(storage)
    mine = options_of(options)
    return InvalidInputError(
        "the catalog has no scan with the options of this build",
        do="Pass the options of the scan to the build (`icevirt catalog` shows them), or name the "
        "sources.",
        catalog=storage.url,
        differences=[
            {name: f"{there} in the catalog, here {here}" for name, there, here in found}
            for recorded in scans.values()
            if (found := list(_differences(recorded, mine)))
        ],
    )


def _differences(
    recorded: Mapping[str, Any], mine: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield in which options and versions of scanners a scan differs, as far as both know them."""
    for kind in ("options", "scanners"):
        theirs, ours = recorded.get(kind, {}), mine[kind]
        for name in sorted({*theirs, *ours}):
            here = ours.get(name)
            here = list(here) if isinstance(here, tuple) else here
            if theirs.get(name) != here:
                yield name, theirs.get(name), here
