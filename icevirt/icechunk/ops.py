"""icechunk's names of what was done to a repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.icechunk._shims.shown import Shown
from icevirt.repo.history import types
from icevirt.repo.history.types import UpdateType
from icevirt.repo.maintenance import garbage_collection

__all__ = ["GCSummary", "Update", "UpdateType"]


class Update(Shown, types.Update):
    """An entry of the ops log."""

    _home = "icechunk.ops"


class GCSummary(Shown, garbage_collection.GCSummary):
    """What was deleted, or would be deleted, and what the storage refused to delete."""

    attributes_deleted = 0  # the format has no files of attributes

    _home = "icechunk.ops"

    def _show_fields(self) -> Mapping[str, Any]:
        names = (
            "bytes_deleted chunks_deleted manifests_deleted snapshots_deleted attributes_deleted"
            " transaction_logs_deleted objects_failed_to_delete throttled_batches delete_errors"
            " skipped_phases"
        )
        return {name: getattr(self, name) for name in names.split()}

    @property
    def throttled_batches(self) -> int:
        """How many requests were repeated because the storage asked for fewer."""
        return self.throttled

    @property
    def objects_failed_to_delete(self) -> int:
        """How many objects the storage refused to delete."""
        return self.refused

    @property
    def delete_errors(self) -> list[str]:
        """Why."""
        return list(self.reasons)

    @property
    def skipped_phases(self) -> list[str]:
        """Kinds of objects that were left, because what may refer to them was."""
        return list(self.left_out)
