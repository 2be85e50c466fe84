"""``icevirt plan``: what a build would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from icevirt.cli import options
from icevirt.cli.output import CommandResult, Output, OutputOption, progress, show_error
from icevirt.cli.recipes import RecipeFile, WriteRecipe, overruled, require_sources
from icevirt.errors import CombineError

if TYPE_CHECKING:
    from icevirt.archive.eras import EraRule
    from icevirt.planning.axes.duplicates import Duplicates
    from icevirt.planning.axes.gaps import Holes
    from icevirt.planning.combine.combine_attrs import CombineAttrs
    from icevirt.planning.combine.deviation_rules import ChunkGrid, Deviating
    from icevirt.planning.combine.options import Combine


def plan(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    sources: options.OptionalSources = None,
    file: RecipeFile = None,
    write_recipe: WriteRecipe = None,
    repo: Annotated[
        str | None, typer.Option(help="A repository, to show what differs from its last build.")
    ] = None,
    branch: Annotated[str, typer.Option(help="The branch of --repo to look at.")] = "main",
    concat_dim: options.ConcatDim = None,
    group: options.Group = "/",
    source_group: options.SourceGroup = "/",
    variable: options.Variable = None,
    drop_variable: options.DropVariable = None,
    rename: options.Rename = None,
    attr: options.Attrs = None,
    preprocess: options.Preprocess = None,
    tolerance: options.Tolerance = None,
    combine_attrs: options.Attributes = "override",
    duplicates: options.DuplicatesRule = "refuse",
    holes: options.HolesRule = "refuse",
    eras: options.ErasRule = "refuse",
    labels: options.LabelsOption = None,
    combine: options.Combine = "by_coords",
    regular: options.Regular = None,
    pad: options.Pad = None,
    data_vars: options.DataVars = None,
    max_bad_files: options.BadFiles = 0,
    max_native_bytes: options.NativeBytes = options.MANY,
    deviating: options.DeviatingRule = "refuse",
    float_variable: options.FloatVariable = None,
    chunk_grid: options.Grid = "regular",
    file_timeout: options.FileTimeout = options.MINUTES,
    file_memory: options.FileMemory = options.FOUR,
    scanner: options.Scanner = "",
    allow_references_to: options.ReferencesTo = None,
    policy: options.Policies = None,
    asset: options.Asset = None,
    access: options.Access = None,
    publish_as: options.PublishAs = None,
    container: options.Containers = None,
    catalog: options.Catalog = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Show what a build of these files would do and store, without a repository.

    Where files decode unlike, their eras are shown; the exit status is 1 where they are refused.
    """
    import icevirt

    given = overruled(
        ctx,
        file,
        sources=sources,
        repo=repo,
        branch=branch,
        concat_dim=concat_dim or None,
        group=group,
        source_group=source_group,
        variables=tuple(variable or ()),
        drop_variables=tuple(drop_variable or ()),
        rename=dict(rename) if rename else None,
        attrs=options.attrs_of(attr) or None,
        preprocess=preprocess,
        tolerance=options.tolerances_of(tolerance),
        duplicates=cast("Duplicates", duplicates),
        holes=cast("Holes", holes),
        eras=cast("EraRule", eras),
        labels=options.labels_of(labels),
        combine=cast("Combine", combine),
        regular=dict(regular) if regular else None,
        pad=tuple(pad or ()),
        data_vars=options.data_vars_of(data_vars),
        combine_attrs=cast("CombineAttrs", combine_attrs),  # plan checks it
        max_bad_files=max_bad_files,
        max_native_bytes=max_native_bytes,
        deviating=cast("Deviating", deviating),
        float_variables=tuple(float_variable or ()),
        chunk_grid=cast("ChunkGrid", chunk_grid),
        file_timeout=file_timeout,
        file_memory=file_memory,
        scanner=scanner,
        allow_references_to=tuple(allow_references_to or ()),
        policy=dict(policy) if policy else "fail",
        asset=asset,
        access=dict(access or ()),
        publish_as=dict(publish_as or ()),
        containers=dict(container or ()),
        catalog=catalog,
    )
    require_sources(given)
    try:
        with progress(quiet=quiet) as listener:
            planned = icevirt.plan(**given, progress=listener)
    except CombineError as error:
        if (found := error.facts.get("eras")) is None:
            raise
        show_error(error)
        return CommandResult(value=found, output=output, quiet=quiet, status=1)
    if write_recipe is not None:
        icevirt.dump_recipe(given, write_recipe)
    return CommandResult(value=planned, output=output, quiet=quiet)
