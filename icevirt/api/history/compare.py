"""Implement `icevirt.diff`: what differs between two versions, from snapshots and commits' logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile

import numpy as np

from icevirt.api.dataset.records import concat_dims, moves_in, records_in
from icevirt.api.history.log import Commits, record_of_build, resolve_version
from icevirt.archive.reports.history import (
    DimensionGrowth,
    FilesDifference,
    MetadataChange,
    NodeChange,
    VersionDiff,
)
from icevirt.archive.sources import SourceFile
from icevirt.errors import FormatError, InvalidInputError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode, Node, Snapshot, chunk_shape, document_of
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo.assets import Assets
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike
from icevirt.storage.protocol import Storage
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.chunk_tables import find_changed


def list_files(storage: Storage, record: Mapping[str, object]) -> dict[str, SourceFile] | None:
    """Return the files of a build by URL; None where no list is there that its snapshot names.

    Any client can write lists, so one whose digest is another says nothing.
    """
    try:
        from icevirt.api.dataset.files_held import files_of_build

        files = files_of_build(storage, record).files
    except (FormatError, InvalidInputError, ModuleNotFoundError):  # readers lack pyarrow
        return None
    return {file.url: file for file in files}


_NOT_METADATA = ("shape", "zarr_format", "node_type", "consolidated_metadata")
_ABSENT = object()
_MOST_COMPARED = 1_000_000  # references

type _Records = dict[str, tuple[str, Mapping[str, object]]]
"""By group: the snapshot of its newest build, and what that recorded."""


def diff(
    repo: StorageLike | Repository, before: str | None = None, after: str = repo_updates.MAIN
) -> VersionDiff:
    """Compare two versions: groups and arrays, chunks that were written, files and steps.

    Nodes are compared as the two versions hold them. Chunks are those that the commits between the
    two list, on both sides of the snapshot from which they part. Of arrays that were written anew
    the references are compared, up to a million of them. Else snapshots and transaction logs are
    read, no manifest.

    Args:
        repo: Path or URL of the repository, or the repository.
        before: A branch, a tag, a snapshot id or its first letters; ``~1`` behind it means the one
            before. By default the one before ``after``.
        after: The same; by default the tip of ``main``.

    Raises:
        RepositoryNotFoundError: There is no repository.
        SnapshotNotFoundError: There is no such version.
        InvalidInputError: A name is that of several versions.

    Examples:
        >>> icevirt.diff("repo")  # what the last commit changed
        <VersionDiff ... 2 changed, 13 chunks written>
    """
    opened = repo if isinstance(repo, Repository) else Repository.open(repo)
    info = opened.head.read().info
    last = resolve_version(info, after)
    first = resolve_version(info, f"{last}~1" if before is None else before)
    old_only, new_only = _part(info, first, last)
    notes: list[str] = []
    logs = _logs(opened.assets, [*old_only, *new_only], notes)
    old, new = opened.assets.snapshot(first), opened.assets.snapshot(last)
    commits, records = Commits(info), (_records(info, first), _records(info, last))
    # pairs of prefixes: replaced in order, they turn paths of one version into those of the other
    back = [(after, before) for before, after in moves_in(old_only)]
    moves = [*back, *moves_in(reversed(new_only))]
    nodes = tuple(_compare_chunks(opened, (old, new), _nodes(old, new, logs)))
    if any(
        each.change in ("added", "rewritten")
        and each.kind == "array"
        and each.chunks_written is None
        for each in nodes
    ):
        notes.append("commits do not list the chunks of some arrays that they wrote as a whole")
    return VersionDiff(
        repo=opened.storage.url,
        before=commits.at(first),
        after=commits.at(last),
        commits_before=len(old_only),
        commits_after=len(new_only),
        nodes=nodes,
        steps=tuple(_steps(records, old, new)),
        files=tuple(_files(opened.storage, records, moves)),
        notes=tuple(notes),
    )


def _part(
    info: RepoInfo, first: ObjectId12, last: ObjectId12
) -> tuple[list[SnapshotSummary], list[SnapshotSummary]]:
    """Return the commits of each history that the other lacks, newest first."""
    of_first = [*lookup.ancestry(info, first)]
    known = {each.id for each in of_first}
    of_last = [*lookup.ancestry(info, last)]
    new_only = [*takewhile(lambda each: each.id not in known, of_last)]
    shared = of_last[len(new_only)].id if len(new_only) < len(of_last) else None
    return [*takewhile(lambda each: each.id != shared, of_first)], new_only


def _logs(
    assets: Assets, commits: Sequence[SnapshotSummary], notes: list[str]
) -> list[TransactionLog]:
    found, missing = [], 0
    for key in chain.from_iterable(
        (each.id, *(each.pruned_ancestor_tx_logs or ())) for each in commits
    ):
        try:
            found.append(assets.transaction_log(key))
        except ObjectNotFoundError:
            missing += 1
    if missing:
        notes.append(
            f"{missing:,} transaction logs were deleted, so chunks that those commits wrote are"
            " not counted"
        )
    return found


# -- nodes -----------------------------------------------------------------------------------


def _nodes(old: Snapshot, new: Snapshot, logs: Sequence[TransactionLog]) -> Iterator[NodeChange]:
    was, now = ({node.id: node for node in each.nodes} for each in (old, new))
    at_path = {node.path: node for node in old.nodes}
    counts = _chunks(logs)
    replaced = set()
    for node in new.nodes:
        before, change = was.get(node.id), "changed"
        if before is None and (there := at_path.get(node.path)) and there.id not in now:
            replaced.add(there.id)
            before, change = there, "rewritten"
        if before is None:
            yield _one(node, "added", counts.get(node.id))
        elif (found := _compare(before, node, counts.get(node.id), change)) is not None:
            yield found
    for node in old.nodes:
        if node.id not in now and node.id not in replaced:
            yield _one(node, "removed", None)


def _chunks(logs: Sequence[TransactionLog]) -> dict[ObjectId8, int]:
    """Return how many distinct chunks of each array the logs list."""
    parts: dict[ObjectId8, list[np.ndarray]] = {}
    for log in logs:
        for key, index in log.updated_chunks.items():
            parts.setdefault(key, []).append(index)
    return {
        key: len(found[0] if len(found) == 1 else np.unique(np.concatenate(found), axis=0))
        for key, found in parts.items()
        if len({index.shape[1] for index in found}) == 1
    }


def _one(node: Node, change: str, chunks: int | None) -> NodeChange:
    shape = node.shape if isinstance(node, ArrayNode) else None
    return NodeChange(
        path=node.path,
        kind="array" if isinstance(node, ArrayNode) else "group",
        change=change,  # type: ignore[arg-type]
        dimension_names=_dimensions(node),
        shape_before=shape if change == "removed" else None,
        shape=None if change == "removed" else shape,
        chunks_written=chunks,
    )


def _compare(before: Node, after: Node, chunks: int | None, change: str) -> NodeChange | None:
    """Compare two nodes; None if nothing differs."""
    metadata = tuple(_metadata(before, after))
    shapes = [node.shape if isinstance(node, ArrayNode) else None for node in (before, after)]
    moved = before.path != after.path
    differs = metadata or shapes[0] != shapes[1] or type(before) is not type(after)
    is_written = chunks is not None or (change == "rewritten" and isinstance(after, ArrayNode))
    if not (differs or is_written or moved):
        return None
    return NodeChange(
        path=after.path,
        kind="array" if isinstance(after, ArrayNode) else "group",
        change="moved" if moved and not (differs or is_written) else change,  # type: ignore[arg-type]
        moved_from=before.path if moved else None,
        dimension_names=_dimensions(after),
        shape_before=shapes[0],
        shape=shapes[1],
        metadata=metadata,
        chunks_written=chunks,
    )


def _compare_chunks(
    repo: Repository, versions: tuple[Snapshot, Snapshot], nodes: Iterable[NodeChange]
) -> Iterator[NodeChange]:
    """Yield the nodes; those of arrays that were written anew with the chunks that differ."""
    sessions = [repo.readonly_session(snapshot_id=str(each.id)) for each in versions]
    left = _MOST_COMPARED
    for each in nodes:
        places = (each.moved_from or each.path, each.path)
        pair = [found.find(path) for found, path in zip(versions, places, strict=True)]
        arrays = [node for node in pair if isinstance(node, ArrayNode)]
        if each.change != "rewritten" or len(arrays) < len(pair):
            yield each
            continue
        edges = chunk_shape(arrays[1])
        left -= sum(_count_references(*of) for of in zip(versions, arrays, strict=True))
        if edges is None or edges != chunk_shape(arrays[0]) or left < 0:
            yield each
            continue
        tables = (found.array_table(path) for found, path in zip(sessions, places, strict=True))
        changed = find_changed(*tables).astype(np.int64)
        ends = [] if not len(changed) else [changed.min(axis=0), changed.max(axis=0) + 1]
        longest = np.maximum(arrays[0].shape, arrays[1].shape)
        box = [np.minimum(end * edges, longest).tolist() for end in ends]
        yield replace(each, chunks_changed=len(changed), differs_in=tuple(zip(*box, strict=True)))


def _count_references(snapshot: Snapshot, node: ArrayNode) -> int:
    found = (snapshot.manifest(each.object_id) for each in node.manifests)
    return sum(each.num_chunk_refs for each in found if each is not None)


def _dimensions(node: Node) -> tuple[str | None, ...]:
    if not isinstance(node, ArrayNode):
        return ()
    return node.dimension_names or (None,) * len(node.shape)


def _metadata(before: Node, after: Node) -> Iterator[MetadataChange]:
    if before.user_data == after.user_data:
        return
    old, new = (dict(_parts(node)) for node in (before, after))
    for name in sorted({*old, *new}):
        was, now = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if was is _ABSENT or now is _ABSENT or _text(was) != _text(now):
            yield MetadataChange(
                name=name,
                before=None if was is _ABSENT else was,  # type: ignore[arg-type]
                after=None if now is _ABSENT else now,  # type: ignore[arg-type]
            )


def _parts(node: Node) -> Iterator[tuple[str, JSON]]:
    """Yield the parts of a node's zarr.json, each attribute by itself."""
    try:
        document = document_of(node)
    except FormatError:  # of another zarr version, or damaged: shown as it is
        yield "zarr.json", node.user_data.decode(errors="replace")
        return
    for name, value in document.items():
        if name == "attributes" and isinstance(value, Mapping):
            yield from ((f"attributes.{key}", each) for key, each in value.items())
        elif name not in _NOT_METADATA:
            yield name, value


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


