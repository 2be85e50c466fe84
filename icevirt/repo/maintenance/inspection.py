"""Show files of a repository as JSON documents, for debugging.

The documents are icechunk's, key by key, and may change when icechunk's do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from icevirt.errors import (
    NoManifestFileError,
    NoSnapshotFileError,
    ObjectNotFoundError,
)
from icevirt.ids import ObjectId12
from icevirt.model import repo_info, updates
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.history.types import ManifestFileInfo
from icevirt.versioning.history.timestamps import moment
from icevirt.wire import header
from icevirt.wire.manifests.open_manifest import OpenManifest

if TYPE_CHECKING:
    from icevirt.model.transaction_log import TransactionLog

_SETS = (
    *("new_groups", "new_arrays", "deleted_groups", "deleted_arrays"),
    *("updated_groups", "updated_arrays"),
)
_COMPOSITE = (
    "Synthetic composite: this snapshot's ancestry was collapsed by expiration; the log below"
    " merges its pruned-ancestor logs with its own log. `header` describes this snapshot's own log"
    " only."
)


def repo_info_document(assets: Assets, info: repo_info.RepoInfo) -> JSONObject:
    """Return the contents of the file `repo`."""
    by_id = sorted(info.snapshots.values(), key=lambda each: str(each.id))
    refs = (info.branches, info.tags)
    branches, tags = ({name: str(key) for name, key in sorted(each.items())} for each in refs)
    return {
        "header": header.describe_header(assets.storage.get(layout.REPO)),
        "spec_version": f"{info.spec_version}.0",
        "branches": branches,
        "tags": tags,
        "deleted_tags": sorted(info.deleted_tags),
        "snapshots": [
            {
                "id": str(each.id),
                **({} if each.parent_id is None else {"parent_id": str(each.parent_id)}),
                "flushed_at": _time(each.flushed_at),
                "message": each.message,
                "metadata": dict(each.metadata),
            }
            for each in by_id
        ],
        "metadata": dict(info.metadata or {}),
        "latest_updates": [
            {
                "update_type": _update_type(each.kind),
                "updated_at": _time(each.updated_at),
                **({} if each.backup_path is None else {"backup_path": each.backup_path}),
            }
            for each in info.latest_updates
        ],
    }


def snapshot_document(assets: Assets, snapshot_id: str) -> JSONObject:
    """Return the contents of a snapshot file. Raises ``SnapshotNotFoundError``."""
    key = layout.snapshot_id(snapshot_id)
    raw_header = _header(assets.snapshot_file, key)
    found = assets.snapshot(key)
    return {
        "id": str(found.id),
        "header": raw_header,
        "flushed_at": _time(found.flushed_at),
        "commit_message": found.message,
        "metadata": dict(found.metadata),
        "manifests": [asdict(ManifestFileInfo.of(file)) for file in found.manifest_files],
        "nodes": [_node(node) for node in found.nodes],
    }


def manifest_document(assets: Assets, manifest_id: str) -> JSONObject:
    """Return counts of what a manifest holds. Raises ``NotFoundError``."""
    try:
        key = ObjectId12.parse(manifest_id)
        raw = assets.manifest_file(key)
    except (TypeError, ValueError, ObjectNotFoundError) as error:
        raise NoManifestFileError(
            "no such manifest",
            do="List the manifests of a snapshot with `repo.list_manifest_files(snapshot_id)`.",
            manifest=manifest_id,
        ) from error
    arrays = [_counts(str(n), t) for n, t in assets.read_manifest(key).arrays.items()]
    compression: JSONObject | None = None
    if assets.spec_version:
        size, used = OpenManifest(raw).count_compressed()
        compression = {"uses_location_compression": size is not None, "num_compressed_refs": used}
        if size is not None:
            compression["dictionary_size_bytes"] = size
    return {
        "id": str(key),
        "header": _describe(raw),
        "size_bytes": len(raw),
        "num_arrays": len(arrays),
        **{
            f"total_{what}": sum(each[f"num_{what}"] for each in arrays)
            for what in ("chunk_refs", "inline", "native", "virtual")
        },
        "arrays": arrays,
        "compression": compression,
    }


def transaction_log_document(
    assets: Assets, info: repo_info.RepoInfo, snapshot_id: str
) -> JSONObject:
    """Return the changes of a snapshot's commit, including its expired ancestors' changes.

    Raises:
        SnapshotNotFoundError: There is no such snapshot.
    """
    key = layout.snapshot_id(snapshot_id)
    raw_header = _header(assets.log_file, key)
    known = info.snapshots.get(key)
    pruned = (known and known.pruned_ancestor_tx_logs) or ()
    logs, missing = [], []
    for each in pruned:
        try:
            logs.append(assets.transaction_log(each))
        except ObjectNotFoundError:
            missing.append(str(each))
    document = {"header": raw_header, **_changes([*logs, assets.transaction_log(key)])}
    if pruned:
        document["synthetic_composite"] = {
            "note": _COMPOSITE,
            "merged_pruned_ancestor_tx_logs": [str(log.id) for log in logs],
            "missing_tx_logs": missing,
        }
    return document


def _header(fetch: Callable[[ObjectId12], bytes], key: ObjectId12) -> dict[str, str] | None:
    """Return what the header of a snapshot's file says. Raises ``SnapshotNotFoundError``."""
    try:
        return _describe(fetch(key))
    except ObjectNotFoundError as error:
        raise NoSnapshotFileError(
            "no such snapshot",
            do="List them with `repo.ancestry(branch=...)`; expired ones are gone.",
            snapshot=str(key),
        ) from error


