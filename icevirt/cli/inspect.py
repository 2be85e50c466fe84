"""``icevirt info`` and ``icevirt scan``: what a repository or files hold."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

from icevirt.cli import options
from icevirt.cli.output import CommandResult, Output, OutputOption, progress


def info(
    repo: Annotated[str, typer.Argument(help="The repository, a path or URL.")],
    branch: Annotated[str | None, typer.Option(help="The branch to show; default main.")] = None,
    tag: Annotated[str | None, typer.Option(help="The tag to show.")] = None,
    snapshot_id: Annotated[str | None, typer.Option(help="The snapshot to show.")] = None,
    output: OutputOption = Output.text,
) -> CommandResult:
    """Show what a repository holds: its groups and arrays, and where their chunks lie."""
    import icevirt

    if sum(name is not None for name in (branch, tag, snapshot_id)) > 1:
        raise typer.BadParameter("give one of --branch, --tag and --snapshot-id")
    return CommandResult(
        value=icevirt.info(repo, branch=branch, tag=tag, snapshot_id=snapshot_id), output=output
    )


def scan(  # noqa: PLR0917 - each is an option of the command
    sources: options.Sources,
    catalog: Annotated[
        str | None,
        typer.Option(help="The catalog that many files are scanned into; made if absent."),
    ] = None,
    concat_dim: Annotated[
        list[str] | None,
        typer.Option(
            help="The dimension along which a build would concatenate; may be repeated. With"
            " --catalog by default those whose coordinate differs between the first file and the"
            " last."
        ),
    ] = None,
    group: Annotated[str, typer.Option(help="Look only below this group of the file.")] = "/",
    variable: options.Variable = None,
    drop_variable: options.DropVariable = None,
    max_bad_files: options.BadFiles = 0,
    max_native_bytes: options.NativeBytes = options.MANY,
    file_timeout: options.FileTimeout = options.MINUTES,
    file_memory: options.FileMemory = options.FOUR,
    scanner: options.Scanner = "",
    allow_references_to: options.ReferencesTo = None,
    policy: options.Policies = None,
    asset: options.Asset = None,
    access: options.Access = None,
    stack: Annotated[
        bool, typer.Option("--stack", help="Scan for a build that will be given --labels.")
    ] = False,
    label_variable: Annotated[
        list[str] | None,
        typer.Option(help="A variable that will tell labels (variable:NAME); may be repeated."),
    ] = None,
    pad: options.Pad = None,
    data_vars: options.DataVars = None,
    output: OutputOption = Output.text,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Show what a build would find in a file, or with --catalog scan many files for builds.

    With --catalog the status is 1 when more files are bad than --max-bad-files.
    """
    import icevirt

    how = _How(
        concat_dim=concat_dim or None,
        group=group,
        variables=tuple(variable or ()),
        drop_variables=tuple(drop_variable or ()),
        max_native_bytes=max_native_bytes,
        file_timeout=file_timeout,
        file_memory=file_memory,
        scanner=scanner,
        allow_references_to=tuple(allow_references_to or ()),
        policy=dict(policy) if policy else "fail",
        access=dict(access or ()),
    )
    if catalog is None:
        if len(sources) != 1 or sources[0] == "-" or sources[0].startswith("@"):
            raise typer.BadParameter("many files are scanned into a catalog: name a --catalog")
        scanned = icevirt.scan_file(sources[0], **how)
        return CommandResult(value=scanned, output=output, quiet=quiet)
    with progress(quiet=quiet) as listener:
        report = icevirt.scan_files(
            sources,
            catalog,
            max_bad_files=max_bad_files,
            asset=asset,
            stack=stack,
            label_variables=tuple(label_variable or ()),
            pad=tuple(pad or ()),
            data_vars=options.data_vars_of(data_vars),
            progress=listener,
            **how,
        )
    return CommandResult(value=report, output=output, quiet=quiet, status=0 if report.ok else 1)


class _How(TypedDict):
    """Arguments that one file and many take alike."""

    concat_dim: list[str] | None
    group: str
    variables: tuple[str, ...]
    drop_variables: tuple[str, ...]
    max_native_bytes: int
    file_timeout: float
    file_memory: str
    scanner: str
    allow_references_to: tuple[str, ...]
    policy: dict[str, str] | str
    access: dict[str, str]
