"""Facts about a repository, shown as icechunk does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.icechunk._shims.shown import Shown
from icevirt.repo.history import types
from icevirt.repo.maintenance import chunk_sizes


class RepoStatus(Shown, types.RepoStatus):
    """Whether the repository is writable, since when, and why."""

    _home = "icechunk.repository"

    def _shown(self) -> Mapping[str, Any]:
        names = {"online": "Online", "read_only": "ReadOnly"}
        return {**super()._shown(), "availability": names.get(self.availability.name, "Offline")}


class ChunkStorageStats(Shown, chunk_sizes.ChunkStorageStats):
    """Bytes of chunks, by storage kind."""

    _home = "icechunk.stats"
