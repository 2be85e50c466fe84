"""Count what one version of a repository holds, and say which steps of a dimension it covers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.reports.build import (
    ArraySummary,
    GroupSummary,
    ReferenceCounts,
    RepositorySummary,
)
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, GroupNode, chunk_extents, document_of
from icevirt.model.twins import History, find_copies, is_in_step
from icevirt.planning.coverage import (
    KINDS,
    ArrayCoverage,
    Coverage,
    by_group,
    main_dimension,
    shares,
)
from icevirt.planning.reader_support import readers_of_document
from icevirt.repo.assets import Assets
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import old_of
from icevirt.repo.repository import Repository
from icevirt.versioning import lookup
from icevirt.versioning.history.timestamps import show

if TYPE_CHECKING:
    from icevirt.model.strings import Strings
    from icevirt.objects.authorize import Prefix


def summary(
    repo: Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> RepositorySummary:
    """Count what a version holds; the branch ``main`` unless another is named.

    Every manifest of the version is read, one at a time.
    """
    if branch is None and tag is None and snapshot_id is None:
        branch = "main"
    current = repo.head.read()
    info = current.info
    key = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
    snapshot = repo.assets.snapshot(key)
    config = RepositoryConfig.from_document(info.config)
    containers = list(config.virtual_chunk_containers.values())
    if (old := old_of(current)) is not None:  # its configuration covers whole schemes
        urls = repo.readonly_session(snapshot_id=str(key)).all_virtual_chunk_locations()
        containers = old.containers_in_use(urls)
    used: set[str] = set()

    def look(places: Strings) -> None:
        if len(used) < len(containers):
            from icevirt.model.config.containers import find_used

            used.update(each.url_prefix for each in find_used(places, containers))

    def history() -> History:
        return (each.metadata for each in lookup.ancestry(info, key))

    nodes = {node.path: node for node in snapshot.arrays()}
    arrays = tuple(array_summary(repo.assets, node, look) for node in nodes.values())
    entries: tuple[Prefix, ...] = ()
    if used:  # what files moved from stays in the configuration, for older versions
        from icevirt.objects.authorize import entry_of  # and what knows credentials of every kind

        entries = tuple(entry_of(each) for each in containers if each.url_prefix in used)
    return RepositorySummary(
        repo=repo.storage.url,
        spec_version=info.spec_version,
        branches={name: str(at) for name, at in info.branches.items()},
        tags={name: str(at) for name, at in info.tags.items()},
        snapshot_id=str(snapshot.id),
        message=snapshot.message,
        written_at=show(snapshot.flushed_at),
        snapshots=sum(1 for _ in lookup.ancestry(info, snapshot.id)),
        containers=entries,
        groups=tuple(
            GroupSummary(path=node.path, attributes=document_of(node).get("attributes") or {})
            for node in snapshot.nodes
            if isinstance(node, GroupNode)
        ),
        arrays=arrays,
        generation=info.generation,
        twins={
            path: is_in_step(twin, variable, history())
            for path, (twin, variable) in find_copies(nodes.values(), history).items()
            # no coordinate of a coarser copy, nor its grid mapping
            if twin.shape and twin.dimension_names != (paths.name(path),)
        },
    )


def array_summary(assets: Assets, node: ArrayNode, look: Callable[[Strings], None]) -> ArraySummary:
    """Count the references of one array; its manifests are read one at a time.

    ``look`` is called with the locations of each manifest.
    """
    metadata = document_of(node)
    counts = ReferenceCounts()
    for ref in node.manifests:
        table = assets.read_table(ref.object_id, node.id)
        if table is not None:
            counts += ReferenceCounts.of(table)
            look(table.locations.url)
    data_type = metadata["data_type"]
    if isinstance(data_type, dict):
        options = (data_type.get("configuration") or {}).items()
        inside = ", ".join(f"{key}={item}" for key, item in options)
        data_type = f"{data_type.get('name')}({inside})" if inside else data_type.get("name")
    return ArraySummary(
        path=node.path,
        data_type=str(data_type),
        shape=node.shape,
        chunk_shape=chunk_extents(metadata["chunk_grid"]),
        dimension_names=node.dimension_names or (None,) * len(node.shape),
        references=counts,
        manifests=len(node.manifests),
        readers=readers_of_document(metadata),
    )


_TYPES = {"virtual": ChunkType.virtual, "native": ChunkType.native, "inline": ChunkType.inline}
_GROUPS = 1_000_000  # of chunks along an axis, each of which is counted as a whole


def coverage_of(assets: Assets, snapshot_id: ObjectId12) -> Coverage | None:
    """Return what the arrays of a version cover; None where no dimension has a name.

    Every manifest of the version is read, one at a time.
    """
    nodes = list(assets.snapshot(snapshot_id).arrays())
    dimension = main_dimension([
        {
            name: number
            for name, number in zip(node.dimension_names or (), node.num_chunks, strict=False)
            if name is not None
        }
        for node in nodes
    ])  # fmt: skip
    if not dimension:
        return None
    covered = (
        _cover(assets, node, (node.dimension_names or ()).index(dimension))
        for node in nodes
        if dimension in (node.dimension_names or ())
    )
    return by_group(dimension, covered)


def _cover(assets: Assets, node: ArrayNode, axis: int) -> ArrayCoverage:
    """Return what the chunks of one array cover along an axis.

    Along an axis of more than a million chunks, neighbors are counted together.
    """
    count, steps = node.num_chunks[axis], node.shape[axis]
    every = -(-count // _GROUPS) or 1
    first = np.arange(0, count, every)
    numbers = np.zeros((len(KINDS), len(first)), np.int64)
    for ref in node.manifests:
        table = assets.read_table(ref.object_id, node.id)
        if table is None:
            continue
        for row, kind in enumerate(KINDS):
            at = table.index[table.kind == _TYPES[kind], axis] // np.uint32(every)
            numbers[row] += np.bincount(at, minlength=len(first))[: len(first)]
    beside = math.prod(node.num_chunks) // max(count, 1)
    grid = document_of(node)["chunk_grid"]["configuration"]
    edges = grid.get("chunk_shape", grid.get("chunk_shapes"))[axis]
    begins = np.append(first, count)  # one behind the last begins at the end
    begins = begins * edges if isinstance(edges, int) else _of_runs(edges, begins)
    bounds = np.minimum(begins, steps)
    together = np.diff(first, append=count) * max(beside, 1)
    return ArrayCoverage(
        path=node.path,
        steps=steps,
        shares={
            kind: shares(bounds[:-1], np.diff(bounds), numbers[row] / together, steps)
            for row, kind in enumerate(KINDS)
            if numbers[row].any()
        },
    )


def _of_runs(edges: Sequence[Any], chunks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where chunks begin whose lengths are listed, or how often each length comes."""
    if not edges:
        return np.zeros_like(chunks)
    runs = np.array([each if isinstance(each, list) else [each, 1] for each in edges], np.int64)
    size, times = runs.reshape(-1, 2).T
    begins, first = np.cumsum(size * times) - size * times, np.cumsum(times) - times
    run = np.searchsorted(first, chunks, side="right") - 1
    found: NDArray[np.int64] = begins[run] + (chunks - first[run]) * size[run]
    return found
