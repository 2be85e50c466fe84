"""Find an old repository by its reference files, and recognize its generation by a snapshot.

The entry point ``before-v1`` of the group ``icevirt.formats`` names `Finder`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from icevirt.errors import FormatError, NotListableError, ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.legacy.assets import OldAssets
from icevirt.legacy.encoding import Encoding, refuse_unreleased
from icevirt.legacy.generations import E0, E1, recognize
from icevirt.legacy.repository import OldRepoState, RefPaths, parse, state_of, target
from icevirt.model.generation import OldFormat
from icevirt.repo import layout
from icevirt.storage.protocol import Storage
from icevirt.versioning.repo_updates import MAIN

if TYPE_CHECKING:
    from icevirt.archive.reports.build import Progress
    from icevirt.archive.reports.relocation import Chunks, UpgradeCopyReport


class Finder:
    """Finds an old repository below one root, and warns once.

    What it recognized once it does not read again.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[Any, OldAssets] = {}

    def find(self, listed: Collection[str]) -> OldRepoState | None:
        """Read the repository, and warn of it; see `OldFormats.find`."""
        short = not listed
        try:
            found = [each.path for each in self._storage.list("r")] if short else listed
        except NotListableError:  # on a web server
            return None
        paths = parse(found, escaped=self._storage.url.startswith("file:"))
        if MAIN not in paths.branches:
            return None
        config = self._optional("config.yaml")
        first = paths.branches[MAIN][-1]
        key = (short, first, config is None)
        if key not in self._known:
            encoding = self._recognize(paths, short=short, has_config=config is not None)
            old = OldFormat(encoding.generation, self._storage.url)
            root = None
            if encoding.renames_root:
                root = target(self._storage.get(first), encoding, first)
            self._known[key] = OldAssets(self._storage, old=old, root=root)
            old.warn()
        return state_of(self._known[key], paths, config)

    def upgrade(
        self,
        target: Storage,
        *,
        chunks: Chunks,
        dry_run: bool,
        progress: Callable[[Progress], None] | None,
    ) -> UpgradeCopyReport:
        """Copy the repository, which may be V1 too, into a new one; see `icevirt.upgrade`."""
        from icevirt.legacy.upgrade import upgrade  # what finding does not need

        source = self._storage
        return upgrade(source, target, chunks=chunks, dry_run=dry_run, progress=progress)

    def _optional(self, path: str) -> bytes | None:
        try:
            return self._storage.get(path)
        except ObjectNotFoundError:
            return None

    def _recognize(self, paths: RefPaths, *, short: bool, has_config: bool) -> Encoding:
        """Recognize the generation; empty snapshots may be of several, so others are looked at."""
        if short:
            if any(each.path.endswith(".parquet") for each in self._storage.list("s")):
                raise refuse_unreleased("a state of September 2024, with Parquet files")
            return E0
        for files in sorted(paths.branches.values(), key=lambda files: files[0] != MAIN):
            for path in files:
                key = target(self._storage.get(path), E1, path)
                with layout.naming(layout.snapshot(key)):
                    known = recognize(self._snapshot(key), has_config=has_config)
                if known is not None:
                    return known
        return E1

    def _snapshot(self, key: ObjectId12) -> bytes:
        path = layout.snapshot(key)
        if (raw := self._optional(path)) is not None:
            return raw
        if self._optional(path + ".msgpack") is not None:
            raise refuse_unreleased("a state of October 2024, whose files end in .msgpack")
        raise FormatError(
            "a snapshot is missing that a branch refers to",
            do="Restore its file from a copy of the repository.",
        )
