"""Scan files without a repository: one by hand, or many on Spark into a catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.api.arguments import (
    FILE_MEMORY,
    FILE_TIMEOUT,
    ConcatDim,
    bad_files_allowed,
    check_arguments,
    limits_of,
    scan_options,
    shared,
)
from icevirt.api.pipeline.events import telling_failures
from icevirt.api.pipeline.inference import with_dimensions
from icevirt.api.pipeline.phase_clock import Clock
from icevirt.api.pipeline.stages import Scan, scan_missing, scanned_catalog
from icevirt.api.sources.catalog_inputs import scans_alike
from icevirt.api.sources.inputs import Inputs, Sources
from icevirt.archive.facts import ArrayColumns, Counts
from icevirt.archive.limits import ScanLimits
from icevirt.archive.reports.build import Progress, ReferenceCounts
from icevirt.archive.reports.readers import Readers
from icevirt.archive.reports.scan import PathSummary, ScanReport
from icevirt.archive.scanned import ScannedFile, SourceFile
from icevirt.execution.selection import ExecutorChoice, executor_of, work_of
from icevirt.objects.source import open_source
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.planning import reader_support
from icevirt.planning.combine.data_vars import DataVarsLike, data_vars_of
from icevirt.planning.combine.deviation_rules import MAX_NATIVE_BYTES
from icevirt.scan import registry
from icevirt.scan.contract import ScanOptions
from icevirt.scan.policy import PolicyLike
from icevirt.storage.resolve import StorageLike
from icevirt.tasks.scan_subprocess import Containment


def scan_file(
    url: str | os.PathLike[str],
    *,
    concat_dim: ConcatDim = None,
    group: str = "/",
    variables: str | Iterable[str] = (),
    drop_variables: str | Iterable[str] = (),
    max_native_bytes: int = MAX_NATIVE_BYTES,
    scanner: str = "",
    allow_references_to: str | Iterable[str] = (),
    policy: PolicyLike = "fail",
    access: Mapping[str, Any] | None = None,
    file_timeout: float | None = None,
    file_memory: int | str | None = None,
) -> ScannedFile:
    """Describe a file: its groups, arrays, chunk references and what was decided about them.

    Args:
        url: Path or URL of the file.
        concat_dim: Dimension, or dimensions, along which the file will be concatenated with others.
        group: Scan only below this group of the file, which becomes the root.
        variables: Names or absolute paths of the only variables to take; all by default.
        drop_variables: Names or absolute paths of variables to leave out.
        max_native_bytes: How many bytes of values may be read and stored because they cannot be
            referenced.
        scanner: The scanner to use, like ``virtualizarr:FITSParser``; chosen by the file's content
            by default.
        allow_references_to: Directories and URL prefixes into which references of the file may
            lead, beside its own directory: of files of references, virtual datasets and raw
            files of HDF5.
        policy: What becomes of variables: "fail" (what cannot be represented stops the scan of its
            file) or "skip" (it is left out, with a warning) for all, or a mapping of names, paths
            and patterns like ``{"/raw/*": "skip", "mask": "native"}``, the first that fits. More
            policies are "reference" (or an error), "native" (read and stored in chunks) and
            "inline" (in one).
        access: How servers are reached, by prefix; as for `build`.
        file_timeout: Scan in a child process that may take so many seconds. Damaged files can crash
            libhdf5 or keep it busy for ever, and with it the process that asks.
        file_memory: Scan in a child process that may take so much memory: bytes, or text like
            ``"4GiB"``. Where only one of the two is given, the other is that of `scan_files`.

    Raises:
        InvalidInputError: The file has none of the variables named, or there is no such scanner.
        NotFoundError: There is no such file.
        ScanError: No scanner reads it, or it is damaged.
        UnsupportedError: Something in it has no exact representation.
    """
    options = scan_options(
        concat_dim=concat_dim,
        group=group,
        variables=variables,
        drop_variables=drop_variables,
        max_native_bytes=max_native_bytes,
        scanner=scanner,
        allow_references_to=allow_references_to,
        policy=policy,
    )
    limits = limits_of(
        FILE_TIMEOUT if file_timeout is None else file_timeout,
        FILE_MEMORY if file_memory is None else file_memory,
    )
    with granted(SourceAccess.of(access)), open_source(url) as source:
        if file_timeout is None and file_memory is None:
            scanned = registry.scan(source, options)
        else:
            scanned = _scanned_in_child(source.file, options, limits)
    registry.refuse_unknown(options, scanned)
    return replace(scanned, findings=(*scanned.findings, *reader_support.findings(scanned)))


def _scanned_in_child(file: SourceFile, options: ScanOptions, limits: ScanLimits) -> ScannedFile:
    with Containment(options, limits) as containment:
        outcome = containment.attempt(file)
    if outcome.error is not None:
        raise outcome.error
    assert outcome.scanned is not None, "a file is scanned or bad"
    return outcome.scanned


def scan_files(
    sources: Sources,
    catalog: StorageLike,
    *,
    concat_dim: ConcatDim = None,
    group: str = "/",
    variables: str | Iterable[str] = (),
    drop_variables: str | Iterable[str] = (),
    max_bad_files: int | str = 0,
    max_native_bytes: int = MAX_NATIVE_BYTES,
    file_timeout: float = FILE_TIMEOUT,
    file_memory: int | str = FILE_MEMORY,
    scanner: str = "",
    allow_references_to: str | Iterable[str] = (),
    policy: PolicyLike = "fail",
    asset: str | None = None,
    stack: bool = False,
    label_variables: str | Iterable[str] = (),
    pad: str | Iterable[str] = (),
    data_vars: DataVarsLike = None,
    access: Mapping[str, Any] | None = None,
    spark: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> ScanReport:
    """Scan many files on Spark into a catalog, from which builds start.

    What the catalog describes already is not scanned again, so a scan that was killed goes on where
    it was. A build finds the files of a scan that had the same ``concat_dim``, variables and
    scanner.

    Args:
        sources: Files and lists of them, as for `build`.
        catalog: Directory or URL of the catalog; made where there is none.
        concat_dim: As for `scan_file`, like the further arguments; by default that of the scan
            which the catalog holds, or as for `build` the dimensions whose coordinate differs
            between the first file and the last.
        group: Of the files; `build` calls it ``source_group``.
        variables: The only variables to take.
        drop_variables: Variables to leave out.
        max_bad_files: How many files may be unreadable: a number, or a share like ``"1%"``. If
            more are, ``report.ok`` is false, and they are tried again by the next scan.
        max_native_bytes: Of values per file that may be stored.
        file_timeout: Seconds that the scan of one file may take. One that takes longer is bad as
            ``timeout``, and tried again by a scan that gives it more.
        file_memory: Memory that the scan of one file may take beside what its process has: bytes,
            or text like ``"4GiB"``. One that wants more is bad as ``oom``, and tried again by a
            scan that gives it more.
        scanner: The scanner to use.
        allow_references_to: Where references of the files may lead.
        policy: What becomes of variables.
        asset: Which asset of STAC items is the file.
        stack: The build will stack files along new dimensions (its ``labels``).
        label_variables: Variables that will tell labels (``"variable:NAME"``).
        pad: Dimensions that the build will pad.
        data_vars: Which variables will get a dimension, if the build stacks files.
        access: How servers are reached, by prefix; as for `build`.
        spark: What runs tasks: a Spark session, or "spark", "processes" (of this machine) or
            "in-process"; by default the active session, else processes for few files, else a local
            session.
        progress: Called with every step.

    Raises:
        InvalidInputError: Something named here is wrong; `NotFoundError` if it does not exist.
        AlreadyExistsError: The path of the catalog holds something else.
        FormatError: The catalog is of another version.
        BuildError: Spark failed.
    """
    check_arguments(max_bad_files=max_bad_files)
    options = scan_options(
        concat_dim=concat_dim,
        group=group,
        variables=variables,
        drop_variables=drop_variables,
        max_native_bytes=max_native_bytes,
        scanner=scanner,
        allow_references_to=allow_references_to,
        policy=policy,
        stack=stack,
        label_variables=label_variables,
        pad=pad,
        data_vars=data_vars_of(data_vars),
    )
    limits = limits_of(file_timeout, file_memory)
    storage = shared(catalog)
    clock = Clock(progress)
    with ExitStack() as kept:
        kept.enter_context(telling_failures("scan"))
        kept.enter_context(granted(SourceAccess.of(access)))
        with clock.phase("list"):
            inputs = Inputs(sources, asset=asset)
            if concat_dim is None and not stack:
                known = [each for each in scans_alike(storage, options) if each.concat_dims]
                if len(known) == 1:
                    (options,) = known  # what is scanned into it one by one belongs together
                else:
                    options = with_dimensions(options, inputs, limits=limits)
            files = inputs.files()
        job = Scan(
            files=files,
            options=options,
            catalog=storage,
            max_bad_files=bad_files_allowed(max_bad_files, len(files)),
            progress=clock.step,
            limits=limits,
        )
        with clock.phase("executor"):
            executor = kept.enter_context(executor_of(spark, work=work_of(files)))
        with clock.phase("scan"):
            scanned = scan_missing(executor, job)
    with clock.phase("read"):
        return _report(job, scanned, executor.name, clock)


def _report(job: Scan, scanned: int, executor: str, clock: Clock) -> ScanReport:
    closed = scanned_catalog(job)
    arrays = _paths(closed.facts.arrays)
    return ScanReport(
        catalog=job.catalog.url,
        files=len(job.files),
        files_scanned=scanned,
        files_reused=len(job.files) - scanned,
        bytes=int(closed.facts.files.size.sum()),
        bad_files=closed.bad,
        bad_files_allowed=job.max_bad_files,
        arrays=arrays,
        findings=(
            *(text for _, text in closed.findings),
            *reader_support.describe_readers({array.path: array.readers for array in arrays}),
        ),
        executor=executor,
        seconds=clock.seconds,
    )


def _paths(arrays: ArrayColumns) -> tuple[PathSummary, ...]:
    """Sum up the arrays of all files by path."""
    codes, count = arrays.path.codes, len(arrays.path.values)

    def total(column: Counts) -> list[int]:
        sums = np.zeros(count, np.int64)
        np.add.at(sums, codes, column.held)
        return sums.tolist()

    def distinct(column: NDArray[np.integer]) -> list[int]:
        pairs = np.unique(np.stack([codes, column]), axis=1)
        return np.bincount(pairs[0], minlength=count).tolist()

    decoded_by = [Readers()] * count
    schemas_of = np.unique(np.stack([codes, arrays.schema.codes]), axis=1).T
    known = [reader_support.readers_of_schema(text) for text in arrays.schema.values]
    for path, schema in schemas_of.tolist():
        decoded_by[path] |= known[schema]
    found = zip(
        arrays.path.values,
        np.bincount(codes, minlength=count).tolist(),
        distinct(arrays.shape.codes),
        distinct(arrays.schema.codes),
        *map(total, (arrays.virtual, arrays.inline, arrays.virtual_bytes, arrays.inline_bytes)),
        decoded_by,
        strict=True,
    )
    return tuple(
        PathSummary(
            path=path,
            files=files,
            shapes=shapes,
            schemas=schemas,
            references=ReferenceCounts(
                virtual=virtual, inline=inline, bytes_referenced=there, bytes_stored=here
            ),
            readers=reader,
        )
        for path, files, shapes, schemas, virtual, inline, there, here, reader in sorted(
            found, key=itemgetter(0)
        )
    )
