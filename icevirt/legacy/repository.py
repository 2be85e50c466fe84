"""Present an old repository as V2's repo info, and refuse to change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from icevirt.errors import ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.legacy import refs
from icevirt.legacy.assets import OldAssets
from icevirt.legacy.refs import RefPaths
from icevirt.model.repo_info import (
    Lazy,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
)
from icevirt.repo.formats import OldRepository
from icevirt.versioning import lookup
from icevirt.versioning.repo_updates import Edit
from icevirt.wire import config_yaml

if TYPE_CHECKING:
    from icevirt.model.config.containers import VirtualChunkContainer
    from icevirt.versioning.invariants import Problem


@dataclass(frozen=True, slots=True)
class OldRepoState(OldRepository):
    """An old repository as it was read; snapshots are read later."""

    info: RepoInfo
    assets: OldAssets
    paths: RefPaths

    def swap(self, edits: tuple[Edit, ...]) -> NoReturn:
        """Refuse to make edits. Raises ``ReadOnlyError``."""
        del edits
        self.assets.old.refuse()

    def check(self, now: int) -> tuple[int, dict[ObjectId12, int], list[Problem]]:
        """Return the number of snapshots, of references by manifest, and what is wrong."""
        from icevirt.legacy.check import OldCheck  # opening a new path looks for an old repository

        walk = OldCheck(self.assets)
        walk.run(self.info, self.lines, now)
        return walk.snapshots, walk.references, walk.problems

    def containers_in_use(self, urls: Iterable[str]) -> list[VirtualChunkContainer]:
        """Return the narrowest containers that cover locations of virtual chunks."""
        from icevirt.legacy.containers import containers_in_use

        return containers_in_use(self.info.config or {}, urls)[0]

    def authorized_containers(
        self, document: Mapping[str, Any], prefixes: Iterable[str]
    ) -> dict[str, dict[str, Any]]:
        """Return the containers of a configuration, and one for each prefix that a caller names."""
        from icevirt.legacy.containers import authorized_containers

        return authorized_containers(document, prefixes)

    def lines(self) -> dict[str, tuple[ObjectId12, ...]]:
        """Return where each branch was, commit by commit, oldest first."""
        return {
            name: tuple(self.target(path) for path in reversed(found))
            for name, found in self.paths.branches.items()
        }

    def target(self, path: str) -> ObjectId12:
        """Return the snapshot that a reference file names."""
        return _target(self.assets, path)


def state_of(assets: OldAssets, paths: RefPaths, config: bytes | None) -> OldRepoState:
    """Return a repository of which the names and the configuration were read."""

    def target(path: str | None) -> ObjectId12 | None:
        return None if path is None else _target(assets, path)

    def fetch(key: ObjectId12) -> SnapshotSummary | None:
        try:
            found = assets.snapshot(key)
        except ObjectNotFoundError:
            return None
        return SnapshotSummary(
            id=key,
            parent_id=found.parent_id,
            flushed_at=found.flushed_at,
            message=found.message,
            metadata=found.metadata,
        )

    def reachable() -> Iterator[ObjectId12]:
        every = [path for found in paths.branches.values() for path in found]
        tips = map(target, (*every, *tags.values()))
        return (found.id for found in lookup.reachable(tips, fetch))

    tags = {name: path for name, path in paths.tags.items() if name not in paths.deleted}
    info = RepoInfo(
        spec_version=0,
        branches=Lazy(
            lambda name: target(paths.branches.get(name, (None,))[0]), lambda: paths.branches
        ),
        tags=Lazy(lambda name: target(tags.get(name)), lambda: tags),
        deleted_tags=paths.deleted,
        snapshots=Lazy(fetch, reachable),
        status=StatusRecord(availability=RepoAvailability.online, set_at=0),
        latest_updates=(),
        config=config_yaml.loads(config) if config else None,
        old=assets.old,
    )
    return OldRepoState(info, assets, paths)


def _target(assets: OldAssets, path: str) -> ObjectId12:
    return refs.target(assets.storage.get(path), assets.encoding, path)
