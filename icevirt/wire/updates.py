"""Entries of the ops log, and the status they may carry.

Spec: "Update", "RepoStatus". The members of the union have the field names of the model's classes,
so both directions follow from the schema.
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import lru_cache
from typing import Any, cast

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import (
    UPDATE_KINDS,
    RepoAvailability,
    RepoStatus,
    RepoStatusChanged,
    Update,
    UpdateKind,
)
from icevirt.wire import build
from icevirt.wire.build import Encoded
from icevirt.wire.read import Damage
from icevirt.wire.schema import UPDATE, Values

_REMEMBERED = 4096  # entries; a repo info has a thousand, unless it is configured otherwise

# "repo.", milliseconds before the year 3000, a random id. Anything else could name other objects.
BACKUP_NAME = re.compile(r"repo\.[0-9]{14}\.[0-9A-HJKMNP-TV-Z]{20}", re.ASCII)


@lru_cache(_REMEMBERED)
def encoded(update: Update) -> Encoded:
    """Return the table of an entry; each commit writes all entries again."""
    tag = UPDATE_KINDS.index(type(update.kind)) + 1
    values = {
        "update_type": (tag, _kind_values(update.kind)),
        "updated_at": update.updated_at,
        "backup_path": update.backup_path,
    }
    return build.encoded(UPDATE, values)


def from_values(values: Values) -> Update:
    """Read an entry. Raises ``Damage``."""
    tag, member = values["update_type"]
    return Update(
        kind=_kind(tag, member),
        updated_at=values["updated_at"],
        backup_path=backup_name(values["backup_path"]),
    )


def backup_name(name: str | None) -> str | None:
    """Return the name if it has the form of a backup. Raises ``Damage`` for ``../repo``."""
    if name is not None and BACKUP_NAME.fullmatch(name) is None:
        raise Damage("not the name of a backup of the repo info", 0)
    return name


def status_values(status: RepoStatus) -> Values:
    """Return the table of a status."""
    return {
        "availability": int(status.availability),
        "set_at": status.set_at,
        "limited_availability_reason": status.limited_availability_reason,
    }


def status(values: Values) -> RepoStatus:
    """Read a status. ``Offline``, and what may come after it, takes no writes either."""
    online = values["availability"] == RepoAvailability.online
    return RepoStatus(
        availability=RepoAvailability.online if online else RepoAvailability.read_only,
        set_at=values["set_at"],
        limited_availability_reason=values["limited_availability_reason"],
    )


def _kind_values(kind: UpdateKind) -> Values:
    if isinstance(kind, RepoStatusChanged):
        return {"status": status_values(kind.status)}
    return {field.name: getattr(kind, field.name) for field in fields(kind)}


def _kind(tag: int, member: Values) -> UpdateKind:
    if UPDATE_KINDS[tag - 1] is RepoStatusChanged:
        if member["status"] is None:
            raise Damage("a change of status without a status", 0)
        return RepoStatusChanged(status(member["status"]))
    told: dict[str, Any] = {
        name: ObjectId12(value) if isinstance(value, bytes) else value
        for name, value in member.items()
    }
    return cast("UpdateKind", UPDATE_KINDS[tag - 1](**told))
