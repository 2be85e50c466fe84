"""Read and write V1's mutable objects, and present a V1 repository as V2's repo info.

There is a file per branch and tag, and ``config.yaml``. Each is written only if it is still as it
was read; two cannot be written at once. A deleted tag keeps its file and gets an empty file beside
it that marks the deletion.

A commit is acknowledged only if the branch was still where the session began, and what V1 cannot
express is refused. Two edits at once are two writes here: a process killed in between leaves the
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from icevirt.errors import FormatError, ObjectNotFoundError, RefNameError
from icevirt.ids import ObjectId12
from icevirt.model import updates as kinds
from icevirt.model.config.document import refuse_unconditional
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import (
    Lazy,
    RepoAvailability,
    RepoInfo,
    SnapshotSummary,
    StatusRecord,
    UpdateKind,
)
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.storage.protocol import LostRace, Storage, Version, Written
from icevirt.versioning import lookup
from icevirt.versioning.repo_updates import MAIN, Edit
from icevirt.versioning.v1_migration import refuse_update
from icevirt.wire import config_yaml, ref
from icevirt.wire.ref import Ref

FOLDER = "refs"
CONFIG = "config.yaml"
BRANCH, TAG = "branch", "tag"
_REF, _DELETED = "ref.json", "ref.json.deleted"
_LOCAL_SAFE = "!$&'()+,-./:;=@_ "  # letters and digits too


class V1Files:
    """The objects as they were when each was read first; facts about snapshots are ``known``."""

    def __init__(self, storage: Storage, known: dict[ObjectId12, SnapshotSummary]) -> None:
        self._storage = storage
        self._known = known
        self._escaped = storage.url.startswith("file:")
        self.paths = frozenset(found.path for found in storage.list(FOLDER))
        self._refs: dict[str, tuple[Ref, Version] | None] = {}
        self._config: tuple[bytes | None, Version | None] | None = None
        self.is_unsure = False  # whether a write that was lost may have been done all the same

    # -- reading -----------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Say whether nothing is there."""
        return not self.paths and self._config_file()[0] is None

    @property
    def branches(self) -> list[str]:
        """Names of the branches."""
        return sorted(self._names(BRANCH, _REF))

    @property
    def tags(self) -> list[str]:
        """Names of the tags, less those that were deleted."""
        return sorted(self._names(TAG, _REF) - self.deleted_tags)

    @property
    def deleted_tags(self) -> frozenset[str]:
        """Names of the tags that were deleted."""
        return frozenset(self._names(TAG, _DELETED))

    def branch(self, name: str) -> ObjectId12 | None:
        """Return the tip of a branch; None where there is no such branch."""
        found = self._ref(self._path(BRANCH, name))
        return None if found is None else found[0].snapshot

    def tag(self, name: str) -> ObjectId12 | None:
        """Return the snapshot of a tag; None where there is none or it was deleted."""
        return None if name in self.deleted_tags else self.find_deleted_tag(name)

    def find_deleted_tag(self, name: str) -> ObjectId12 | None:
        """Return the snapshot that a tag names, or named before it was deleted."""
        found = self._ref(self._path(TAG, name))
        return None if found is None else found[0].snapshot

    def is_sealed(self, name: str) -> bool:
        """Say whether an upgrade took over a branch."""
        found = self._ref(self._path(BRANCH, name))
        return found is not None and found[0].sealed

    def snapshot(self, key: ObjectId12) -> SnapshotSummary | None:
        """Return the facts about a snapshot out of its file; None where there is none."""
        if key not in self._known:
            with suppress(ObjectNotFoundError):
                self._known[key] = Assets(self._storage, cache_bytes=0).read_summary(key)
        return self._known.get(key)

    def forget_snapshot(self, key: ObjectId12) -> None:
        """Read the file of a snapshot again when it is asked for."""
        self._known.pop(key, None)

    def reachable(self) -> Iterator[ObjectId12]:
        """Yield every snapshot that branches and tags lead to, each once."""
        tips = [self.branch(name) for name in self.branches]
        tips += [self.tag(name) for name in self.tags]
        return (found.id for found in lookup.reachable(tips, self.snapshot))

    def config(self) -> dict[str, Any]:
        """Return the persisted configuration."""
        raw = self._config_file()[0]
        return {} if raw is None else config_yaml.loads(raw)

    # -- writing, each if it is unchanged -----------------------------------------------------

    def put_branch(self, name: str, target: Ref) -> bool:
        """Write a branch; False when it changed since it was read, or an upgrade took it over."""
        path = self._path(BRANCH, name)
        found = self._ref(path)
        if found is None:
            self._refuse_name(BRANCH, name)
        elif found[0].sealed:
            return False
        return self._put_if(path, ref.encode(target), None if found is None else found[1])

    def delete_branch(self, name: str) -> None:
        """Remove a branch."""
        self._storage.delete(self._path(BRANCH, name))

    def create_tag(self, name: str, key: ObjectId12) -> bool:
        """Write a tag; False when there is or was one."""
        self._refuse_name(TAG, name)
        return self._put_if(self._path(TAG, name), ref.encode(Ref(key)), None)

    def delete_tag(self, name: str) -> bool:
        """Say that a tag was deleted; False when it was already."""
        return self._put_if(self._path(TAG, name, _DELETED), b"", None)

    def put_config(self, document: JSONObject) -> bool:
        """Write the configuration; False when it changed since it was read."""
        raw, version = self._config_file()
        return self._put_if(CONFIG, config_yaml.dumps(document, over=raw), version)

    def forget(self) -> None:
        """Remove all of them, ``main`` first: a client that opens the repository then sees none."""
        first = self._path(BRANCH, MAIN)
        for path in sorted(self.paths, key=lambda path: (path != first, path)):
            self._storage.delete(path)
        self._storage.delete(CONFIG)

    # -- inside ------------------------------------------------------------------------------

    def _names(self, kind: str, file: str) -> set[str]:
        start, end = f"{FOLDER}/{kind}.", f"/{file}"
        names = (
            path.removeprefix(start).removesuffix(end)
            for path in self.paths
            if path.startswith(start) and path.endswith(end)
        )
        return {unquote(name) if self._escaped else name for name in names}

    def _path(self, kind: str, name: str, file: str = _REF) -> str:
        """Return where a file lies; local disks hold names as the official client escapes them."""
        written = quote(name, safe=_LOCAL_SAFE).replace("~", "%7E") if self._escaped else name
        return f"{FOLDER}/{kind}.{written}/{file}"

    def _refuse_name(self, kind: str, name: str) -> None:
        """Refuse what the official client refuses, or lists wrongly and then fails on."""
        if "/" in name or self._path(kind, name) != f"{FOLDER}/{kind}.{name}/{_REF}":
            raise RefNameError(
                "V1 repositories cannot have a branch or tag of this name",
                do="Choose one of letters, digits and -_. for example, or upgrade the repository.",
                **{kind: name},
            )

    def _ref(self, path: str) -> tuple[Ref, Version] | None:
        if path in self.paths and path not in self._refs:
            self._refs[path] = None
            with suppress(ObjectNotFoundError):
                raw, version = self._storage.get_versioned(path)
                self._refs[path] = ref.decode(raw), version
        return self._refs.get(path)

    def _config_file(self) -> tuple[bytes | None, Version | None]:
        if self._config is None:
            self._config = None, None
            with suppress(ObjectNotFoundError):
                self._config = self._storage.get_versioned(CONFIG)
        return self._config

    def _put_if(self, path: str, body: bytes, was: Version | None) -> bool:
        outcome = self._storage.put_if(path, body, was=was)
        self.is_unsure |= isinstance(outcome, LostRace) and outcome.perhaps_first_written
        return isinstance(outcome, Written)


