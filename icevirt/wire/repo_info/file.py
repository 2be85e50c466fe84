"""Read and write the repo info: branches, tags, snapshots, configuration, ops log.

Spec: "Repo Info File". Snapshots are sorted by id and referred to by their row, only in this file.
The official client trusts rows, orders and the ops log's shape so much that a wrong one ends its
process, so wrong ones are refused on reading and on writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import OpsLog, RepoInfo
from icevirt.wire import header
from icevirt.wire.documents import flex_read, flex_write, metadata
from icevirt.wire.flatbuffer.builder import Builder
from icevirt.wire.flatbuffer.columns_write import Tail
from icevirt.wire.flatbuffer.payload import Payload
from icevirt.wire.flatbuffer.reader import Damage, FlatBufferReader, reading
from icevirt.wire.flatbuffer.schema import REPO, Values
from icevirt.wire.header import FileKind
from icevirt.wire.repo_info import (
    ops_log_read,
    ops_log_write,
    snapshots_read,
    snapshots_write,
    updates,
)
from icevirt.wire.repo_info.snapshots_read import SnapshotInfos

MAIN = "main"


def encode(info: RepoInfo, *, level: int = 3) -> bytes:
    """Return the V2 ``repo`` object.

    Raises:
        InvalidInputError: There is no branch ``main``, a branch or tag names an unknown snapshot,
            the newest entry of the ops log has a backup already, or the value comes from a newer
            client's file and would lose something.
    """
    _check(info)
    snapshots = snapshots_read.columns_of(info.snapshots)
    rows = snapshots.rows()
    values = {
        "spec_version": info.spec_version,
        "tags": _ref_values(info.tags, rows),
        "branches": _ref_values(info.branches, rows),
        "deleted_tags": sorted(info.deleted_tags, key=str.encode),
        "snapshots": snapshots,
        "status": updates.status_values(info.status),
        "metadata": None if info.metadata is None else metadata.to_items(info.metadata),
        "latest_updates": OpsLog.of(info.latest_updates),
        "repo_before_updates": info.repo_before_updates,
        "config": None if info.config is None else flex_write.dumps(info.config),
        "enabled_feature_flags": _sorted(info.enabled_feature_flags),
        "disabled_feature_flags": _sorted(info.disabled_feature_flags),
        "extra": info.extra,
    }
    small = Builder().root(REPO, values)
    tail = Tail(len(small.out))
    for place, columns in small.open:
        is_log = isinstance(columns, OpsLog)
        small.link(place, (ops_log_write if is_log else snapshots_write).write(tail, columns))
    payload = b"".join([small.out, *(part.tobytes() for part in tail.blocks())])
    return header.pack(FileKind.repo_info, payload, level=level)


def decode(raw: bytes) -> RepoInfo:
    """Read the ``repo`` object. Raises ``FormatError``."""
    spec_version, payload = header.unpack(raw, FileKind.repo_info)
    with reading(FileKind.repo_info.name):
        reader = FlatBufferReader(payload)
        values = reader.root(REPO)
        columns = Payload(payload)
        snapshots = snapshots_read.read(columns, values["snapshots"], spec_version, reader.newer)
        return RepoInfo(
            spec_version=values["spec_version"],
            tags=_refs(values["tags"], snapshots),
            branches=_refs(values["branches"], snapshots),
            deleted_tags=frozenset(values["deleted_tags"]),
            snapshots=snapshots,
            status=updates.status(values["status"]),
            metadata=_optional_metadata(values["metadata"], spec_version),
            latest_updates=ops_log_read.read(columns, values["latest_updates"], reader),
            repo_before_updates=updates.backup_name(values["repo_before_updates"]),
            config=_config(values["config"]),
            enabled_feature_flags=_flags(values["enabled_feature_flags"]),
            disabled_feature_flags=_flags(values["disabled_feature_flags"]),
            extra=values["extra"],
            newer_tables=tuple(sorted(reader.newer)),
        )


# -- writing --------------------------------------------------------------------------------------


def _check(info: RepoInfo) -> None:
    if info.newer_tables:
        raise InvalidInputError(
            "the repository holds fields of a newer client, which writing would lose",
            do="Upgrade icevirt to write to it; reading is safe.",
            tables=list(info.newer_tables),
        )
    if MAIN not in info.branches:
        raise InvalidInputError("a repository always has the branch 'main'")
    named = {*info.tags.values(), *info.branches.values()}
    if unknown := named - info.snapshots.keys():
        raise InvalidInputError(
            "a branch or tag points to an unknown snapshot", snapshots=sorted(map(str, unknown))
        )
    if info.latest_updates and info.latest_updates[0].backup_path is not None:
        raise InvalidInputError(
            "the newest entry of the ops log cannot have a backup yet",
            do="Give the name of the backup to the entry that was the newest in it.",
        )


def _ref_values(refs: Mapping[str, ObjectId12], rows: Mapping[bytes, int]) -> list[Values]:
    names = sorted(refs, key=str.encode)
    return [{"name": name, "snapshot_index": rows[refs[name]]} for name in names]


def _sorted(flags: tuple[int, ...] | None) -> list[int] | None:
    return None if flags is None else sorted(flags)


# -- reading --------------------------------------------------------------------------------------


def _refs(values: list[Values], snapshots: SnapshotInfos) -> dict[str, ObjectId12]:
    found = {}
    for each in values:
        if each["snapshot_index"] >= snapshots.listed or each["name"] in found:
            raise Damage("a branch or tag is listed twice or points to no snapshot", 0)
        found[each["name"]] = snapshots.id_at(each["snapshot_index"])
    return found


def _optional_metadata(values: list[Values] | None, spec_version: int) -> JSONObject | None:
    return None if values is None else metadata.from_items(values, spec_version)


def _config(raw: bytes | None) -> JSONObject | None:
    if raw is None:
        return None
    try:
        document: Any = flex_read.loads(raw)
    except Damage as damage:
        damage.trail += ["config", REPO.name]
        raise
    if not isinstance(document, Mapping):
        raise Damage("the configuration is not a map", 0)
    return document


def _flags(flags: list[int] | None) -> tuple[int, ...] | None:
    return None if flags is None else tuple(flags)
