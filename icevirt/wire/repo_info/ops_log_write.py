"""Write the ops log of the repo info; entries of one kind are written all at once.

Spec: "Update". One template is made for each kind and length of backup name; its copies differ at
the marked positions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import IDS, OpsLog, OpsLogEntry, UpdateKind, with_ids
from icevirt.wire.flatbuffer.columns_write import Tail, vector_blocks
from icevirt.wire.repo_info import updates
from icevirt.wire.row_order import Bytes, Places

_REMEMBERED = 4096  # forms of entries; a log has a thousand entries, unless configured otherwise
_ALIGN = 8


@dataclass(frozen=True, slots=True)
class _Form:
    """The bytes of an entry, and where they hold what differs."""

    raw: bytes
    table_at: int
    at: dict[str, int]


def write(tail: Tail, log: OpsLog) -> int:
    """Append the log and return where it stands."""
    lengths = log.backup.lengths
    _, group = np.unique(np.stack([log.kind, lengths]), axis=1, return_inverse=True)
    places = np.zeros(len(log), np.int64)
    start = tail.add(4 + 4 * len(log), lambda: vector_blocks(start, len(log), [places]), align=4)
    for number in range(int(group.max(initial=-1)) + 1):
        rows = np.flatnonzero(group == number)
        form = _form(log.kinds[int(log.kind[rows[0]])], int(lengths[rows[0]]))
        made = _copies(form, log, rows)
        block = tail.add(made.size, partial(list, [made.reshape(-1)]), align=_ALIGN)
        places[rows] = block + form.table_at + len(form.raw) * np.arange(len(rows))
    return start


def _copies(form: _Form, log: OpsLog, rows: Places) -> Bytes:
    """Return the bytes of these entries, shape (n, size)."""
    made = np.tile(np.frombuffer(form.raw, np.uint8), (len(rows), 1))
    columns = {name: log.ids[rows, at] for at, name in enumerate(IDS)}
    columns["updated_at"] = log.updated_at[rows].astype("<u8").view(np.uint8).reshape(-1, 8)
    columns["backup"] = log.backup[rows].data.reshape(len(rows), -1)
    for name, at in form.at.items():
        made[:, at : at + columns[name].shape[1]] = columns[name]
    return made


@lru_cache(_REMEMBERED)
def _form(kind: UpdateKind, length: int) -> _Form:
    """Make an entry with marks where ids, times and the name of a backup are to be."""
    marks = {name: os.urandom(ObjectId12.SIZE) for name in IDS if hasattr(kind, name)}
    told = {name: ObjectId12(mark) for name, mark in marks.items()}
    time, backup = os.urandom(8), os.urandom(length).hex()[:length]
    table = updates.encoded(
        OpsLogEntry(
            kind=with_ids(kind, told),
            updated_at=int.from_bytes(time, "little"),
            backup_path=backup or None,
        )
    )
    at = {name: table.raw.index(mark) for name, mark in {**marks, "updated_at": time}.items()}
    if length:  # nothing but zeros comes after it
        at["backup"] = table.raw.rindex(backup.encode())
    return _Form(table.raw, table.table_at, at)
