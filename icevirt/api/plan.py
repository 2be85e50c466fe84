"""`icevirt.plan`: what a build would do and store, before it does it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icevirt.api.arguments import (
    FILE_MEMORY,
    FILE_TIMEOUT,
    ConcatDim,
    LabelsLike,
    RegularLike,
    bad_files_allowed,
    check_arguments,
    dimensions_of,
    label_variables,
    labels_of,
    limits_of,
    listed,
    names_of,
    regular_of,
    rules,
    scan_options,
    shared,
)
from icevirt.api.editing import Edits, Preprocess
from icevirt.api.pipeline.kept_dimensions import kept_of
from icevirt.api.pipeline.replacing import Replacing
from icevirt.api.pipeline.stages import Scan, closed_catalog, scan_missing
from icevirt.api.pipeline.target import Target, digest_of
from icevirt.api.sources.catalog_inputs import inputs_of
from icevirt.api.sources.inputs import Sources
from icevirt.api.sources.named_containers import NamedContainers
from icevirt.api.sources.nested_lists import nest_of
from icevirt.api.sources.published_urls import Publication, published
from icevirt.archive.eras import EraRule
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import Progress
from icevirt.execution.spark_session import spark_or_local
from icevirt.model import paths
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.planning.axes.duplicates import Duplicates, check_rule
from icevirt.planning.axes.gaps import Holes, check_holes
from icevirt.planning.combine.combine_attrs import CombineAttrs, check_policy
from icevirt.planning.combine.data_vars import DataVarsLike, data_vars_of, refuse_unknown_dimensions
from icevirt.planning.combine.deviation_rules import MAX_NATIVE_BYTES, ChunkGrid, Deviating
from icevirt.planning.combine.options import Combine, Wish, check_combine
from icevirt.planning.combine.tolerance import ToleranceLike, tolerance_of
from icevirt.planning.eras.group_plan import check_eras, combine_eras
from icevirt.planning.schedule.cost_estimate import costs_of
from icevirt.scan.policy import PolicyLike
from icevirt.storage.resolve import StorageLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(
    sources: Sources | None,
    *,
    repo: StorageLike | None = None,
    branch: str = "main",
    concat_dim: ConcatDim = None,
    group: str = "/",
    source_group: str = "/",
    variables: str | Iterable[str] = (),
    drop_variables: str | Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    attrs: Mapping[str, Mapping[str, Any]] | None = None,
    preprocess: Preprocess = None,
    tolerance: ToleranceLike = None,
    combine_attrs: CombineAttrs = "override",
    duplicates: Duplicates = "refuse",
    holes: Holes = "refuse",
    eras: EraRule = "refuse",
    labels: LabelsLike | None = None,
    combine: Combine = "by_coords",
    regular: RegularLike = None,
    pad: str | Iterable[str] = (),
    data_vars: DataVarsLike = None,
    max_bad_files: int | str = 0,
    max_native_bytes: int = MAX_NATIVE_BYTES,
    deviating: Deviating = "refuse",
    float_variables: str | Iterable[str] = (),
    chunk_grid: ChunkGrid = "regular",
    file_timeout: float = FILE_TIMEOUT,
    file_memory: int | str = FILE_MEMORY,
    scanner: str = "",
    allow_references_to: str | Iterable[str] = (),
    policy: PolicyLike = "fail",
    asset: str | None = None,
    publish_as: Mapping[str, str] | None = None,
    containers: Mapping[str, str] | None = None,
    access: Mapping[str, Any] | None = None,
    catalog: StorageLike | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> BuildPlan:
    """Scan files on Spark and say what `build` would make of them; nothing is written elsewhere.

    Arguments and errors are those of `build`. With ``catalog`` the scan is kept in that directory,
    and a build that is given the same one does not scan again. With ``repo``, the plan's
    ``difference`` says what a build with mode "w" would change, keep, replace and delete in that
    group of ``branch``.
    """
    check_arguments(group=group, max_bad_files=max_bad_files)
    group = paths.creatable(group)
    check_policy(combine_attrs)
    check_rule(duplicates)
    check_holes(holes)
    check_eras(eras)
    check_combine(combine)
    stored = rules(deviating, float_variables, chunk_grid, max_native_bytes)
    tolerated = tolerance_of(tolerance)
    dimensions = dimensions_of(concat_dim)
    told = labels_of(labels, dimensions)
    given = data_vars_of(data_vars)
    if dimensions:
        refuse_unknown_dimensions(given, dimensions)
    edits = Edits.of(rename, attrs, preprocess)
    options = scan_options(
        concat_dim=dimensions,
        stack=bool(told),
        data_vars={name: edits.called_before(each) for name, each in given.items()},
        label_variables=label_variables(told),
        pad=pad,
        rename=edits.scanned((*dimensions, *names_of("pad", pad))),
        tolerant=edits.called_before(tolerated),
        group=source_group,
        variables=variables,
        drop_variables=drop_variables,
        max_native_bytes=max_native_bytes,
        scanner=scanner,
        allow_references_to=allow_references_to,
        policy=policy,
    )
    limits = limits_of(file_timeout, file_memory)
    publication = Publication.of(publish_as)
    named = NamedContainers.of(containers)
    infers = concat_dim is None and not told and combine == "by_coords" and not rename
    with contextlib.ExitStack() as stack:
        stack.enter_context(granted(SourceAccess.of(access)))
        nest = nest_of(sources, dimensions, combine)
        inputs, options = inputs_of(
            nest.sources if nest else sources,
            catalog,
            options,
            asset=asset,
            limits=limits,
            infers=infers,
            leave=tolerated,
        )
        files = inputs.files()
        if catalog is None:
            catalog = stack.enter_context(tempfile.TemporaryDirectory(prefix="icevirt-plan-"))
        scan = Scan(
            files=files,
            options=options,
            catalog=shared(catalog),
            max_bad_files=bad_files_allowed(max_bad_files, len(files)),
            progress=progress,
            limits=limits,
        )
        session = stack.enter_context(spark_or_local(spark, files=files))
        scan_missing(session, scan)
        wish = Wish(
            build_id=digest_of("plan", listed(files)),
            concat_dim=options.concat_dims,
            group=group,
            combine_attrs=combine_attrs,
            duplicates=duplicates,
            holes=holes,
            eras=eras,
            labels=told,
            tolerance=tolerated,
            combine=combine,
            nest=None if nest is None else nest.by_url(files),
            regular=regular_of(regular, options.concat_dims),
            data_vars=given,
            pad=options.pad,
            rules=stored,
        )
        target = (
            None
            if repo is None
            else Target.look(shared(repo), branch=branch, group=group, mode="w")
        )
        if target is not None:
            wish = replace(wish, kept=kept_of(target))
        closed = closed_catalog(scan, lambda: session)
        facts, wish = edits.applied(closed.facts, wish)
        made = combine_eras(facts, wish)
        found = (text for _, text in closed.findings)
        made = replace(made, notes=(*made.notes, *found), bad_files=closed.bad)
        made = published(made, publication.targets(facts, made))
        made = named.contained(facts, made)
        return replace(
            made,
            cost=costs_of(made),
            difference=None
            if target is None
            else Replacing.of(target, made, edits.choice).difference(),
        )
