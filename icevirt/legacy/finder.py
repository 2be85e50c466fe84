"""Find an old repository by its reference files, recognize its generation, and present it as V2's.

A branch is a directory with a file for each commit, named so that the newest comes first. The entry
point ``before-v1`` of the group ``icevirt.formats`` names `Finder`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, override
from urllib.parse import unquote

from icevirt.errors import FormatError, NotListableError, ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.legacy.assets import OldAssets
from icevirt.legacy.encoding import Encoding, unreleased
from icevirt.legacy.generations import E0, E1, recognized
from icevirt.model.generation import OldFormat
from icevirt.model.json import loads
from icevirt.model.repo_info import (
    Lazy,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
)
from icevirt.repo import layout
from icevirt.repo.formats import OldRepository
from icevirt.storage.protocol import Storage
from icevirt.versioning import lookup
from icevirt.versioning.repo_updates import MAIN, Edit
from icevirt.wire import config_yaml
from icevirt.wire.flatbuffer.reader import Damage

if TYPE_CHECKING:
    from icevirt.archive.reports.build import Progress
    from icevirt.archive.reports.upgrade import Chunks, UpgradeCopyReport
    from icevirt.model.config.containers import VirtualChunkContainer
    from icevirt.versioning.invariants import Problem

_NAMED = re.compile(r"(?:refs|r)/(?P<kind>branch|tag)[.:](?P<name>.+)/(?P<file>[^/]+)")
_BARE = re.compile(r"r/(?P<name>[^/]+)/(?P<file>[^/]+)")  # as the first specification has it
_BARE_TAG = re.compile(r"r/(?P<name>[^/]+)\.json")
_SEQUENCE = re.compile(r"([0-9A-HJKMNP-TV-Z]{8}|[0-9A-HJKMNP-TV-Z]{13})\.json")
_TAG, _DELETED = "ref.json", "ref.json.deleted"


@dataclass(frozen=True, slots=True)
class RefPaths:
    """Where the reference files of a repository lie, by name."""

    branches: dict[str, tuple[str, ...]]  # the newest first
    tags: dict[str, str]  # deleted ones too
    deleted: frozenset[str]


def parsed(listed: Iterable[str], *, escaped: bool) -> RefPaths:
    """Sort the paths below ``refs/`` or ``r/``; those that are no reference files are left out.

    On a local disk names are percent-encoded (``escaped``).

    Raises:
        FormatError: A name is given in two ways.
    """
    branches: dict[str, list[str]] = {}
    tags: dict[str, str] = {}
    deleted = set()
    for path in sorted(listed):
        kind, name, file = _parts(path)
        name = unquote(name) if escaped else name
        if kind == "branch" and _SEQUENCE.fullmatch(file):
            branches.setdefault(name, []).append(path)
        elif kind == "tag" and file == _TAG:
            if name in tags:
                raise _ambiguous("tag", name, (tags[name], path))
            tags[name] = path
        elif kind == "tag" and file == _DELETED:
            deleted.add(name)
    for name, files in branches.items():
        if len({(path.rpartition("/")[0], len(path)) for path in files}) > 1:
            raise _ambiguous("branch", name, files)
    return RefPaths(
        {name: tuple(files) for name, files in branches.items()}, tags, frozenset(deleted)
    )


def _parts(path: str) -> tuple[str, str, str]:
    """Return the kind of a reference, its name, and the name of its file."""
    if found := _NAMED.fullmatch(path):
        return found["kind"], found["name"], found["file"]
    if found := _BARE_TAG.fullmatch(path):
        return "tag", found["name"], _TAG
    if found := _BARE.fullmatch(path):
        return "branch", found["name"], found["file"]
    return "", "", ""


def _ambiguous(kind: str, name: str, found: Iterable[str]) -> FormatError:
    return FormatError(
        f"a {kind} is named in two ways, which two versions of the format would read differently",
        do="Remove the files that are not meant.",
        **{kind: name},
        found=list(found)[:4],
    )


def target(raw: bytes, encoding: Encoding, path: str) -> ObjectId12:
    """Return the snapshot that a reference file names. Raises ``FormatError``."""
    try:
        return ObjectId12(encoding.ref_id(loads(raw)["snapshot"]))
    except (Damage, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "not a reference file",
            do="Restore it from a copy of the repository.",
            path=path,
            found=raw[:80],
        ) from error


@dataclass(frozen=True, slots=True)
class OldRepoState(OldRepository):
    """An old repository as it was read; snapshots are read later."""

    info: RepoInfo
    assets: OldAssets
    paths: RefPaths

    @override
    def swap(self, edits: tuple[Edit, ...]) -> NoReturn:
        del edits
        self.assets.old.refuse()

    @override
    def check(self, now: int) -> tuple[int, dict[ObjectId12, int], list[Problem]]:
        from icevirt.legacy.check import OldCheck  # opening a new path looks for an old repository

        walk = OldCheck(self.assets)
        walk.run(self.info, self.lines, now)
        return walk.snapshots, walk.references, walk.problems

    @override
    def containers_in_use(self, urls: Iterable[str]) -> list[VirtualChunkContainer]:
        from icevirt.legacy.containers import containers_in_use

        return containers_in_use(self.info.config or {}, urls)[0]

    @override
    def authorized_containers(
        self, document: Mapping[str, Any], prefixes: Iterable[str]
    ) -> dict[str, dict[str, Any]]:
        from icevirt.legacy.containers import authorized_containers

        return authorized_containers(document, prefixes)

    def lines(self) -> dict[str, tuple[ObjectId12, ...]]:
        """Return where each branch was, commit by commit, oldest first."""
        return {
            name: tuple(self.target(path) for path in reversed(files))
            for name, files in self.paths.branches.items()
        }

    def target(self, path: str) -> ObjectId12:
        """Return the snapshot that a reference file names."""
        return target(self.assets.storage.get(path), self.assets.encoding, path)


def _state_of(assets: OldAssets, paths: RefPaths, config: bytes | None) -> OldRepoState:
    """Return a repository of which the names and the configuration were read."""

    def target_of(path: str | None) -> ObjectId12 | None:
        return None if path is None else state.target(path)

    def fetch(key: ObjectId12) -> SnapshotSummary | None:
        try:
            found = assets.snapshot(key)
        except ObjectNotFoundError:
            return None
        return lookup.summary_of(found, found.parent_id)

    def reachable() -> Iterator[ObjectId12]:
        every = [path for files in paths.branches.values() for path in files]
        tips = map(state.target, (*every, *tags.values()))
        return (found.id for found in lookup.reachable(tips, fetch))

    tags = {name: path for name, path in paths.tags.items() if name not in paths.deleted}
    info = RepoInfo(
        spec_version=0,
        branches=Lazy(
            lambda name: target_of(paths.branches.get(name, (None,))[0]), lambda: paths.branches
        ),
        tags=Lazy(lambda name: target_of(tags.get(name)), lambda: tags),
        deleted_tags=paths.deleted,
        snapshots=Lazy(fetch, reachable),
        status=StatusRecord(availability=RepoAvailability.online, set_at=0),
        latest_updates=(),
        config=config_yaml.loads(config) if config else None,
        old=assets.old,
    )
    state = OldRepoState(info, assets, paths)
    return state


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
        paths = parsed(found, escaped=self._storage.url.startswith("file:"))
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
        return _state_of(self._known[key], paths, config)

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
                raise unreleased("a state of September 2024, with Parquet files")
            return E0
        for files in sorted(paths.branches.values(), key=lambda files: files[0] != MAIN):
            for path in files:
                key = target(self._storage.get(path), E1, path)
                with layout.naming(layout.snapshot(key)):
                    known = recognized(self._snapshot(key), has_config=has_config)
                if known is not None:
                    return known
        return E1

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
