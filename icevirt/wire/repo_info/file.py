"""Read and write the repo info: branches, tags, snapshots, configuration, ops log.

Spec: "Repo Info File". Snapshots are sorted by id and referred to by their row, only in this file.
The official client trusts rows, orders and the ops log's shape so much that a wrong one ends its
process, so wrong ones are refused on reading and on writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import OpsLog, RepoInfo
from icevirt.wire import header
from icevirt.wire.flatbuffer.columns_read import Payload
from icevirt.wire.flatbuffer.reader import Damage, FlatBufferReader, reading
from icevirt.wire.flatbuffer.schema import REPO, Values
from icevirt.wire.header import FileKind
from icevirt.wire.repo_info import ops_log, snapshots
from icevirt.wire.repo_info.snapshots import RowIndex, SnapshotInfos

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject

MAIN = "main"


def folded(info: RepoInfo) -> RepoInfo:
    """Return the same with its snapshots in columns, for which the next `encode` has less to do.

    Raises:
        InvalidInputError: The parent of a snapshot is unknown.
    """
    return replace(info, snapshots=snapshots.infos_of(info.snapshots))


def encode(info: RepoInfo, *, level: int = 3) -> bytes:
    """Return the V2 ``repo`` object.

    Raises:
        InvalidInputError: There is no branch ``main``, a branch or tag names an unknown snapshot,
            the newest entry of the ops log has a backup already, or the value comes from a newer
            client's file and would lose something.
    """
    from icevirt.wire.documents import flexbuffers, metadata
    from icevirt.wire.flatbuffer.builder import Builder
    from icevirt.wire.flatbuffer.columns_write import Tail
    from icevirt.wire.repo_info import snapshot_records

    log = OpsLog.of(info.latest_updates)
    _check(info, log)
    index, records = snapshots.infos_of(info.snapshots).written()
    values = {
        "spec_version": info.spec_version,
        "tags": _ref_values(info.tags, index),
        "branches": _ref_values(info.branches, index),
        "deleted_tags": sorted(info.deleted_tags, key=str.encode),
        "snapshots": records,
        "status": ops_log.status_values(info.status),
        "metadata": _optional(info.metadata, metadata.to_items),
        "latest_updates": log,
        "repo_before_updates": info.repo_before_updates,
        "config": _optional(info.config, flexbuffers.dumps),
        "enabled_feature_flags": _optional(info.enabled_feature_flags, sorted),
        "disabled_feature_flags": _optional(info.disabled_feature_flags, sorted),
        "extra": info.extra,
    }
    small = Builder().root(REPO, values)
    tail = Tail(len(small.out))
    for place, columns in small.open:
        if isinstance(columns, OpsLog):
            small.link(place, ops_log.write(tail, columns))
        else:
            small.link(place, snapshot_records.write(tail, index.columns, records))
    return header.pack(FileKind.repo_info, tail.payload(small.out).data, level=level)


def decode(raw: bytes) -> RepoInfo:
    """Read the ``repo`` object. Raises ``FormatError``."""
    from icevirt.wire.documents import metadata

    spec_version, payload = header.unpack(raw, FileKind.repo_info)
    with reading(FileKind.repo_info.name):
        reader = FlatBufferReader(payload)
        values = reader.root(REPO)
        columns = Payload(payload)
        listed = snapshots.read(columns, values["snapshots"], spec_version, reader.newer)
        return RepoInfo(
            spec_version=values["spec_version"],
            tags=_refs(values["tags"], listed),
            branches=_refs(values["branches"], listed),
            deleted_tags=frozenset(values["deleted_tags"]),
            snapshots=listed,
            status=ops_log.status(values["status"]),
            metadata=_optional(
                values["metadata"], lambda items: metadata.from_items(items, spec_version)
            ),
            latest_updates=ops_log.read(columns, values["latest_updates"], reader),
            repo_before_updates=ops_log.backup_name(values["repo_before_updates"]),
            config=_config(values["config"]),
            enabled_feature_flags=_optional(values["enabled_feature_flags"], tuple),
            disabled_feature_flags=_optional(values["disabled_feature_flags"], tuple),
            extra=values["extra"],
            newer_tables=tuple(sorted(reader.newer)),
        )


def _optional[T, R](value: T | None, convert: Callable[[T], R]) -> R | None:
    return None if value is None else convert(value)


# -- writing --------------------------------------------------------------------------------------


def _check(info: RepoInfo, log: OpsLog) -> None:
    if info.newer_tables:
        raise InvalidInputError(
            "the repository holds fields of a newer client, which writing would lose",
            do="Upgrade icevirt to write to it; reading is safe.",
            tables=list(info.newer_tables),
        )
    if MAIN not in info.branches:
        raise InvalidInputError("a repository always has the branch 'main'")
    named = {*info.tags.values(), *info.branches.values()}
    if unknown := [key for key in named if key not in info.snapshots]:
        raise InvalidInputError(
            "a branch or tag points to an unknown snapshot", snapshots=sorted(map(str, unknown))
        )
    if len(log) and log.backup.starts[1]:
        raise InvalidInputError(
            "the newest entry of the ops log cannot have a backup yet",
            do="Give the name of the backup to the entry that was the newest in it.",
        )


def _ref_values(refs: Mapping[str, ObjectId12], index: RowIndex) -> list[Values]:
    names = sorted(refs, key=str.encode)
    return [{"name": name, "snapshot_index": index.row(refs[name])} for name in names]


# -- reading --------------------------------------------------------------------------------------


def _refs(values: list[Values], listed: SnapshotInfos) -> dict[str, ObjectId12]:
    found = {}
    for each in values:
        if each["snapshot_index"] >= listed.size or each["name"] in found:
            raise Damage("a branch or tag is listed twice or points to no snapshot", 0)
        found[each["name"]] = listed.id_at(each["snapshot_index"])
    return found


def _config(raw: bytes | None) -> JSONObject | None:
    if raw is None:
        return None
    from icevirt.wire.documents import flexbuffers

    try:
        document: Any = flexbuffers.loads(raw)
    except Damage as damage:
        damage.trail += ["config", REPO.name]
        raise
    if not isinstance(document, Mapping):
        raise Damage("the configuration is not a map", 0)
    return document
