"""Show the history of a repository: its snapshots and the operations on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from itertools import batched
from typing import Any

import pyarrow as pa

from icevirt.escaping import escape_json
from icevirt.repo.history.types import Update
from icevirt.repo.repository import Repository
from icevirt.tasks.tables.schemas import batch, schema
from icevirt.tasks.tables.shares import TableShare

_ROWS = 4096


def snapshot_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each snapshot from a version back to the first, newest first."""
    repo = Repository.open(share.assets.storage)
    rows = (
        {
            "snapshot_id": info.id,
            "parent_id": info.parent_id,
            "written_at": info.written_at,
            "message": info.message,
            "metadata": escape_json(dict(info.metadata)),
        }
        for info in repo.ancestry(snapshot_id=str(share.version))
    )
    return _batches("snapshots", rows)


def operation_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each operation on the repository, newest first."""
    return _batches("ops_log", map(_operation, Repository.open(share.assets.storage).ops_log()))


def _operation(update: Update) -> dict[str, Any]:
    return {
        "updated_at": update.updated_at,
        "kind": type(update.kind).__name__,
        "details": escape_json(asdict(update.kind), default=_text),
        "backup_path": update.backup_path,
    }


def _text(value: Any) -> str:
    """Return what JSON has no type for: times and words."""
    return value.name if isinstance(value, Enum) else str(value)


def _batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    names = schema(table).names
    for some in batched(rows, _ROWS):
        yield batch(table, {name: [row[name] for row in some] for name in names})
