"""Convert entries of the ops log and their status to tables, and back.

Spec: "Update", "RepoStatus". The members of the union have the field names of the model's classes,
so both directions follow from the schema.
"""

from __future__ import annotations

from dataclasses import fields
from typing import cast

from icevirt.ids import ALPHABET
from icevirt.model.repo_info import (
    UPDATE_KINDS,
    FeatureFlagChanged,
    OpsLogEntry,
    RepoAvailability,
    RepoStatusChanged,
    StatusRecord,
    UpdateKind,
)
from icevirt.wire.flatbuffer import builder
from icevirt.wire.flatbuffer.builder import Encoded
from icevirt.wire.flatbuffer.reader import Damage
from icevirt.wire.flatbuffer.schema import UPDATE, Values

# "repo.", milliseconds before the year 3000, a random id. Anything else could name other objects.
BACKUP_FORM = [
    *(letter.encode() for letter in "repo."),
    *14 * [b"0123456789"],
    b".",
    *20 * [ALPHABET.encode()],
]
"""What may stand at each place of a backup's name."""
NO_BACKUP = "not the name of a backup of the repo info"


def encoded(update: OpsLogEntry) -> Encoded:
    """Return the table of an entry."""
    tag = UPDATE_KINDS.index(type(update.kind)) + 1
    values = {
        "update_type": (tag, _kind_values(update.kind)),
        "updated_at": update.updated_at,
        "backup_path": update.backup_path,
    }
    return builder.encoded(UPDATE, values)


def backup_name(name: str | None) -> str | None:
    """Return the name if it has the form of a backup. Raises ``Damage`` for ``../repo``."""
    if name is not None and not _is_backup(name.encode()):
        raise Damage(NO_BACKUP, 0)
    return name


def _is_backup(name: bytes) -> bool:
    return len(name) == len(BACKUP_FORM) and all(
        letter in form for letter, form in zip(name, BACKUP_FORM, strict=True)
    )


def status_values(status: StatusRecord) -> Values:
    """Return the table of a status."""
    return {
        "availability": int(status.availability),
        "set_at": status.set_at,
        "limited_availability_reason": status.limited_availability_reason,
    }


def status(values: Values) -> StatusRecord:
    """Read a status. ``Offline``, and what may come after it, takes no writes either."""
    online = values["availability"] == RepoAvailability.online
    return StatusRecord(
        availability=RepoAvailability.online if online else RepoAvailability.read_only,
        set_at=values["set_at"],
        limited_availability_reason=values["limited_availability_reason"],
    )


def _kind_values(kind: UpdateKind) -> Values:
    if isinstance(kind, RepoStatusChanged):
        return {"status": status_values(kind.status)}
    if isinstance(kind, FeatureFlagChanged):
        value = kind.new_value
        return {"id": kind.id, "new_value": bool(value), "is_set": value is not None}
    return {field.name: getattr(kind, field.name) for field in fields(kind)}


def kind(tag: int, member: Values) -> UpdateKind:
    """Return what an entry says of a kind that has no ids. Raises ``Damage``."""
    if UPDATE_KINDS[tag - 1] is RepoStatusChanged:
        if member["status"] is None:
            raise Damage("a change of status without a status", 0)
        return RepoStatusChanged(status(member["status"]))
    if UPDATE_KINDS[tag - 1] is FeatureFlagChanged:
        return FeatureFlagChanged(member["id"], member["new_value"] if member["is_set"] else None)
    return cast("UpdateKind", UPDATE_KINDS[tag - 1](**member))
