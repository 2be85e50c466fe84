"""Present an old repository as V2's repo info, by its reference files, and refuse to change it.

A branch is a directory with a file for each commit, named so that the newest comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, override
from urllib.parse import unquote

from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.legacy.assets import OldAssets
from icevirt.legacy.encoding import Encoding
from icevirt.model.json import loads
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
from icevirt.wire.flatbuffer.schema import Damage

if TYPE_CHECKING:
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


def parse(listed: Iterable[str], *, escaped: bool) -> RefPaths:
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
    def authorize_containers(
        self, document: Mapping[str, Any], prefixes: Iterable[str]
    ) -> dict[str, dict[str, Any]]:
        from icevirt.legacy.containers import authorize_containers

        return authorize_containers(document, prefixes)

    def lines(self) -> dict[str, tuple[ObjectId12, ...]]:
        """Return where each branch was, commit by commit, oldest first."""
        return {
            name: tuple(self.target(path) for path in reversed(files))
            for name, files in self.paths.branches.items()
        }

    def target(self, path: str) -> ObjectId12:
        """Return the snapshot that a reference file names."""
        return target(self.assets.storage.get(path), self.assets.encoding, path)


def state_of(assets: OldAssets, paths: RefPaths, config: bytes | None) -> OldRepoState:
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
