"""Read and write the repo info: branches, tags, snapshots, configuration, ops log, status.

Spec: "Repo Info File". Snapshots are sorted by id and referred to by their row, only in this file.
The official client trusts rows, orders and the ops log's shape so much that a wrong one ends its
process, so wrong ones are refused on reading and on writing, also those that are never used.

Members of the union of update kinds have the field names of the model's classes, so both directions
follow from the schema. Entries of one kind are written all at once, as copies of a template in
which ids, times and names of backups are filled in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.ids import ALPHABET, ObjectId12
from icevirt.model.repo_info import (
    IDS,
    NO_ID,
    OpsLog,
    RepoAvailability,
    RepoInfo,
    StatusRecord,
    UpdateFields,
)
from icevirt.model.strings import Bytes, Places, Strings, gather
from icevirt.wire import header
from icevirt.wire.flatbuffer.reader import (
    FlatBufferReader,
    Payload,
    Span,
    Tables,
    array,
    reading,
    text,
)
from icevirt.wire.flatbuffer.schema import (
    OBJECT_ID_12,
    REPO,
    TEXT,
    UPDATE,
    UPDATE_TYPE,
    Damage,
    Table,
    Values,
)
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.distinct_rows import equal_ranges, first_uses
from icevirt.wire.repo_info import snapshots
from icevirt.wire.repo_info.snapshots import RowIndex, SnapshotInfos

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject
    from icevirt.wire.flatbuffer.builder import Tail


_IN_COLUMNS = {
    member
    for member in UPDATE_TYPE.members
    if all(field.kind is TEXT or field.kind is OBJECT_ID_12 for field in member.fields)
}
# "repo.", milliseconds before the year 3000, a random id. Anything else could name other objects.
_PREFIX, _DIGITS, _ID = b"repo.", 14, 20
_BACKUP_SIZE = len(_PREFIX) + _DIGITS + 1 + _ID
_NO_BACKUP = "not the name of a backup of the repo info"
_REMEMBERED = 4096  # forms of entries; a log has a thousand entries, unless configured otherwise
_ALIGN = 8
_LENGTH_BITS = 32  # no payload holds a longer name
_LONGEST = (1 << _LENGTH_BITS) - 1


# -- reading --------------------------------------------------------------------------------------


def read_log(payload: Payload, span: Span, reader: FlatBufferReader) -> OpsLog:
    """Read the log. Raises ``Damage``."""
    if not span.count:
        return OpsLog.of(())
    tables = Tables(payload, span, UPDATE)
    tables.look_beyond(reader.newer)
    tag = tables.tags("update_type")
    if int(tag.min()) < 1 or int(tag.max()) > len(UPDATE_TYPE.members):
        raise Damage("this icevirt does not know the kind of an entry", span.start)
    slots = tables.places("update_type")
    assert slots is not None  # it is required
    members = array(slots)
    known: dict[UpdateFields, int] = {}
    kind = np.zeros(len(tables), np.int64)
    ids = np.zeros((len(tables), len(IDS), ObjectId12.SIZE), np.uint8)
    for each in np.unique(tag).tolist():
        rows = np.flatnonzero(tag == each)
        found, number, ids[rows] = _kinds(reader, payload, each, members[rows])
        places = [known.setdefault(one, len(known)) for one in found]
        kind[rows] = np.array(places)[number]
    return OpsLog(
        kinds=tuple(known),
        kind=kind,
        ids=ids,
        updated_at=tables.numbers("updated_at", 8).astype(np.uint64),
        backup=_backups(payload, tables),
    )


def _kinds(
    reader: FlatBufferReader, payload: Payload, tag: int, at: Places
) -> tuple[list[UpdateFields], Places, NDArray[np.uint8]]:
    """Return the distinct entries of a kind without ids, which each row has, and all ids."""
    member = UPDATE_TYPE.members[tag - 1]
    ids = np.zeros((len(at), len(IDS), ObjectId12.SIZE), np.uint8)
    if member not in _IN_COLUMNS:  # few in any log
        found = [reader.read_reference(member, place) for place in at.tolist()]
        said = [UpdateFields(tag, _update_values(member, values)) for values in found]
        return said, np.arange(len(at)), ids
    tables = Tables(payload, at, member)
    tables.look_beyond(reader.newer)
    for name in member.slots.keys() & set(IDS):
        ids[:, IDS.index(name)] = tables.structs(name)
    named = next((field.name for field in member.fields if field.kind is TEXT), None)
    if named is None:
        return [_said(tag, member, "")], np.zeros(len(at), np.int64), ids
    start, count = tables.spans(named, 1)
    first, number = first_uses(start)
    if int(count[first].sum()) > payload.size:
        raise Damage("names overlap", int(start[0]))
    start, count = start[first], count[first]
    again, same = equal_ranges(payload.padded, start, count)
    names, number = list(text(*gather(payload.bytes, start[again], count[again]))), same[number]
    return [_said(tag, member, name) for name in names], number, ids


def _said(tag: int, member: Table, name: str) -> UpdateFields:
    """Return what an entry of ids and a name says."""
    return UpdateFields(tag, tuple(name if each.kind is TEXT else NO_ID for each in member.fields))


def _update_values(member: Table, values: Values) -> tuple[Any, ...]:
    """Return what an entry without ids says. Raises ``Damage``."""
    if "status" in values:
        if values["status"] is None:
            raise Damage("a change of status without a status", 0)
        return (status(values["status"]),)
    if "is_set" in values:
        return values["id"], values["new_value"] if values["is_set"] else None
    return tuple(values[each.name] for each in member.fields)


def _backups(payload: Payload, tables: Tables) -> Strings:
    """Return the names of backups, each of the one form that names nothing else."""
    start, count = tables.spans("backup_path", 1)
    wrong = (start > 0) & (count != _BACKUP_SIZE)
    if wrong.any():
        raise Damage(_NO_BACKUP, int(start[np.argmax(wrong)]))
    data, starts = gather(payload.bytes, start, count)
    if not _are_backups(data.reshape(-1, _BACKUP_SIZE)):
        raise Damage(_NO_BACKUP, int(start.max()))
    return Strings(data, starts)


def _are_backups(names: Bytes) -> bool:
    """Say whether names, shape (n, size), have the form of a backup's."""
    dot = len(_PREFIX) + _DIGITS
    digits, letters = names[:, len(_PREFIX) : dot], names[:, dot + 1 :].tobytes()
    return bool(
        (names[:, : len(_PREFIX)] == np.frombuffer(_PREFIX, np.uint8)).all()
        and ((digits >= ord("0")) & (digits <= ord("9"))).all()
        and (names[:, dot] == ord(".")).all()
        and not letters.translate(None, ALPHABET.encode())
    )