# -- in the terms of the archive -------------------------------------------------------------


def _records(info: RepoInfo, tip: ObjectId12) -> _Records:
    """Return the newest build of each group in a history: its snapshot and its record."""
    found: _Records = {}
    for each in lookup.ancestry(info, tip):
        for said in records_in(each):
            record = record_of_build(each, str(said.get("group", paths.ROOT)))
            if record is not None:
                found.setdefault(str(record.get("group", paths.ROOT)), (str(each.id), record))
    return found


def _rename(
    files: dict[str, SourceFile] | None, moves: Sequence[tuple[str, str]]
) -> dict[str, SourceFile] | None:
    """Return files under the names that they have after relocations."""
    for old, new in moves if files else ():
        files = {
            (url := new + name.removeprefix(old) if name.startswith(old) else name): replace(
                file, url=url
            )
            for name, file in (files or {}).items()
        }
    return files


def _files(
    storage: Storage, records: tuple[_Records, _Records], moves: Sequence[tuple[str, str]]
) -> Iterator[FilesDifference]:
    old, new = records
    for group in sorted({*old, *new}):
        was, now = old.get(group), new.get(group)
        if was == now:
            continue
        counts = FilesDifference(group=group, before=_count(was), after=_count(now))
        lists = [{} if each is None else list_files(storage, each[1]) for each in (was, now)]
        lists[0] = _rename(lists[0], moves)
        if lists[0] is None or lists[1] is None:
            yield counts
            continue
        yield replace(
            counts,
            listed=True,
            added=tuple(url for url in lists[1] if url not in lists[0]),
            gone=tuple(url for url in lists[0] if url not in lists[1]),
            changed=tuple(url for url, now in lists[1].items() if lists[0].get(url, now) != now),
        )


