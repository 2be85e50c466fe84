"""Read the ops log of the repo info: bytes to columns.

Spec: "Update" and the union of its kinds, whose members have the field names of the model's
classes. All entries are checked, including those that are never used.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import IDS, NO_ID, UPDATE_KINDS, OpsLog, UpdateKind
from icevirt.model.strings import Strings
from icevirt.wire.flatbuffer.columns_read import Tables
from icevirt.wire.flatbuffer.payload import Payload, array
from icevirt.wire.flatbuffer.reader import Damage, FlatBufferReader, Span
from icevirt.wire.flatbuffer.schema import OBJECT_ID_12, UPDATE, UPDATE_TYPE, Text
from icevirt.wire.manifests.distinct_rows import equal_ranges, first_uses
from icevirt.wire.manifests.locations_read import text
from icevirt.wire.repo_info import updates
from icevirt.wire.row_order import Places, gather

_IN_COLUMNS = {
    member
    for member in UPDATE_TYPE.members
    if all(field.kind in (Text(), OBJECT_ID_12) for field in member.fields)
}
_SIZE = len(updates.BACKUP_FORM)


def read(payload: Payload, span: Span, reader: FlatBufferReader) -> OpsLog:
    """Read the log. Raises ``Damage``."""
    if not span.count:
        return OpsLog.of(())
    tables = Tables(payload, span, UPDATE)
    if tables.stores_from(UPDATE.slots["backup_path"] + 1):
        reader.newer.add(UPDATE.name)
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
        found = [updates.kind(tag, reader.referred(member, place)) for place in at.tolist()]
        return found, np.arange(len(at)), ids
    tables = Tables(payload, at, member)
    if tables.stores_from(max(member.slots.values(), default=-1) + 1):
        reader.newer.add(member.name)
    told: dict[str, Any] = {name: NO_ID for name in IDS if name in member.slots}
    for name in told:
        ids[:, IDS.index(name)] = tables.structs(name)
    named = next((field.name for field in member.fields if field.kind == Text()), None)
    if named is None:
        return [cast("UpdateKind", cls(**told))], np.zeros(len(at), np.int64), ids
    names, number = _names(payload, tables, named)
    found = [cast("UpdateKind", cls(**told, **{named: name})) for name in names]
    return found, number, ids


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
    if (found := tables.vectors("backup_path", 1)) is None:
        return Strings.empty(len(tables))
    rows, start, count = found
    if bool((count != _SIZE).any()):
        raise Damage(updates.NO_BACKUP, int(array(start)[0]))
    data, _ = gather(payload.bytes, array(start), count)
    letters = data.reshape(-1, _SIZE)
    if not bool(_ALLOWED[np.arange(_SIZE), letters].all()):
        raise Damage(updates.NO_BACKUP, int(array(start)[0]))
    lengths = np.zeros(len(tables), np.int64)
    lengths[slice(None) if rows is None else rows] = count
    return Strings(data, np.concatenate([[0], np.cumsum(lengths)]))


def _allowed() -> NDArray[np.bool_]:
    """Return which bytes a backup's name may have at each place."""
    found = np.zeros((_SIZE, 256), np.bool_)
    for place, letters in enumerate(updates.BACKUP_FORM):
        found[place, list(letters)] = True
    return found


_ALLOWED = _allowed()
