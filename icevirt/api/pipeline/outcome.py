"""Assemble the report of a build from the results of its stages."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from icevirt.api.arguments import recorded_options
from icevirt.api.pipeline.provenance import provenance_of
from icevirt.api.pipeline.target import Target
from icevirt.archive.plan import BuildPlan, PlannedArray, WriteResult
from icevirt.archive.reports.build import ArraySummary, BadFile, BuildReport, ReferenceCounts
from icevirt.archive.reports.opening import Opening
from icevirt.archive.shares import ScanLimits
from icevirt.errors import ScanMemoryError, ScanTimeoutError
from icevirt.model.json import JSON
from icevirt.model.repo_info import SnapshotSummary
from icevirt.objects.authorize import entry_of
from icevirt.planning.reader_support import readers_of_json
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.version import __version__

if TYPE_CHECKING:
    from icevirt.api.pipeline.stages import Job


def inputs_of(snapshot: SnapshotSummary) -> tuple[str, str]:
    """Return digests of what a build was made of, with and without what was inferred."""
    return _metadata_text(snapshot, "inputs"), _metadata_text(snapshot, "asked")


def files_of(snapshot: SnapshotSummary) -> str:
    """Return the digest of the files that a build was made of."""
    return _metadata_text(snapshot, "listing")


def record_of(snapshot: SnapshotSummary) -> str:
    """Return the id under which a build kept what it finished."""
    return _metadata_text(snapshot, "record") or _metadata_text(snapshot, "build_id")


def may_scan_more(snapshot: SnapshotSummary, limits: ScanLimits) -> bool:
    """Say whether a build left out files that lower limits than these stopped."""
    stopped = {bad.code for bad in _bad_files(snapshot)}
    seconds, memory = (provenance_of(snapshot) or {}).get("limits", (0, 0))
    return (ScanTimeoutError.code in stopped and seconds < limits.seconds) or (
        ScanMemoryError.code in stopped and memory < limits.memory
    )


def _metadata_text(snapshot: SnapshotSummary, name: str) -> str:
    return str((provenance_of(snapshot) or {}).get(name, ""))


def provenance(
    job: Job,
    plan: BuildPlan,
    bad: Sequence[BadFile],
    *,
    inputs: str,
    asked: Mapping[str, str],
    choices: Mapping[str, JSON],
) -> dict[str, Any]:
    """Return what the snapshot says of the build, so that it can be found again and repeated."""
    catalog = job.scan.catalog.url
    return {
        "build_id": job.build_id,
        "inputs": inputs,  # digest of versions, options and files
        **asked,  # the digest and the build id before dimensions were inferred; that of the files
        "plan": digest_of_plan(plan),
        "group": job.target.group,
        "icevirt": __version__,
        "scanners": recorded_options(job.scan.options)["scanners"],  # versions by name
        "scan": {name: value for name, value in asdict(job.scan.options).items() if value},
        "combine": {name: value for name, value in choices.items() if value is not None},
        "catalog": None if catalog.startswith(job.record.url) else catalog,
        "files": len(plan.files),
        "arrays": len(plan.arrays),
        "references": sum(array.expected for array in plan.arrays),
        "bytes": _bytes(plan),
        "limits": [job.scan.limits.seconds, job.scan.limits.memory],  # of the scan of a file
        "eras": _eras(plan),
        **({} if _as_one(plan) else {"eras_open_as_one": False}),
        "bad_files": [[each.url, each.code, each.error] for each in bad],
        "left_out": [[each.url, each.kept] for each in plan.left_out],
    }


def _bytes(plan: BuildPlan) -> list[int]:
    """Return the bytes that references read, and those that are stored."""
    counts = sum((array.written for array in plan.arrays), ReferenceCounts())
    return [counts.bytes_referenced, counts.bytes_stored]


def _eras(plan: BuildPlan) -> int:
    return 1 if plan.eras is None else plan.eras.count


def _as_one(plan: BuildPlan) -> bool:
    return plan.eras is None or plan.eras.as_one


def digest_of_plan(plan: BuildPlan) -> str:
    """Return a digest of files with their checksums, arrays and where each file's box lies."""
    digest = hashlib.blake2b(digest_size=16)
    files = plan.files
    for column in (files.url.data, files.etag.data, files.size, files.last_modified):
        digest.update(np.ascontiguousarray(column).tobytes())
    for array in plan.arrays:
        digest.update(array.path.encode() + array.zarr_json)
        skips = () if array.skips is None else (array.skips,)
        for column in (array.files, array.starts, array.lengths, *skips):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _bad_files(snapshot: SnapshotSummary) -> tuple[BadFile, ...]:
    bad = (provenance_of(snapshot) or {}).get("bad_files", ())
    return tuple(BadFile(url=url, code=code, error=error) for url, code, error in bad)


