"""``icevirt build``: from files to a repository."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from icevirt.cli import options
from icevirt.cli.output import CommandResult, Output, OutputOption, progress
from icevirt.cli.recipes import RecipeFile, overruled, require, require_sources

if TYPE_CHECKING:
    from icevirt.archive.eras import EraRule
    from icevirt.planning.axes.duplicates import Duplicates
    from icevirt.planning.axes.gaps import Holes
    from icevirt.planning.combine.combine_attrs import CombineAttrs
    from icevirt.planning.combine.deviation_rules import ChunkGrid, Deviating
    from icevirt.planning.combine.options import Combine


class ReplaceMode(StrEnum):
    """What happens to nodes that the group holds already."""

    refuse = "w-"
    overwrite = "w"


def build(  # noqa: PLR0917 - each is an option of the command
    ctx: typer.Context,
    sources: options.OptionalSources = None,
    repo: Annotated[
        str | None, typer.Argument(help="The repository, a path or URL; made if absent.")
    ] = None,
    file: RecipeFile = None,
    concat_dim: options.ConcatDim = None,
    group: options.Group = "/",
    branch: Annotated[str, typer.Option(help="The branch to commit to.")] = "main",
    message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
    mode: Annotated[
        ReplaceMode,
        typer.Option(
            help="w- refuses a group that holds nodes; w replaces what the last build of it made."
        ),
    ] = ReplaceMode.refuse,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Let --mode w remove variables and steps of the last build, change how they"
            " decode, or remove other people's work that it would replace.",
        ),
    ] = False,
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
    rescan_changed: Annotated[
        bool,
        typer.Option("--rescan-changed", help="Scan files again that change while the build runs."),
    ] = False,
    verify: Annotated[
        int | None,
        typer.Option(min=0, help="Compare so many chunks with the files after the commit."),
    ] = None,
    promote: Annotated[
        str | None, typer.Option(help="The branch to move to the new snapshot when all passed.")
    ] = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Build a virtual dataset over files, without copying them."""
    import icevirt

    given = overruled(
        ctx,
        file,
        sources=sources,
        repo=repo,
        concat_dim=concat_dim or None,
        group=group,
        branch=branch,
        message=message,
        mode=mode.value,
        allow_changes=allow_changes,
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
        combine_attrs=cast("CombineAttrs", combine_attrs),  # build checks it
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
        rescan_changed=rescan_changed,
        verify=verify,
        promote=promote,
    )
    require(given, repo="REPO")
    require_sources(given)
    if given["sources"] is None and re.search(r"^@|^-$|[*?]", str(given["repo"])):
        raise typer.BadParameter(f"{given['repo']} stands where the repository is named")
    with progress(quiet=quiet) as listener:
        report = icevirt.build(**given, progress=listener)
    return CommandResult(value=report, output=output, quiet=quiet)