def backup_name(name: str | None) -> str | None:
    """Return the name if it has the form of a backup. Raises ``Damage`` for ``../repo``."""
    raw = np.frombuffer((name or "").encode(), np.uint8)
    if name is not None and not (len(raw) == _BACKUP_SIZE and _are_backups(raw[None])):
        raise Damage(_NO_BACKUP, 0)
    return name


def status(values: Values) -> StatusRecord:
    """Read a status. ``Offline``, and what may come after it, takes no writes either."""
    online = values["availability"] == RepoAvailability.online
    return StatusRecord(
        availability=RepoAvailability.online if online else RepoAvailability.read_only,
        set_at=values["set_at"],
        limited_availability_reason=values["limited_availability_reason"],
    )


# -- writing --------------------------------------------------------------------------------------


class _EntryForm(NamedTuple):
    """The bytes of an entry, and where they hold what differs."""

    raw: bytes  # references are relative, so it may stand at any multiple of 8
    table_at: int
    at: dict[str, int]


def write_log(tail: Tail, log: OpsLog) -> int:
    """Append the log and return where it stands."""
    from icevirt.wire.flatbuffer.builder import vector_blocks

    group = log.kind << _LENGTH_BITS | log.backup.lengths
    places = np.zeros(len(log), np.int64)
    start = tail.add(4 + 4 * len(log), lambda: vector_blocks(start, len(log), [places]), align=4)
    for each in sorted(set(group.tolist())):
        rows = (group == each).nonzero()[0]
        first, last = int(rows[0]), int(rows[-1])
        form = _form(log.kinds[each >> _LENGTH_BITS], each & _LONGEST)
        follow = last - first + 1 == len(rows)
        made = _copies(form, log, slice(first, last + 1) if follow else rows)
        block = tail.add(made.size, partial(list, [made.reshape(-1)]), align=_ALIGN)
        places[rows] = block + form.table_at + len(form.raw) * np.arange(len(rows))
    return start