def report(
    job: Job,
    plan: BuildPlan,
    results: list[WriteResult],
    *,
    snapshot_id: str,
    scanned: int,
    bad: tuple[BadFile, ...],
    findings: tuple[str, ...],
    executor: str,
    seconds: dict[str, float],
) -> BuildReport:
    """Return the report of a build that was committed."""
    return BuildReport(
        repo=job.target.storage.url,
        branch=job.target.branch,
        group=job.target.group,
        snapshot_id=snapshot_id,
        build_id=job.build_id,
        already_built=False,
        files_scanned=scanned,
        files_reused=len(job.scan.files) - scanned,
        bad_files=bad,
        arrays=_summaries(plan, results),
        manifests=sum(result.manifest_id is not None for result in results),
        manifest_bytes=sum(result.size_bytes for result in results),
        containers=(containers := tuple(map(entry_of, plan.containers))),
        opening=Opening(authorization=dict.fromkeys(containers)),  # of files that were planned
        findings=(*plan.notes, *findings),
        eras=_eras(plan),
        opens_as_one=_as_one(plan),
        executor=executor,
        seconds=seconds,
    )


def already_built(
    target: Target, snapshot: SnapshotSummary, seconds: dict[str, float]
) -> BuildReport:
    """Return the report of a build that the branch holds already."""
    repo = Repository.open(target.storage)
    held = summary(repo, snapshot_id=str(snapshot.id))
    below = target.group.rstrip("/") + "/"
    infos = repo.list_manifest_files(str(snapshot.id))
    return BuildReport(
        repo=target.storage.url,
        branch=target.branch,
        group=target.group,
        snapshot_id=str(snapshot.id),
        build_id=_metadata_text(snapshot, "build_id"),
        already_built=True,
        files_scanned=0,
        files_reused=int(_metadata_text(snapshot, "files") or 0),
        bad_files=_bad_files(snapshot),
        arrays=tuple(array for array in held.arrays if array.path.startswith(below)),
        manifests=len(infos),
        manifest_bytes=sum(info.size_bytes for info in infos),
        containers=held.containers,
        findings=("nothing was committed: the branch already holds this build",),
        eras=int(_metadata_text(snapshot, "eras") or 1),
        opens_as_one=(provenance_of(snapshot) or {}).get("eras_open_as_one", True) is not False,
        seconds=seconds,
    )


def _summaries(plan: BuildPlan, results: list[WriteResult]) -> tuple[ArraySummary, ...]:
    counts: dict[bytes, ReferenceCounts] = defaultdict(ReferenceCounts)
    manifests: dict[bytes, int] = defaultdict(int)
    for result in results:
        for window in (each for each in result.windows if not each.is_empty):
            counts[window.node_id] += window.references
            manifests[window.node_id] += 1
    return tuple(
        ArraySummary(
            path=array.path,
            data_type=data_type_of(array),
            shape=array.shape,
            chunk_shape=array.chunk_extents,
            dimension_names=array.schema.dimension_names,
            references=counts[bytes(array.node_id)],
            manifests=manifests[bytes(array.node_id)],
            readers=readers_of_json(array.zarr_json),
        )
        for array in plan.arrays
    )


def data_type_of(array: PlannedArray) -> str:
    """Return the data type of an array as text."""
    kind = array.schema.data_type
    return kind if isinstance(kind, str) else json.dumps(kind)
