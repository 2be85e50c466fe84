"""Read and write the ops log of the repo info, and the status: tables to columns and back.

Spec: "Update", "RepoStatus". Members of the union of update kinds have the field names of the
model's classes, so both directions follow from the schema. All entries that are read are checked,
including those that are never used. Entries of one kind are written all at once, as copies of a
template in which ids, times and names of backups are filled in.
"""

from __future__ import annotations

import os
from dataclasses import fields
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from icevirt.deferred_dataclass import dataclass
from icevirt.ids import ALPHABET, ObjectId12
from icevirt.model.repo_info import (
    IDS,
    NO_ID,
    UPDATE_KINDS,
    FeatureFlagChanged,
    OpsLog,
    RepoAvailability,
    RepoStatusChanged,
    StatusRecord,
    UpdateKind,
    with_ids,
)
from icevirt.model.strings import Bytes, Places, Strings, gather
from icevirt.wire.flatbuffer.columns_read import Payload, Tables, array, text
from icevirt.wire.flatbuffer.reader import Damage, FlatBufferReader, Span
from icevirt.wire.flatbuffer.schema import OBJECT_ID_12, TEXT, UPDATE, UPDATE_TYPE, Values
from icevirt.wire.manifests.distinct_rows import equal_ranges, first_uses

if TYPE_CHECKING:
    from icevirt.wire.flatbuffer.columns_write import Tail

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


def read(payload: Payload, span: Span, reader: FlatBufferReader) -> OpsLog:
    """Read the log. Raises ``Damage``."""
    if not span.count:
        return OpsLog.of(())
    tables = Tables(payload, span, UPDATE)
    tables.look_beyond(reader.newer)
    tag = tables.tags("update_type")
    if int(tag.min()) < 1 or int(tag.max()) > len(UPDATE_KINDS):
        raise Damage("this icevirt does not know the kind of an entry", span.start)
    slots = tables.places("update_type")
    assert slots is not None  # it is required
    members = array(slots)
    known: dict[UpdateKind, int] = {}
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
) -> tuple[list[UpdateKind], Places, NDArray[np.uint8]]:
    """Return the distinct entries of a kind without ids, which each row has, and all ids."""
    member, cls = UPDATE_TYPE.members[tag - 1], UPDATE_KINDS[tag - 1]
    ids = np.zeros((len(at), len(IDS), ObjectId12.SIZE), np.uint8)
    if member not in _IN_COLUMNS:  # few in any log
        found = [_kind(cls, reader.referred(member, place)) for place in at.tolist()]
        return found, np.arange(len(at)), ids
    tables = Tables(payload, at, member)
    tables.look_beyond(reader.newer)
    values: dict[str, Any] = {name: NO_ID for name in IDS if name in member.slots}
    for name in values:
        ids[:, IDS.index(name)] = tables.structs(name)
    named = next((field.name for field in member.fields if field.kind is TEXT), None)
    if named is None:
        return [cast("UpdateKind", cls(**values))], np.zeros(len(at), np.int64), ids
    names, number = _names(payload, tables, named)
    found = [cast("UpdateKind", cls(**values, **{named: name})) for name in names]
    return found, number, ids


def _kind(cls: type[UpdateKind], values: Values) -> UpdateKind:
    """Return what an entry without ids says. Raises ``Damage``."""
    if cls is RepoStatusChanged:
        if values["status"] is None:
            raise Damage("a change of status without a status", 0)
        return RepoStatusChanged(status(values["status"]))
    if cls is FeatureFlagChanged:
        return FeatureFlagChanged(values["id"], values["new_value"] if values["is_set"] else None)
    return cls(**values)


def _names(payload: Payload, tables: Tables, name: str) -> tuple[list[str], Places]:
    start, count = tables.spans(name, 1)
    first, number = first_uses(start)
    if int(count[first].sum()) > payload.size:
        raise Damage("names overlap", int(start[0]))
    start, count = start[first], count[first]
    again, same = equal_ranges(payload.padded, start, count)
    return list(text(*gather(payload.bytes, start[again], count[again]))), same[number]


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
    prefix, digits = names[:, : len(_PREFIX)], names[:, len(_PREFIX) : dot]
    in_alphabet = np.zeros(256, np.bool_)
    in_alphabet[np.frombuffer(ALPHABET.encode(), np.uint8)] = True
    return bool(
        (prefix == np.frombuffer(_PREFIX, np.uint8)).all()
        and ((digits >= ord("0")) & (digits <= ord("9"))).all()
        and (names[:, dot] == ord(".")).all()
        and in_alphabet[names[:, dot + 1 :]].all()
    )


def backup_name(name: str | None) -> str | None:
    """Return the name if it has the form of a backup. Raises ``Damage`` for ``../repo``."""
    if name is not None:
        raw = np.frombuffer(name.encode(), np.uint8)
        if len(raw) != _BACKUP_SIZE or not _are_backups(raw[None]):
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


@dataclass(frozen=True, slots=True)
class _EntryForm:
    """The bytes of an entry, and where they hold what differs."""

    raw: bytes  # references are relative, so it may stand at any multiple of 8
    table_at: int
    at: dict[str, int]


def write(tail: Tail, log: OpsLog) -> int:
    """Append the log and return where it stands."""
    from icevirt.wire.flatbuffer.columns_write import vector_blocks

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
def _form(kind: UpdateKind, length: int) -> _EntryForm:
    """Make an entry with marks in the places of ids, time and the name of a backup."""
    from icevirt.wire.flatbuffer.builder import Builder

    marks = {name: os.urandom(ObjectId12.SIZE) for name in IDS if hasattr(kind, name)}
    marked = with_ids(kind, {name: ObjectId12(mark) for name, mark in marks.items()})
    time, backup = os.urandom(8), os.urandom(length).hex()[:length]
    values = {
        "update_type": (UPDATE_KINDS.index(type(kind)) + 1, _kind_values(marked)),
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


def _kind_values(kind: UpdateKind) -> Values:
    if isinstance(kind, RepoStatusChanged):
        return {"status": status_values(kind.status)}
    if isinstance(kind, FeatureFlagChanged):
        value = kind.new_value
        return {"id": kind.id, "new_value": bool(value), "is_set": value is not None}
    return {field.name: getattr(kind, field.name) for field in fields(kind)}


def status_values(status: StatusRecord) -> Values:
    """Return the table of a status."""
    return {
        "availability": int(status.availability),
        "set_at": status.set_at,
        "limited_availability_reason": status.limited_availability_reason,
    }