def _copies(form: _EntryForm, log: OpsLog, rows: Places | slice) -> Bytes:
    """Return the bytes of these entries, shape (n, size)."""
    if isinstance(rows, slice):
        starts = log.backup.starts
        backup = log.backup.data[starts[rows.start] : starts[rows.stop]]
    else:
        backup = log.backup[rows].data
    made = np.empty((len(log.kind[rows]), len(form.raw)), np.uint8)
    made[:] = np.frombuffer(form.raw, np.uint8)
    for name, at in form.at.items():
        if name == "updated_at":
            column = log.updated_at[rows].astype("<u8").view(np.uint8).reshape(-1, 8)
        elif name == "backup":
            column = backup.reshape(len(made), -1)
        else:
            column = log.ids[rows, IDS.index(name)]
        made[:, at : at + column.shape[1]] = column
    return made


@lru_cache(_REMEMBERED)
def _form(said: UpdateFields, length: int) -> _EntryForm:
    """Make an entry with marks in the places of ids, time and the name of a backup."""
    from icevirt.wire.flatbuffer.builder import Builder

    names = [each.name for each in UPDATE_TYPE.members[said.tag - 1].fields]
    marks = {name: ObjectId12(os.urandom(ObjectId12.SIZE)) for name in IDS if name in names}
    marked = {**dict(zip(names, said.values, strict=False)), **marks}
    time, backup = os.urandom(8), os.urandom(length).hex()[:length]
    values = {
        "update_type": (said.tag, _stored(marked)),
        "updated_at": int.from_bytes(time, "little"),
        "backup_path": backup or None,
    }
    small = Builder()
    head = len(small.out)
    table_at = small.table(UPDATE, values) - head
    small.align(_ALIGN)
    raw = bytes(small.out[head:])
    at = {name: raw.index(mark) for name, mark in {**marks, "updated_at": time}.items()}
    if length:  # nothing but zeros comes after it
        at["backup"] = raw.rindex(backup.encode())
    return _EntryForm(raw, table_at, at)


def _stored(values: Values) -> Values:
    """Return the fields of an update as the format has them."""
    if "status" in values:
        return {"status": status_values(values["status"])}
    if "new_value" in values:
        value = values["new_value"]
        return {"id": values["id"], "new_value": bool(value), "is_set": value is not None}
    return values


def status_values(status: StatusRecord) -> Values:
    """Return the table of a status."""
    return {**status._asdict(), "availability": int(status.availability)}


MAIN = "main"


def fold(info: RepoInfo) -> RepoInfo:
    """Return the same with its snapshots in columns, for which the next `encode` has less to do.

    Raises:
        InvalidInputError: The parent of a snapshot is unknown.
    """
    return info._replace(snapshots=snapshots.infos_of(info.snapshots))


def encode(info: RepoInfo, *, level: int = 3) -> bytes:
    """Return the V2 ``repo`` object.

    Raises:
        InvalidInputError: There is no branch ``main``, a branch or tag names an unknown snapshot,
            the newest entry of the ops log has a backup already, or the value comes from a newer
            client's file and would lose something.
    """
    from icevirt.wire import flexbuffers, metadata
    from icevirt.wire.flatbuffer.builder import Builder, Tail
    from icevirt.wire.repo_info import snapshot_records

    log = OpsLog.of(info.latest_updates)
    _check(info, log)
    index, records = snapshots.infos_of(info.snapshots).prepare_records()
    values = {
        "spec_version": info.spec_version,
        "tags": _ref_values(info.tags, index),
        "branches": _ref_values(info.branches, index),
        "deleted_tags": sorted(info.deleted_tags, key=str.encode),
        "snapshots": records,
        "status": status_values(info.status),
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
            small.link(place, write_log(tail, columns))
        else:
            small.link(place, snapshot_records.write(tail, index.columns, records))
    return header.pack(FileKind.repo_info, tail.payload(small.out).data, level=level)


def decode(raw: bytes) -> RepoInfo:
    """Read the ``repo`` object. Raises ``FormatError``."""
    from icevirt.wire import metadata

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
            status=status(values["status"]),
            metadata=_optional(
                values["metadata"], lambda items: metadata.from_items(items, spec_version)
            ),
            latest_updates=read_log(columns, values["latest_updates"], reader),
            repo_before_updates=backup_name(values["repo_before_updates"]),
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
        name, row = each["name"], each["snapshot_index"]
        if row >= listed.size or name in found:
            raise Damage("a branch or tag is listed twice or points to no snapshot", 0)
        found[name] = listed.id_at(row)
    return found


def _config(raw: bytes | None) -> JSONObject | None:
    if raw is None:
        return None
    from icevirt.wire import flexbuffers

    try:
        document: Any = flexbuffers.loads(raw)
    except Damage as damage:
        damage.trail += ["config", REPO.name]
        raise
    if not isinstance(document, Mapping):
        raise Damage("the configuration is not a map", 0)
    return document
