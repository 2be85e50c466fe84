"""`icevirt.build`: from source files to a committed snapshot, in one call.

list -> scan (Spark) -> catalog -> plan (pure) -> write (Spark) -> recheck -> commit. What comes
before the commit lies in the build's own folder of the repository or in objects that nothing
refers to; the commit is one conditional write. So a build that is killed leaves the repository as
it was, and the same build run again finds its finished parts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from icevirt.api import outcome
from icevirt.api.clock import Clock
from icevirt.api.request import (
    MAX_NATIVE_BYTES,
    apart,
    check_arguments,
    identity_of,
    listed,
    outside,
    scan_options,
    shared,
)
from icevirt.api.stages import Job, Scan, closed_catalog, scan_missing, write_all
from icevirt.api.target import METADATA, Target, digest_of
from icevirt.archive.plan import BuildPlan, WriteResult
from icevirt.archive.report import BuildReport, Progress
from icevirt.archive.scanned import SourceFile
from icevirt.errors import BuildError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.logic.attributes import CombineAttrs, check_policy
from icevirt.logic.combine import combine
from icevirt.logic.duplicates import Duplicates, check_rule
from icevirt.logic.holes import Holes, check_holes
from icevirt.logic.wish import Wish
from icevirt.model.snapshot import ManifestFileInfo, ManifestRef
from icevirt.objects.listing import changed_since, list_sources
from icevirt.repo.publish import BUILD_ID, publish
from icevirt.spark.session import spark_or_local
from icevirt.storage.resolve import StorageLike
from icevirt.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP_SCAN_OF = 1000
"""A refused build of fewer files takes its catalog with it; a longer scan is worth keeping."""

_SHOWN = 10  # names in a message


def build(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    repo: StorageLike,
    *,
    concat_dim: str | None = None,
    group: str = "/",
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    mode: str = "w-",
    source_group: str = "/",
    variables: str | Iterable[str] = (),
    drop_variables: str | Iterable[str] = (),
    combine_attrs: CombineAttrs = "override",
    duplicates: Duplicates = "refuse",
    holes: Holes = "refuse",
    max_bad_files: int = 0,
    max_native_bytes: int = MAX_NATIVE_BYTES,
    scanner: str = "",
    allow_references_to: str | Iterable[str] = (),
    catalog: StorageLike | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> BuildReport:
    """Scan files on Spark and commit them as one virtual dataset.

    Args:
        sources: Globs, directories, paths or ``file://`` URLs of NetCDF-4/HDF5 files.
        repo: Path or URL of the repository; it is created if there is none.
        concat_dim: The dimension along which files are concatenated. One file needs none.
        group: Where in the repository the dataset goes.
        branch: The branch to commit to.
        message: Of the commit.
        metadata: Of the snapshot, beside what the build says of itself.
        mode: "w-" builds into an empty group; "w" replaces what is in the group, in a new snapshot.
        source_group: Take only what is below this group of the files.
        variables: Names or absolute paths of the only variables to take, coordinates included.
        drop_variables: Names or absolute paths of variables to leave out.
        combine_attrs: xarray's policy for attributes that differ between files.
        duplicates: Which of several files counts that hold the same steps along ``concat_dim``:
            "newest" by the time of modification, "version" by the name (numbers in it count as
            numbers), "first" or "last" in the order given. By default they are refused.
        holes: What becomes of steps for which some files lack a variable: "reserve" lets them read
            as missing values, where the variable has one; by default they are refused.
        max_bad_files: How many files may be left out because they cannot be scanned.
        max_native_bytes: Of values per file that may be stored because they cannot be referenced.
        scanner: The scanner to use, like ``virtualizarr:FITSParser``; chosen by each file's content
            by default.
        allow_references_to: Directories and URL prefixes into which references of the files may
            lead, beside their own directories. Only files of references have any.
        catalog: Directory of a catalog that is kept and used again; by default it lies in the
            repository until the build succeeded.
        spark: The session to run on; by default the active one, or a local one for this call.
        progress: Called with every step of the long phases.

    Raises:
        InvalidInputError: Something named here is wrong; `NotFoundError` if it does not exist.
        AlreadyExistsError: The path holds something else, or the group is not empty.
        ScanError: More files are bad than allowed.
        CombineError: The files do not combine without changing values.
        ConflictError: Somebody committed to the same group meanwhile.
        BuildError: Sources changed since the scan, or Spark failed.
    """
    check_arguments(
        group=group, branch=branch, message=message, metadata=metadata, max_bad_files=max_bad_files
    )
    check_policy(combine_attrs)
    check_rule(duplicates)
    check_holes(holes)
    clock = Clock()
    with clock.phase("list"):
        target = Target.look(shared(repo), branch=branch, group=group, mode=mode)
        files = outside(target.storage, list_sources(sources))
    options = scan_options(
        concat_dim=concat_dim,
        group=source_group,
        variables=variables,
        drop_variables=drop_variables,
        max_native_bytes=max_native_bytes,
        scanner=scanner,
        allow_references_to=allow_references_to,
    )
    choices = [combine_attrs, duplicates, holes]
    inputs = digest_of(__version__, identity_of(options), choices, target.group, listed(files))
    last = target.last_build()
    if last is not None and outcome.inputs_of(last) == inputs and target.still_holds(last):
        report = outcome.already_built(target, last, clock.seconds)
        if len(report.bad_files) <= max_bad_files:
            target.record(report.build_id).delete_all()  # of a run killed behind its commit
            return report
    target.refuse_occupied()
    build_id = digest_of(inputs, branch, "" if last is None else str(last.id))
    record = target.record(build_id)
    scan = Scan(
        files=files,
        options=options,
        catalog=record.below("catalog/") if catalog is None else apart(target.storage, catalog),
        max_bad_files=max_bad_files,
        progress=progress,
    )
    wish = Wish(
        build_id=build_id,
        concat_dim=concat_dim,
        group=target.group,
        combine_attrs=combine_attrs,
        duplicates=duplicates,
        holes=holes,
    )
    told = {"build_id": build_id, "inputs": inputs, "group": target.group, "icevirt": __version__}
    try:
        report = _run(
            Job(build_id=build_id, scan=scan, target=target, record=record),
            wish,
            spark=spark,
            clock=clock,
            message=message,
            metadata={**(metadata or {}), BUILD_ID: build_id, METADATA: told},
        )
    except ObjectNotFoundError as error:
        # the same build may run twice at once: who is done first takes the shared work away
        raise BuildError(
            "the work of this build was taken away while it ran",
            do="If the same build ran twice at once, look whether the other one is committed;"
            " else build again.",
            missing=error.facts.get("path"),
        ) from error
    except Exception:
        if len(files) < KEEP_SCAN_OF:
            target.abandon(build_id)
        raise
    record.delete_all()
    return report


def _run(
    job: Job,
    wish: Wish,
    *,
    spark: SparkSession | None,
    clock: Clock,
    message: str | None,
    metadata: Mapping[str, Any],
) -> BuildReport:
    with _started(clock, spark) as session:
        with clock.phase("scan"):
            scanned = scan_missing(session, job.scan)
        with clock.phase("plan"):
            closed = closed_catalog(job.scan)
            plan = combine(closed.facts, wish)
            job.target.rehearse(plan)
        with clock.phase("write"):
            results = write_all(session, job, plan)
    with clock.phase("commit"):
        _refuse_losses(plan, results)
        _refuse_changed(job.scan.files)
        snapshot_id = _commit(
            job.target,
            plan,
            results,
            message=message,
            metadata=outcome.with_files(metadata, len(plan.files), closed.bad),
        )
    return outcome.report(
        job,
        plan,
        results,
        snapshot_id=snapshot_id,
        scanned=scanned,
        closed=closed,
        seconds=clock.seconds,
    )


@contextmanager
def _started(clock: Clock, spark: SparkSession | None) -> Iterator[SparkSession]:
    """Give a Spark session; the time it takes to start one is a phase of its own."""
    with ExitStack() as stack:
        with clock.phase("spark"):
            session = stack.enter_context(spark_or_local(spark))
        yield session


def _refuse_losses(plan: BuildPlan, results: list[WriteResult]) -> None:
    """Compare what was written with what was scanned, array by array."""
    written: Counter[bytes] = Counter()
    for result in results:
        for window in result.windows:
            written[window.node_id] += window.references.total
    for array in plan.arrays:
        if written[bytes(array.node_id)] != array.expected:
            raise BuildError(
                f"references of {array.path} were lost between scan and commit",
                do="Delete the catalog and build again; nothing was committed.",
                variable=array.path,
                scanned=array.expected,
                written=written[bytes(array.node_id)],
            )


def _refuse_changed(files: tuple[SourceFile, ...]) -> None:
    if changed := changed_since(files):
        raise BuildError(
            f"{len(changed)} of {len(files)} files changed since the scan",
            do="Build again when nobody writes to them; nothing was committed.",
            files=changed[:_SHOWN],
        )


def _commit(
    target: Target,
    plan: BuildPlan,
    results: list[WriteResult],
    *,
    message: str | None,
    metadata: Mapping[str, Any],
) -> str:
    manifests: dict[ObjectId8, list[ManifestRef]] = {array.node_id: [] for array in plan.arrays}
    for result in results:
        for window in result.windows:
            key = ObjectId12(result.manifest_id or b"")
            manifests[ObjectId8(window.node_id)].append(
                ManifestRef(object_id=key, extents=window.extents)
            )
    return publish(
        target.storage,
        branch=target.branch,
        message=message or f"Build from {len(plan.files)} files",
        metadata=metadata,
        groups=plan.groups,
        arrays={
            array.path: (array.zarr_json, array.node_id, manifests[array.node_id])
            for array in plan.arrays
        },
        manifest_files=[
            ManifestFileInfo(
                id=ObjectId12(result.manifest_id),
                size_bytes=result.size_bytes,
                num_chunk_refs=result.num_chunk_refs,
            )
            for result in results
            if result.manifest_id is not None
        ],
        replace_group=target.group if target.mode == "w" else None,
        containers=plan.containers,
        split_rules=plan.split_rules,
        expected_parent=str(target.tip),
    )