@dataclass(frozen=True, slots=True)
class V1RepoState:
    """A V1 repository as it was read; parts that nothing used yet are read later."""

    info: RepoInfo
    files: V1Files
    storage: Storage

    def swap(self, edits: tuple[Edit, ...]) -> RepoInfo | None:
        """Make edits one after the other; None if another writer was faster.

        Raises:
            FormatError: The V1 format cannot express one, or an upgrade took the repository over
                and its result is gone.
            StorageError: Other writers would overwrite this one.
        """
        info = self.info
        for edit in edits:
            if (done := edit(info)) is None:
                continue
            after, kind = done
            refuse_update(info, kind)
            refuse_unconditional(after.config, self.storage.url)
            if not self._write(after, kind) and not self._is_built_upon(after, kind):
                if self.files.is_sealed(MAIN):
                    self._refuse_half()
                return None
            info = after
        return info

    def _refuse_half(self) -> None:
        """Check that an upgrade that sealed branches left `repo`. Raises ``FormatError``."""
        try:
            self.storage.get(layout.REPO)
        except ObjectNotFoundError as error:
            raise FormatError(
                "the object `repo` of this upgraded repository was deleted",
                do="Restore it from a copy or the newest file below `overwritten/`; or upgrade"
                " the repository again as it was before.",
                repo=self.storage.url,
            ) from error

    def _write(self, after: RepoInfo, kind: UpdateKind) -> bool:  # noqa: PLR0911 - one each
        match kind:
            case kinds.NewCommit(branch=name) | kinds.BranchCreated(name) | kinds.BranchReset(name):
                return self.files.put_branch(name, Ref(after.branches[name]))
            case kinds.BranchDeleted(name):
                self.files.delete_branch(name)
                return True
            case kinds.TagCreated(name):
                return self.files.create_tag(name, after.tags[name])
            case kinds.TagDeleted(name):
                return self.files.delete_tag(name)
            case kinds.ConfigChanged():
                return self.files.put_config(after.config or {})
            case kinds.NewDetachedSnapshot():
                return True  # its file is all there is
            case kinds.ExpirationRan():
                self._expire(after)
                return True
            case _:
                raise AssertionError(kind)  # pragma: no cover - `refuse_update` refuses the others

    def _expire(self, after: RepoInfo) -> None:
        """Delete the branches and tags that go, then give survivors their new parents.

        Each write leaves a repository that reads as before, so that it can be repeated.
        """
        for name in self.info.branches.keys() - after.branches.keys():
            self.files.delete_branch(name)
        for name in self.info.tags.keys() - after.tags.keys():
            self.files.delete_tag(name)
        assets = Assets(self.storage, cache_bytes=0, spec_version=1)
        for key, summary in after.snapshots.items():
            if summary.parent_id != self.info.snapshots[key].parent_id:
                assets.put_snapshot(replace(assets.snapshot(key), parent_id=summary.parent_id))
                self.files.forget_snapshot(key)

    def _is_built_upon(self, after: RepoInfo, kind: UpdateKind) -> bool:
        """Say whether a commit whose answer got lost is in the history of what others committed."""
        if not self.files.is_unsure or not isinstance(kind, kinds.NewCommit):
            return False
        now = V1Files(self.storage, {})
        at, base = now.branch(kind.branch), after.snapshots[kind.new_snap_id].parent_id
        seen = {kind.new_snap_id, base}
        while at is not None and at not in seen:
            seen.add(at)  # parents that form a cycle end there
            found = now.snapshot(at)
            at = None if found is None else found.parent_id
        return at == kind.new_snap_id


def state_of(files: V1Files, storage: Storage) -> V1RepoState | None:
    """Read a V1 repository; None where there is none."""
    if MAIN not in files.branches:
        return None
    config = files.config()
    info = RepoInfo(
        spec_version=1,
        tags=Lazy(files.tag, lambda: files.tags),
        branches=Lazy(files.branch, lambda: files.branches),
        deleted_tags=files.deleted_tags,
        snapshots=Lazy(files.snapshot, files.reachable),
        status=StatusRecord(availability=RepoAvailability.online, set_at=0),
        latest_updates=(),
        config=config or None,
    )
    return V1RepoState(info, files, storage)
