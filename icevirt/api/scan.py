"""Scan files without a repository: one file, or many into a catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from icevirt.api.choices import (
    Asked,
    Choices,
    CombineOptionsLike,
    ConcatDim,
    ListedFiles,
    ScanOptionsLike,
    check_group,
    share,
)
from icevirt.api.commit_options import CommitOptions, refuse_misplaced_options
from icevirt.api.dataset.scanning import Scan, read_catalog, scan_and_infer
from icevirt.api.events import Clock, long_running
from icevirt.api.plan import Plan, plan_asked
from icevirt.api.sources.inputs import Inputs, Sources, is_listable
from icevirt.archive.facts import ArrayColumns, Coded, Counts
from icevirt.archive.kinds import joint
from icevirt.archive.reports.build import BadFiles, Progress, Readers, ReferenceCounts
from icevirt.archive.reports.scan import PathSummary, ScanReport
from icevirt.archive.scanned import ScannedFile
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.execution.executor import job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of, work_of
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.planning import reader_support
from icevirt.planning.combine.options import CombineOptions
from icevirt.scan import registry
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.options import ScanOptions, bad_files_allowed
from icevirt.storage.constructors import StorageLike
from icevirt.tasks.scan_file import Containment

_ROWS = 1 << 16  # arrays of files that are summed up together


@refuse_misplaced_options
def scan_file(
    url: str | os.PathLike[str],
    *,
    concat_dim: ConcatDim = None,
    scan_options: ScanOptionsLike = None,
    access: Mapping[str, Any] | None = None,
) -> ScannedFile:
    """Describe a file: its groups, arrays, chunk references and what was decided about them.

    Args:
        url: Path or URL of the file.
        concat_dim: Dimension, or dimensions, along which the file will be concatenated with others.
        scan_options: What to read of the file: `icevirt.ScanOptions`, or a mapping. With
            ``file_timeout`` or ``file_memory`` the scan runs in a child process with these limits:
            damaged files can crash libhdf5 or keep it busy forever.
        access: How to reach servers, by prefix; as for `build`.

    Raises:
        ArgumentError: A parameter has another name now; the message holds the replacement.
        InvalidInputError: The file has none of the variables named, or no such scanner.
        NotFoundError: There is no such file.
        ScanError: No scanner reads it, or it is damaged.
        UnsupportedError: Something in it has no exact representation.

    Examples:
        >>> icevirt.scan_file("archive/tas_2001.nc")
        <icevirt.ScannedFile file:///.../archive/tas_2001.nc 4 arrays, 15 references>
    """
    scan = ScanOptions.of(scan_options)
    if scan_options is None and (concat_dim is None or isinstance(concat_dim, str)):
        options = _usual(concat_dim)
    else:
        options = Choices.of(concat_dim, scan, None).scanner
    with grant_access(SourceAccess.of(access)), open_source(url) as source:
        if scan.file_timeout is None and scan.file_memory is None:
            scanned = registry.scan(source, options)
        else:
            with Containment(options, scan.limits) as containment:
                outcome = containment.attempt(source.file)
            if outcome.error is not None:
                raise outcome.error
            assert outcome.scanned is not None, "a file is scanned or bad"
            scanned = outcome.scanned
    registry.refuse_unknown(options, scanned)
    more = reader_support.findings(scanned)
    return replace(scanned, findings=(*scanned.findings, *more)) if more else scanned


@lru_cache(64)
def _usual(concat_dim: str | None) -> ScannerOptions:
    """Return what scanners are given where no options are, for a description of one file."""
    return replace(Choices.of(concat_dim, None, None).scanner, strict=True)


@refuse_misplaced_options
def scan_files(
    sources: Sources,
    catalog: StorageLike,
    *,
    concat_dim: ConcatDim = None,
    scan_options: ScanOptionsLike = None,
    combine_options: CombineOptionsLike = None,
    access: Mapping[str, Any] | None = None,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> ScannedArchive:
    """Scan many files in parallel into a catalog, from which builds start.

    What the catalog describes already is not scanned again, so a scan that was killed goes on where
    it was. Builds may combine the files in any way: a catalog belongs to its ``scan_options``, and
    the dimension and ``combine_options`` are hints, which say what to take while files are open.

    Args:
        sources: Files and lists of them, as for `build`.
        catalog: Directory or URL of the catalog; made where there is none.
        concat_dim: As for `build`; by default the dimensions whose coordinate differs between the
            first good file and the last.
        scan_options: What to read of files: `icevirt.ScanOptions`, or a mapping. If more files are
            bad than ``max_bad_files``, ``report.ok`` is false, and they are tried again by the
            next scan.
        combine_options: How builds will combine the files: `icevirt.CombineOptions`, or a mapping.
        access: How to reach servers, by prefix; as for `build`.
        executor: What runs tasks; as for `build`.
        progress: Called with every step.

    Raises:
        ArgumentError: A parameter has another name now; the message holds the replacement.
        InvalidInputError: Something named here is wrong; `NotFoundError` if it does not exist.
        AlreadyExistsError: The path of the catalog holds something else.
        FormatError: The catalog is of another version.
        BuildError: Spark failed.

    Examples:
        >>> icevirt.scan_files("archive/*.nc", "scans")
        <ScannedArchive 5 files  4 arrays  1.7 MiB>
    """
    choices = Choices.of(concat_dim, scan_options, combine_options)
    limits = choices.scan.limits
    storage = share(catalog)
    clock = Clock(progress)
    with ExitStack() as kept:
        kept.enter_context(long_running("scan", clock))
        kept.enter_context(job_tags(storage.url))
        kept.enter_context(grant_access(SourceAccess.of(access)))
        with clock.phase("list"):
            files = Inputs(sources, asset=choices.scan.asset).files()
        job = Scan(
            files=files,
            options=choices.scanner,
            catalog=storage,
            max_bad_files=bad_files_allowed(choices.scan.max_bad_files, len(files)),
            progress=clock.step,
            limits=limits,
        )
        with clock.phase("executor"):
            found = executor_of(executor, work=work_of(files), phase=clock.phase)
            running = kept.enter_context(found)
            check_before_first(running, ClusterNeeds.of(files, storage))
        clock.kept = storage.url
        with clock.phase("scan"):
            job, scanned = scan_and_infer(running, job, choices.inferring)
    with clock.phase("read"):
        closed = read_catalog(job)
        report = _report(job, closed, scanned, running.name, clock)
    is_kept = job.tolerates(closed)  # bad files that are too many are tried again
    asked = Asked(
        sources=None,
        choices=choices,
        commit=CommitOptions(),
        catalog=storage,
        access=access,
        executor=executor,
        listed=ListedFiles(
            files=files,
            options=job.options,
            nest=None,
            closed=closed if is_kept else None,
            named=sources if is_listable(sources) else None,
        ),
    )
    held = {each.name: getattr(report, each.name) for each in fields(report)}
    return ScannedArchive(**held, asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScannedArchive(ScanReport):
    """Files in a catalog; `combine` plans a dataset of them.

    All plans share what was read of the catalog: columns, without references.
    """

    asked: Asked = field(compare=False)  # what was scanned

    def combine(
        self,
        concat_dim: ConcatDim = None,
        *,
        group: str = "/",
        repo: StorageLike | None = None,
        progress: Callable[[Progress], None] | None = None,
        combine_options: CombineOptionsLike = None,
        **options: Any,
    ) -> Plan:
        """Plan one dataset of the files; nothing is written but facts that the catalog lacks.

        Args:
            concat_dim: As for `icevirt.build`; by default the dimensions of the scan.
            group: Where in a repository the dataset will go.
            repo: A repository, to compare with its last build; see `Plan.changes`.
            progress: Called with every step of the long phases.
            combine_options: As for `icevirt.build`; beside the options that the scan was given.
            options: The same options as keywords, like ``missing="reserve"``.

        Raises:
            IcevirtError: As for `icevirt.plan`.
        """
        known = self.asked
        assert known.listed is not None, "the files of a scan are listed"
        scan = known.choices.scan
        chosen = CombineOptions.of(combine_options).list_chosen()
        given = CombineOptions.of({**known.choices.combine.list_chosen(), **chosen, **options})
        choices = Choices.of(concat_dim, scan, given)
        scanner = choices.scanner
        if concat_dim is None:  # what the scan inferred
            scanner = replace(scanner, concat_dim=known.listed.options.concat_dim)
        listed = replace(known.listed, options=scanner)
        asked = replace(known, choices=choices, group=check_group(group), listed=listed)
        return plan_asked(asked, repo=repo, progress=progress)


def _report(
    job: Scan, closed: ClosedCatalog, scanned: int, executor: str, clock: Clock
) -> ScanReport:
    arrays = _paths(closed.facts.arrays)
    return ScanReport(
        catalog=job.catalog.url,
        files=len(job.files),
        files_scanned=scanned,
        files_reused=len(job.files) - scanned,
        bytes=int(closed.facts.files.size.sum()),
        bad_files=BadFiles(closed.bad),
        bad_files_allowed=job.max_bad_files,
        arrays=arrays,
        findings=(
            *closed.findings,
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
        for low in range(0, len(codes), _ROWS):
            some = slice(low, low + _ROWS)
            np.add.at(sums, codes[some], column.held[some])
        return sums.tolist()

    def distinct(column: Coded) -> list[int]:
        pairs, _ = joint([codes, column.codes], [count, len(column.values)])
        return np.bincount(pairs[:, 0], minlength=count).tolist()

    decoded_by = [Readers()] * count
    schemas_of, _ = joint([codes, arrays.schema.codes], [count, len(arrays.schema.values)])
    known = [reader_support.readers_of_schema(text) for text in arrays.schema.values]
    for path, schema in schemas_of.tolist():
        decoded_by[path] |= known[schema]
    found = zip(
        arrays.path.values,
        np.bincount(codes, minlength=count).tolist(),
        distinct(arrays.shape),
        distinct(arrays.schema),
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
