"""Read the arguments of `build`, `plan` and `scan_files` once, as values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from icevirt.api.arguments import (
    ConcatDim,
    dimensions_in,
    dimensions_of,
    labels_of,
    spacing_by,
)
from icevirt.api.commit_options import CommitOptions
from icevirt.api.editing import Edits
from icevirt.api.sources.catalog_inputs import inputs_of
from icevirt.api.sources.inputs import Inputs, NestedSources, Sources, nest_of
from icevirt.archive.options import names
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.execution.selection import ExecutorChoice
from icevirt.model import paths
from icevirt.objects.source_access import is_word
from icevirt.planning.axes.new_dimensions import Labels, variable_of
from icevirt.planning.combine.data_vars import DataVars, data_vars_of, refuse_unknown_dimensions
from icevirt.planning.combine.options import CombineOptions, CombineSpec, tolerance_of
from icevirt.scan.contract import ScannerOptions, rules_of
from icevirt.scan.options import ScanOptions
from icevirt.storage.constructors import StorageLike, storage_of

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
                (name, edits.called_before(each)) for name, each in self.data_vars.items()
            )
            if self.labels
            else (),
            label_variables=tuple(
                name for each in self.labels.values() if (name := variable_of(each)) is not None
            ),
            pad=pad,
            rename=edits.scanned((*self.dimensions, *pad)),
            tolerant=edits.called_before(self.tolerance),
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
    """Return what scanners are given: the options of a scan, and hints of how files combine."""
    return ScannerOptions(
        group=scan.source_group,
        variables=names(scan.variables),
        drop_variables=names(scan.drop_variables),
        max_native_bytes=scan.max_native_bytes_per_file,
        scanner=scan.scanner,
        allow_references_to=names(scan.allow_references_to),
        policy=rules_of(scan.variable_policy),
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
