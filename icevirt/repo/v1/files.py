"""Read and write V1's mutable objects: a file per branch and tag, and ``config.yaml``.

Each is written only if it is still as it was read; two cannot be written at once. A deleted tag
keeps its file and gets an empty file beside it that marks the deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from icevirt.errors import InvalidInputError, ObjectNotFoundError
from icevirt.ids import ObjectId12
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import SnapshotSummary
from icevirt.repo.assets import Assets
from icevirt.storage.protocol import LostRace, Storage, Version, Written
from icevirt.versioning import lookup
from icevirt.versioning.repo_updates import MAIN
from icevirt.wire import config_yaml, ref
from icevirt.wire.ref import Ref

FOLDER = "refs"
CONFIG = "config.yaml"
BRANCH, TAG = "branch", "tag"
_REF, _DELETED = "ref.json", "ref.json.deleted"
_LOCAL_SAFE = "!$&'()+,-./:;=@_ "  # letters and digits too


class V1Files:
    """The objects as they were when each was read first.

    Args:
        storage: The repository's root.
        known: Facts about snapshots that were read before; grows.
    """

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
        return None if name in self.deleted_tags else self.deleted_tag(name)

    def deleted_tag(self, name: str) -> ObjectId12 | None:
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
            try:
                self._known[key] = Assets(self._storage, cache_bytes=0).read_summary(key)
            except ObjectNotFoundError:
                return None
        return self._known[key]

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
        if found is not None and found[0].sealed:
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
            raise InvalidInputError(
                "V1 repositories cannot have a branch or tag of this name",
                do="Choose one of letters, digits and -_. for example, or upgrade the repository.",
                **{kind: name},
            )

    def _ref(self, path: str) -> tuple[Ref, Version] | None:
        if path in self.paths and path not in self._refs:
            try:
                raw, version = self._storage.get_versioned(path)
            except ObjectNotFoundError:
                self._refs[path] = None
            else:
                self._refs[path] = ref.decode(raw), version
        return self._refs.get(path)

    def _config_file(self) -> tuple[bytes | None, Version | None]:
        if self._config is None:
            try:
                self._config = self._storage.get_versioned(CONFIG)
            except ObjectNotFoundError:
                self._config = (None, None)
        return self._config

    def _put_if(self, path: str, body: bytes, was: Version | None) -> bool:
        outcome = self._storage.put_if(path, body, was=was)
        self.is_unsure |= isinstance(outcome, LostRace) and outcome.perhaps_first_written
        return isinstance(outcome, Written)
