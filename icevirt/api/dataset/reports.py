"""Say what a call did with a dataset: the reports of builds, and of calls that say more."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from icevirt.api.dataset.target import Target
from icevirt.api.dataset.writing import Job
from icevirt.archive.plan import BuildPlan, PlannedArray, WriteResult
from icevirt.archive.reports.build import (
    ArraySummary,
    BadFile,
    BuildReport,
    Opening,
    ReferenceCounts,
)
from icevirt.model.json import loads
from icevirt.model.snapshot import chunk_extents
from icevirt.objects.authorize import entry_of
from icevirt.planning.reader_support import readers_of_document


def count_eras(plan: BuildPlan) -> tuple[int, bool]:
    """Return the number of groups of a plan, and whether they open as one dataset."""
    return (1, True) if plan.eras is None else (plan.eras.count, plan.eras.as_one)


def report_on[R: BuildReport](kind: type[R], target: Target, **said: Any) -> R:
    """Return a report on a dataset: what is said of it, and that nothing else was done."""
    usual: dict[str, Any] = {
        "repo": target.storage.url,
        "branch": target.branch,
        "group": target.group,
        "already_built": False,
        "findings": (),
        **dict.fromkeys(("bad_files", "arrays"), ()),
        **dict.fromkeys(("files_scanned", "files_reused", "manifests", "manifest_bytes"), 0),
    }
    return kind(**{**usual, **said})


def report_unchanged[R: BuildReport](
    kind: type[R], target: Target, record: Mapping[str, Any], **said: Any
) -> R:
    """Return the report of a call that committed nothing to a dataset, or not yet."""
    usual = {
        "snapshot_id": "" if target.info is None else str(target.tip),
        "build_id": str(record.get("build_id", "")),
        "already_built": True,
        "containers": tuple(map(entry_of, target.config.virtual_chunk_containers.values())),
        "eras": int(record.get("eras", 1)),
    }
    return report_on(kind, target, **{**usual, **said})


def facts_of(report: BuildReport) -> dict[str, Any]:
    """Return what a report says as any build's does, for a report that says more."""
    return {each.name: getattr(report, each.name) for each in fields(BuildReport)}


def report_of(
    job: Job,
    plan: BuildPlan,
    results: list[WriteResult],
    *,
    scanned: int,
    bad: tuple[BadFile, ...],
    findings: tuple[str, ...],
    **said: Any,
) -> BuildReport:
    """Return the report of a build that was committed."""
    eras, as_one = count_eras(plan)
    containers = tuple(map(entry_of, plan.containers))
    return report_on(
        BuildReport,
        job.target,
        build_id=job.build_id,
        files_scanned=scanned,
        files_reused=len(job.scan.files) - scanned,
        bad_files=bad,
        arrays=_summaries(plan, results),
        manifests=sum(result.manifest_id is not None for result in results),
        manifest_bytes=sum(result.size_bytes for result in results),
        containers=containers,
        opening=Opening(authorization=dict.fromkeys(containers)),  # of files that were planned
        findings=(*plan.notes, *findings),
        eras=eras,
        opens_as_one=as_one,
        **said,
    )


def _summaries(plan: BuildPlan, results: list[WriteResult]) -> tuple[ArraySummary, ...]:
    counts: dict[bytes, ReferenceCounts] = defaultdict(ReferenceCounts)
    manifests: dict[bytes, int] = defaultdict(int)
    for result in results:
        for window in (each for each in result.windows if not each.is_empty):
            counts[window.node_id] += window.references
            manifests[window.node_id] += 1
    return tuple(
        summarize_array(
            array,
            array.zarr_json,
            references=counts[bytes(array.node_id)],
            manifests=manifests[bytes(array.node_id)],
        )
        for array in plan.arrays
    )


def summarize_array(
    array: PlannedArray, zarr_json: bytes, *, references: ReferenceCounts, manifests: int
) -> ArraySummary:
    """Return what a report says of an array, whose metadata is as it was committed."""
    kind, document = array.schema.data_type, loads(zarr_json)
    return ArraySummary(
        path=array.path,
        data_type=kind if isinstance(kind, str) else json.dumps(kind),
        shape=tuple(document["shape"]),
        chunk_shape=chunk_extents(document["chunk_grid"]),
        dimension_names=array.schema.dimension_names,
        references=references,
        manifests=manifests,
        readers=readers_of_document(document),
    )