def _count(record: tuple[str, Mapping[str, object]] | None) -> int | None:
    found = None if record is None else record[1].get("files")
    return found if isinstance(found, int) else None


def _steps(
    of_sides: tuple[_Records, _Records], old: Snapshot, new: Snapshot
) -> Iterator[DimensionGrowth]:
    """Yield the dimensions along which builds concatenate, where their lengths differ."""
    was, now = of_sides
    for group in sorted({*was, *now}):
        records = [side.get(group, ("", {}))[1] for side in (was, now)]
        for name in dict.fromkeys(chain.from_iterable(map(concat_dims, records))):
            before, after = (
                _length(snapshot, group, name, in_eras=record.get("eras", 1) != 1)
                for snapshot, record in zip((old, new), records, strict=True)
            )
            if before != after:
                yield DimensionGrowth(group=group, dimension=name, before=before, after=after)


def _length(snapshot: Snapshot, group: str, dimension: str, *, in_eras: bool) -> int:
    """Return the length of a dimension of a group, 0 if it has none; eras are added up."""
    here = {
        node.path: node.shape[node.dimension_names.index(dimension)]
        for node in snapshot.below(group)
        if isinstance(node, ArrayNode)
        and node.dimension_names
        and dimension in node.dimension_names
    }
    if not in_eras:
        of_group = {path: size for path, size in here.items() if paths.parent(path) == group}
        return of_group.get(paths.join(group, dimension), max(of_group.values(), default=0))
    return sum(
        size
        for path, size in here.items()
        if paths.name(path) == dimension and paths.parent(paths.parent(path)) == group
    )
