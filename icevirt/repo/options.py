"""Define how one program uses a repository: chosen when opening it, and not persisted."""

from __future__ import annotations

from dataclasses import dataclass

from icevirt.objects.staleness import OnStale, Staleness


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryOptions:
    """What `Repository.open` was asked for; sessions take it over."""

    on_stale: OnStale = "raise"
    content_addressed_chunks: bool = False

    def __post_init__(self) -> None:
        Staleness(self.on_stale)  # refuses what is none


DEFAULT = RepositoryOptions()
