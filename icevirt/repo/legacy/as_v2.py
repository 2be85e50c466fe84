"""Present an old repository as V2's repo info, and refuse to change it.

It is found by its reference files, and its format generation recognized by a snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import FormatError, NotListableError, ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.model.generation import OldFormat
from icevirt.model.repo_info import (
    Lazy,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
)
from icevirt.repo import layout
from icevirt.repo.legacy.assets import OldAssets
from icevirt.storage.protocol import Storage
from icevirt.versioning.repo_updates import MAIN, Edit
from icevirt.wire.documents import config_yaml
from icevirt.wire.legacy import e0, e1, refs
from icevirt.wire.legacy.encoding import Encoding, unreleased
from icevirt.wire.legacy.recognition import recognized
from icevirt.wire.legacy.refs import RefPaths

_CONFIG = "config.yaml"


@dataclass(frozen=True, slots=True)
class OldRepoState:
    """An old repository as it was read; snapshots are read later."""

    info: RepoInfo
    assets: OldAssets
    paths: RefPaths

    def swap(self, edits: tuple[Edit, ...]) -> NoReturn:
        """Refuse to make edits. Raises ``ReadOnlyError``."""
        del edits
        self.assets.old.refuse()

    def lines(self) -> dict[str, tuple[ObjectId12, ...]]:
        """Return where each branch was, commit by commit, oldest first."""
        return {
            name: tuple(self.target(path) for path in reversed(found))
            for name, found in self.paths.branches.items()
        }

    def target(self, path: str) -> ObjectId12:
        """Return the snapshot that a reference file names."""
        return _target(self.assets, path)


class Finder:
    """Finds an old repository below one root, and warns once.

    What it recognized once it does not read again.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[Any, OldAssets] = {}

    def find(self, listed: Collection[str]) -> OldRepoState | None:
        """Read the repository; None where there is none.

        Args:
            listed: The paths below ``refs/``.

        Raises:
            FormatError: It is damaged, or of a layout that was never released.

        Warns:
            OldFormatWarning: There is one.
        """
        short = not listed
        try:
            found = (
                [each.path for each in self._storage.list(refs.SHORT_FOLDER)] if short else listed
            )
        except NotListableError:  # on a web server
            return None
        escaped = self._storage.url.startswith("file:")
        paths = refs.parsed(found, escaped=escaped)
        if MAIN not in paths.branches:
            return None
        raw = self._optional(_CONFIG)
        key = (short, paths.branches[MAIN][-1], raw is None)
        if key not in self._known:
            encoding = self._encoding(paths, short=short, has_config=raw is not None)
            self._known[key] = self._assets(encoding, paths)
            self._known[key].old.warn()
        return _state(self._known[key], paths, raw)

    def _optional(self, path: str) -> bytes | None:
        try:
            return self._storage.get(path)
        except ObjectNotFoundError:
            return None

    def _assets(self, encoding: Encoding, paths: RefPaths) -> OldAssets:
        old = OldFormat(encoding.generation, self._storage.url)
        root = None
        if encoding.renames_root:
            first = paths.branches[MAIN][-1]
            root = refs.target(self._storage.get(first), encoding, first)
        return OldAssets(self._storage, old=old, root=root)

    def _encoding(self, paths: RefPaths, *, short: bool, has_config: bool) -> Encoding:
        """Recognize the generation; empty snapshots may be of several, so others are looked at."""
        if short:
            if any(each.path.endswith(".parquet") for each in self._storage.list("s")):
                raise unreleased("a state of September 2024, with Parquet files")
            return e0.ENCODING
        for found in sorted(paths.branches.values(), key=lambda found: found[0] != MAIN):
            for path in found:
                key = refs.target(self._storage.get(path), e1.ENCODING, path)
                with layout.naming(layout.snapshot(key)):
                    known = recognized(self._snapshot(key), has_config=has_config)
                if known is not None:
                    return known
        return e1.ENCODING

    def _snapshot(self, key: ObjectId12) -> bytes:
        path = layout.snapshot(key)
        if (raw := self._optional(path)) is not None:
            return raw
        if self._optional(path + ".msgpack") is not None:
            raise unreleased("a state of October 2024, whose files end in .msgpack")
        raise FormatError(
            "a snapshot is missing that a branch refers to",
            do="Restore its file from a copy of the repository.",
        )


def _state(assets: OldAssets, paths: RefPaths, config: bytes | None) -> OldRepoState:
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
        seen: set[ObjectId12] = set()
        for path in (*every, *tags.values()):
            at = target(path)
            while at is not None and at not in seen:
                seen.add(at)
                found = fetch(at)
                if found is not None:
                    yield at
                at = None if found is None else found.parent_id

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
