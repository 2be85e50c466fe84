"""Recheck what was written and the sources, then commit the build with one write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from icevirt.api.pipeline.replacing import Replacing
from icevirt.archive.plan import BuildPlan, WriteResult
from icevirt.archive.scanned import SourceFile
from icevirt.errors import BuildError, SourcesChangedError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.snapshot import ManifestFile, ManifestRef
from icevirt.objects.source_lists.listing import changed_since
from icevirt.repo.commits.build_commit import BuiltArray, publish

_SHOWN = 10  # names in a message


def refuse_losses(plan: BuildPlan, results: list[WriteResult]) -> None:
    """Compare what was written with what was scanned, array by array.

    Raises:
        BuildError: References are missing.
    """
    written: Counter[bytes] = Counter()
    for result in results:
        for window in result.windows:
            written[window.node_id] += window.references.total + window.replaced
    for array in plan.arrays:
        if written[bytes(array.node_id)] != array.expected:
            raise BuildError(
                f"references of {array.path} were lost between scan and commit",
                do="Delete the catalog and build again; nothing was committed.",
                variable=array.path,
                scanned=array.expected,
                written=written[bytes(array.node_id)],
            )


def refuse_changed(files: Sequence[SourceFile]) -> None:
    """Look at the sources once more.

    Raises:
        SourcesChangedError: Some changed or are gone.
    """
    if changed := changed_since(files):
        raise SourcesChangedError(
            f"{len(changed)} of {len(files)} files changed since the scan",
            do="Build again when they no longer change, or with rescan_changed=True "
            "(--rescan-changed); nothing was committed.",
            files=dict(islice(changed.items(), _SHOWN)),
        )


def commit(
    replacing: Replacing,
    results: list[WriteResult],
    *,
    message: str | None,
    metadata: Mapping[str, Any],
    allow_changes: bool,
) -> str:
    """Make the written manifests visible in one step; return the id of the snapshot.

    Raises:
        PlanChangedError: What would stay has other labels now.
    """
    target, plan = replacing.target, replacing.plan
    manifests: dict[ObjectId8, list[ManifestRef]] = {array.node_id: [] for array in plan.arrays}
    for result in results:
        for window in result.windows:
            key = ObjectId12(result.manifest_id or b"")
            manifests[ObjectId8(window.node_id)].append(
                ManifestRef(object_id=key, extents=window.extents)
            )
    arrays = {
        array.path: BuiltArray(array.zarr_json, array.node_id, manifests[array.node_id])
        for array in plan.arrays
    }
    replacing = replacing.relabelled(arrays)
    replacing.refuse_losses(allowed=allow_changes)
    return publish(
        target.storage,
        branch=target.branch,
        message=message or f"Build from {len(plan.files)} files",
        metadata=metadata,
        groups=plan.groups,
        arrays=arrays,
        manifest_files=[
            ManifestFile(
                id=ObjectId12(result.manifest_id),
                size_bytes=result.size_bytes,
                num_chunk_refs=result.num_chunk_refs,
            )
            for result in results
            if result.manifest_id is not None
        ],
        claim=replacing.claim,
        containers=plan.containers,
        split_rules=plan.split_rules,
        expected_parent=str(target.tip),
    )
