"""`icevirt.build`: from source files to a committed snapshot, in one call.

list -> scan (Spark) -> catalog -> plan (pure) -> write (Spark) -> recheck -> commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from icevirt.api.arguments import (
    FILE_MEMORY,
    FILE_TIMEOUT,
    ConcatDim,
    LabelsLike,
    RegularLike,
    apart,
    check_arguments,
    dimensions_of,
    label_variables,
    labels_of,
    limits_of,
    names_of,
    regular_of,
    rules,
    scan_options,
    shared,
)
from icevirt.api.editing import Edits, Preprocess
from icevirt.api.pipeline.build_steps import ExecutorStarter, Request, until_unchanged
from icevirt.api.pipeline.events import tell_committed, telling_failures
from icevirt.api.pipeline.phase_clock import Clock
from icevirt.api.pipeline.promotion import check_promotion, prepare, promoted, refuse_differences
from icevirt.api.sources.catalog_inputs import inputs_of
from icevirt.api.sources.inputs import Sources
from icevirt.api.sources.named_containers import NamedContainers
from icevirt.api.sources.nested_lists import nest_of
from icevirt.api.sources.published_urls import Publication
from icevirt.archive.eras import EraRule
from icevirt.archive.reports.build import BuildReport, Progress
from icevirt.execution.selection import ExecutorChoice
from icevirt.model import paths
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.planning.axes.duplicates import Duplicates, check_rule
from icevirt.planning.axes.gaps import Holes, check_holes
from icevirt.planning.combine.combine_attrs import CombineAttrs, check_policy
from icevirt.planning.combine.data_vars import DataVarsLike, data_vars_of, refuse_unknown_dimensions
from icevirt.planning.combine.deviation_rules import MAX_NATIVE_BYTES, ChunkGrid, Deviating
from icevirt.planning.combine.options import Combine, Wish, check_combine
from icevirt.planning.combine.tolerance import ToleranceLike, tolerance_of
from icevirt.planning.eras.group_plan import check_eras
from icevirt.scan.policy import PolicyLike
from icevirt.storage.resolve import StorageLike


def build(
    sources: Sources | None,
    repo: StorageLike,
    *,
    concat_dim: ConcatDim = None,
    group: str = "/",
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    mode: str = "w-",
    allow_changes: bool = False,
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
    rescan_changed: bool = False,
    verify: int | None = None,
    promote: str | None = None,
    spark: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> BuildReport:
    """Scan files on Spark and commit them as one virtual dataset.

    Args:
        sources: Globs, directories, paths and URLs of files, and lists of them: ``"@list.csv"``,
            ``"-"`` for stdin, or a table with a column ``url``; see docs/catalog.md. None takes all
            files that scans with these options into ``catalog`` were asked for.
        repo: Path or URL of the repository; it is created if there is none.
        concat_dim: The dimension along which files are concatenated, or several, the outermost
            first. By default those whose coordinate differs between the first file and the last,
            as xarray's ``combine_by_coords`` infers them. One file needs none.
        group: Where in the repository the dataset goes.
        branch: The branch to commit to.
        message: Of the commit.
        metadata: Of the snapshot, beside what the build says of itself.
        mode: "w-" builds into an empty group; "w" replaces what the last build made
            of the group, in a new snapshot, and keeps what others put there.
        allow_changes: Whether "w" may take away variables and steps that the last build of the
            group made, change their types, fixed lengths and decoding, or remove other people's
            work that it would replace; without it, such builds are refused.
        source_group: Take only what is below this group of the files.
        variables: Names or absolute paths of the only variables to take, coordinates included.
        drop_variables: Names or absolute paths of variables to leave out.
        rename: New names of variables and dimensions by old ones, as in ``Dataset.rename``;
            absolute paths of variables are names too.
        attrs: Attributes to set by variable (as it is called then; ``"/"`` is the dataset), each a
            mapping of names to values; None removes one. Attributes that decode values are
            corrected: the stored numbers stay, and files that differ in them are refused.
        preprocess: A function, or its name as ``"package.module:function"``, that is given an
            `icevirt.FileFacts` of each file and returns `icevirt.FileChanges` (names, variables to
            drop, attributes) or None. It runs here, before ``rename`` and ``attrs``.
        tolerance: How far values may differ that must be alike in all files: a number for all
            coordinates of dimensions, or by name like ``{"lat": 1e-6}``. Absolute, in the
            variable's units; those of the first file count.
        combine_attrs: xarray's policy for attributes that differ between files.
        duplicates: Which of several files counts that hold the same steps along ``concat_dim``:
            "newest" by the time of modification, "version" by the name (numbers in it count as
            numbers), "first" or "last" in the order given. By default they are refused, even if
            all files hold the same step.
        holes: What becomes of steps for which some files lack a variable: "reserve" lets them read
            as missing values, where the variable has one; by default they are refused.
        eras: What becomes of files that decode unlike: "group" makes a group for each era (files
            that decode alike), ``era_0`` and so on below ``group``, all in one commit; the engine
            shows them as one dataset with ``eras="concat"``. By default they are refused.
        labels: Stack the files along ``concat_dim`` as a new dimension, whose labels these are: a
            list in the order of the files, ``"regex:PATTERN"`` with one group that is found in the
            file's URL, ``"attribute:NAME"`` of the file, or ``"variable:NAME"`` with one value in
            each file, or ``"preprocess"``: what that function says. Files of one label are merged.
            Where ``concat_dim`` names several dimensions, a mapping of the new ones to their
            labels.
        combine: "by_coords" places files by their coordinates and labels, "nested" where they stand
            in ``sources``: in the order given, or for several dimensions in nested lists, the
            outermost along the first dimension, with None for a file that is missing. Use it for
            files whose coordinates do not give their order.
        regular: How far apart the steps of a dimension are, like ``"6h"``, or by dimension
            ``{"time": "1D"}``: steps that no file holds get their place, and read as missing.
        pad: Dimensions along which files have different lengths: arrays are as long as the longest
            file's, and the ends of others read as missing.
        data_vars: Which variables get a concatenated dimension that they lack, as in xarray: "all"
            data variables, "minimal" (none), or names; or by dimension, like
            ``{"member": ["all", "lat"], "time": "minimal"}``. By default all data variables get a
            new dimension, and no variable gets a dimension that the files have. Variables that do
            not get a dimension must hold equal values along it.
        max_bad_files: How many files may be left out because they cannot be scanned: a number, or
            a share like ``"1%"``.
        max_native_bytes: Of values that may be stored because they cannot be referenced: of each
            file when it is scanned, and of all chunks that files meet in or that differ.
        deviating: What becomes of files that cut, compress or pack a variable in another way than
            most: "native" reads them and stores these chunks as the others are encoded, where
            every value survives exactly; by default they are refused.
        float_variables: Names or absolute paths of packed variables that are stored as the floats
            that their values mean, all of them.
        chunk_grid: "rectilinear" lets chunks follow those of the files where a grid of chunks of
            one length would not (years of 365 and 366 days); readers need zarr 3.4 and its
            setting ``array.rectilinear_chunks``.
        file_timeout: Seconds that the scan of one file may take; one that takes longer is bad as
            ``timeout``, until it is given more.
        file_memory: Memory that the scan of one file may take beside what its process has: bytes,
            or text like ``"4GiB"``; one that wants more is bad as ``oom``, until it is given more.
        scanner: The scanner to use, like ``virtualizarr:FITSParser``; chosen by each file's content
            by default.
        allow_references_to: Directories and URL prefixes into which references of the files may
            lead, beside their own directories: of files of references, virtual datasets and raw
            files of HDF5.
        policy: What becomes of variables: "fail" (what cannot be represented stops the scan of its
            file) or "skip" (it is left out, with a warning) for all, or a mapping of names, paths
            and patterns like ``{"/raw/*": "skip", "mask": "native"}``, the first that fits. More
            policies are "reference" (or an error), "native" (read and stored in chunks) and
            "inline" (in one).
        asset: Which asset of STAC items is the file; by default the one with the role "data".
        publish_as: Prefixes of the files, and those under which the same files will be read:
            references are written with these. Lengths and checksums are taken from there; a file
            that is not there, or of another length, stops the build.
        containers: Names of virtual chunk containers, and their prefixes: references below these
            are written relative to the name (``vcc://name/path``), so that the files can be moved
            together by changing the container. Other references are absolute URLs.
        access: How servers of the files are reached, by prefix of their URLs: credentials like
            ``icevirt.s3_credentials(...)``, or a word ("anonymous", "environment", "netrc",
            "requester-pays", or "package.module:function" of a function that returns credentials
            and is asked again before they expire), or a store like ``icevirt.s3_store(...)``
            (region, endpoint, requester pays), or a pair of a store and credentials. Elsewhere, and
            where nothing is named, the environment says. What a store says is persisted for
            readers, in the container of the prefix; credentials are not.
        catalog: Directory of a catalog that is kept and used again; by default it lies in the
            repository until the build succeeded.
        rescan_changed: Scan files again that changed between scan and commit, a few times, instead
            of stopping.
        verify: Compare so many chunks with the files after the commit, and check all references;
            see `icevirt.verify`. Differences stop the build after its commit.
        promote: The branch that is moved to the new snapshot at the very end, in one step, so that
            its readers see nothing that did not pass. ``branch`` is made where it is not there.
        spark: What runs tasks: a Spark session, or "spark", "processes" (of this machine) or
            "in-process"; by default the active session, else processes for few files, else a local
            session.
        progress: Called with every step of the long phases.

    Raises:
        InvalidInputError: Something named here is wrong; `NotFoundError` if it does not exist.
        AlreadyExistsError: The path holds something else, or the group is not empty.
        ScanError: More files are bad than allowed.
        CombineError: The files do not combine without changing values. Where that is because they
            decode unlike, ``error.facts["eras"]`` describes their eras.
        ConflictError: Somebody committed to the same group meanwhile.
        SourcesChangedError: Files changed between scan and commit.
        PlanChangedError: Variables or steps of the last build would vanish or decode differently,
            or other people's work would be lost.
        VerificationError: The repository does not say what the files hold.
        BuildError: Spark failed, or something else outside the files.
    """
    check_arguments(
        group=group, branch=branch, message=message, metadata=metadata, max_bad_files=max_bad_files
    )
    check_promotion(branch, promote, verify)
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
    publication = Publication.of(publish_as)
    named = NamedContainers.of(containers)
    reach = SourceAccess.of(access)
    storage = shared(repo)
    kept = None if catalog is None else apart(storage, catalog)
    limits = limits_of(file_timeout, file_memory)
    infers = concat_dim is None and not told and combine == "by_coords" and not rename
    clock = Clock(progress)
    if promote is not None:
        prepare(storage, branch, promote)
    with ExitStack() as stack:
        stack.enter_context(telling_failures("build"))
        stack.enter_context(granted(reach))
        starter = ExecutorStarter(stack, clock, spark)
        nest = nest_of(sources, dimensions, combine)
        with clock.phase("list"):
            inputs, options = inputs_of(
                nest.sources if nest else sources,
                catalog,
                options,
                asset=asset,
                limits=limits,
                infers=infers,
                leave=tolerated,
            )
        wish = Wish(
            build_id="",
            concat_dim=options.concat_dims,
            group=paths.creatable(group),
            combine_attrs=combine_attrs,
            duplicates=duplicates,
            holes=holes,
            eras=eras,
            labels=told,
            tolerance=tolerated,
            combine=combine,
            regular=regular_of(regular, options.concat_dims),
            data_vars=given,
            pad=options.pad,
            rules=stored,
        )
        request = Request(
            storage=storage,
            catalog=kept,
            branch=branch,
            mode=mode,
            allow_changes=allow_changes,
            message=message,
            metadata=metadata or {},
            max_bad_files=max_bad_files,
            limits=limits,
            options=options,
            wish=wish,
            edits=edits,
            nest=nest,
            publication=publication,
            containers=named,
            progress=clock.step,
        )
        report = until_unchanged(request, inputs, starter, clock, rescans=3 * rescan_changed)
        tell_committed(report)
        if verify is not None:
            with clock.phase("verify"):
                refuse_differences(storage, report, values=verify, executor=starter.choice)
    if promote is not None:
        promoted(storage, report, promote)
    return replace(report, seconds=clock.seconds)
