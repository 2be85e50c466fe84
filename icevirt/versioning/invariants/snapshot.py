"""Check a snapshot: its nodes, their metadata, and the boxes of their manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from icevirt.errors import FormatError, InvalidInputError
from icevirt.model import paths
from icevirt.model.metadata import document_of, grid_facts
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, Extents, ManifestRef, Node, Snapshot
from icevirt.versioning.invariants.problem import Problem


def of_snapshot(snapshot: Snapshot, told: SnapshotSummary) -> Iterator[Problem]:
    """Check a snapshot by itself and against what the repo info says of it."""
    file = f"snapshots/{snapshot.id}"
    for code, what in (*_summary(snapshot, told), *_nodes(snapshot), *_manifest_rows(snapshot)):
        yield Problem(file=file, code=code, what=what, advice=code == "unused-manifest")


def _summary(snapshot: Snapshot, told: SnapshotSummary) -> Iterator[tuple[str, str]]:
    for name in ("id", "flushed_at", "message", "metadata"):
        if getattr(snapshot, name) != getattr(told, name):
            yield "summary", f"{name} differs between the snapshot and the repo info"


def _nodes(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    ids = [node.id for node in snapshot.nodes]
    if len(set(ids)) != len(ids):
        yield "node-id", "two nodes share one id"
    arrays = {node.path for node in snapshot.arrays()}
    for node in snapshot.nodes:
        yield from _node(node)
        below = arrays.intersection(paths.ancestors(node.path))
        if below:
            yield "below-array", f"{node.path} lies below the array {min(below)}"


def _node(node: Node) -> Iterator[tuple[str, str]]:
    try:
        canonical = paths.canonical(node.path)
        document = document_of(node)
    except (InvalidInputError, FormatError) as error:
        yield "metadata", f"{node.path} has no usable path or zarr.json: {error}"
        return
    if canonical != node.path:
        yield "path", f"{node.path!r} is not in canonical form"
    if isinstance(node, ArrayNode):
        yield from _grid(node, document)


def _grid(node: ArrayNode, document: dict[str, object]) -> Iterator[tuple[str, str]]:
    facts = grid_facts(document)
    for name in ("shape", "num_chunks", "dimension_names"):
        if getattr(facts, name) != getattr(node, name):
            yield "grid", f"{name} of {node.path} differs from its zarr.json"


def _manifest_rows(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    used = {ref.object_id for node in snapshot.arrays() for ref in node.manifests}
    known = {info.id for info in snapshot.manifest_files}
    for lacking in sorted(used - known):
        yield "manifest-row", f"manifest {lacking} is used but not listed"
    for unused in sorted(known - used):
        yield "unused-manifest", f"manifest {unused} is listed but not used"
    for node in snapshot.arrays():
        if overlap := _overlap(node.manifests):
            yield "overlap", f"two manifests of {node.path} cover {overlap}"


def _overlap(refs: Sequence[ManifestRef]) -> Extents | None:
    """Return a box that two manifests share: readers look into the first only."""
    if len(refs) < 2:
        return None
    if any(not ref.extents for ref in refs):
        return ()
    box = np.array([ref.extents for ref in refs], np.int64)  # (m, ndim, 2)
    box = box[np.lexsort(box[:, ::-1, 0].T)]
    for at in range(len(box) - 1):
        later = box[at + 1 :]
        later = later[: np.searchsorted(later[:, 0, 0], box[at, 0, 1])]
        low = np.maximum(later[:, :, 0], box[at, :, 0])
        high = np.minimum(later[:, :, 1], box[at, :, 1])
        hit = np.flatnonzero(np.all(low < high, axis=1))
        if len(hit):
            row = int(hit[0])
            return tuple(zip(low[row].tolist(), high[row].tolist(), strict=True))
    return None