def _describe(raw: bytes) -> dict[str, str] | None:
    """Return what the header of a file says; files of the first clients have none."""
    return header.describe_header(raw) if raw.startswith(header.MAGIC) else None


def _time(micros: int) -> str:
    """Return a time as icechunk writes it: with no, three or six digits behind the second."""
    at = moment(micros)
    digits = "seconds" if not at.microsecond else "microseconds"
    if at.microsecond and at.microsecond % 1000 == 0:
        digits = "milliseconds"
    return at.isoformat(timespec=digits).replace("+00:00", "Z")


def _update_type(kind: repo_info.UpdateKind) -> JSONObject:
    match kind:
        case updates.FeatureFlagChanged(id=key, new_value=value):
            return {"type": "FeatureFlagChanged", "id": key, "new_value": value}
        case updates.RepoStatusChanged(status=status):
            document: JSONObject = {
                "availability": status.availability.name.title().replace("_", ""),
                "limited_availability_reason": status.limited_availability_reason,
                "set_at": _time(status.set_at),
            }
            return {"type": "RepoStatusChangedUpdate", "status": document}
        case _:
            values = {each.name: getattr(kind, each.name) for each in fields(kind)}
            texts = {n: str(v) if isinstance(v, ObjectId12) else v for n, v in values.items()}
            return {"type": f"{type(kind).__name__}Update", **texts}


def _node(node: Node) -> JSONObject:
    document: dict[str, Any] = {"id": str(node.id), "path": node.path, "node_type": "group"}
    if isinstance(node, ArrayNode):
        document["node_type"] = "array"
        document["shape"] = [
            {"array_length": length, "num_chunks": number}
            for length, number in zip(node.shape, node.num_chunks, strict=True)
        ]
        document["manifest_refs"] = [
            {"id": str(ref.object_id), "extents": [list(pair) for pair in ref.extents]}
            for ref in node.manifests
        ]
    return document


def _counts(node: str, table: ChunkTable) -> dict[str, Any]:
    return {
        "node_id": node,
        "num_chunk_refs": len(table),
        "num_inline": table.count(ChunkType.inline),
        "num_native": table.count(ChunkType.native),
        "num_virtual": table.count(ChunkType.virtual),
    }


def _changes(logs: list[TransactionLog]) -> JSONObject:
    """Return what any of the logs says, also of what later ones undid."""
    chunks: dict[str, set[tuple[int, ...]]] = {}
    for log in logs:
        for node, index in log.updated_chunks.items():
            chunks.setdefault(str(node), set()).update(map(tuple, index.tolist()))
    return {
        **{name: sorted({str(k) for log in logs for k in getattr(log, name)}) for name in _SETS},
        "updated_chunks": [
            {"node_id": node, "chunks": [list(each) for each in sorted(chunks[node])]}
            for node in sorted(chunks)
        ],
        "moved_nodes": [
            {"from": move.from_path, "to": move.to_path} for log in logs for move in log.moved_nodes
        ],
    }
