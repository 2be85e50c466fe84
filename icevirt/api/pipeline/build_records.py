"""Find the build that made what a branch holds, where the snapshot of that build is gone.

The metadata of a snapshot says what a build made. An amended commit loses it, and expiry takes the
snapshot away. So a build also writes what it made into an object that is named by its id. The ids
of its arrays are made of that id: so the nodes of a snapshot say which record belongs to them,
whatever happened to the history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from icevirt.api.pipeline.provenance import BUILD_ID, METADATA, provenance_of
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.ids import ObjectId8
from icevirt.model.json import loads
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestRef, Node, Snapshot
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Storage
from icevirt.versioning.merge.build_merge import BuiltArray

FOLDER = f"{WORK[0]}/records"
_LARGE = 1 << 28  # bytes of a record; a longer one is none


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBuild(SnapshotSummary):
    """A build whose snapshot is gone: the snapshot that holds what it made, and its record."""

    groups: Mapping[str, str]  # zarr.json as it was committed, by path
    arrays: Mapping[str, tuple[str, str]]  # zarr.json and a digest of manifests, by path

    def made(self, nodes: Iterable[Node]) -> dict[str, Node]:
        """Return the nodes that the build made, as it committed them.

        What others changed since is no longer known, and stands for something else.
        """
        found: dict[str, Node] = {}
        build_id = str(self.metadata[METADATA]["build_id"])  # type: ignore[index,call-overload]
        for node in nodes:
            if isinstance(node, GroupNode) and node.path in self.groups:
                found[node.path] = replace(node, user_data=self.groups[node.path].encode())
            elif isinstance(node, ArrayNode) and node.path in self.arrays:
                document, manifests = self.arrays[node.path]
                if node.id != _id_of(build_id, node.path):
                    continue
                is_same = manifests == _digest(node.manifests)
                found[node.path] = replace(
                    node,
                    user_data=document.encode(),
                    manifests=node.manifests if is_same else (),
                )
        return found


def keep_record(
    storage: Storage,
    record: Mapping[str, Any],
    *,
    groups: Mapping[str, bytes],
    arrays: Mapping[str, BuiltArray],
) -> None:
    """Write what a build made, before the commit that makes it visible."""
    text = json.dumps(_held(record, groups, arrays), sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    storage.put(f"{FOLDER}/{record['build_id']}.{name}.json", text.encode())


def _held(
    record: Mapping[str, Any], groups: Mapping[str, bytes], arrays: Mapping[str, BuiltArray]
) -> dict[str, Any]:
    return {
        "record": record,
        "groups": {path: document.decode() for path, document in groups.items()},
        "arrays": {
            path: [each.zarr_json.decode(), _digest(each.manifests)]
            for path, each in arrays.items()
        },
    }


def recorded_build(
    storage: Storage, tip: SnapshotSummary, snapshot: Snapshot, group: str
) -> RecordedBuild | None:
    """Return the build of a group that made arrays of a snapshot; None where no record says so.

    Appends record the same build with longer arrays: the record that fits most of them counts.

    Raises:
        FormatError: What a record says cannot be used.
    """
    there = [node for node in snapshot.below(group) if isinstance(node, ArrayNode)]
    paths: dict[str, list[str]] = {}
    for path, build_id in _recorded(storage):
        paths.setdefault(build_id, []).append(path)
    counts = {
        build_id: sum(node.id == _id_of(build_id, node.path) for node in there)
        for build_id in paths
    }
    for build_id in sorted(filter(counts.get, paths), key=lambda each: (counts[each], each))[::-1]:
        found = [made for path in paths[build_id] if (made := _read(storage, path, tip))]
        own = [made for made in found if provenance_of(made, group) is not None]
        if own:
            return max(own, key=lambda made: likeness(made.arrays, snapshot, group))
    return None


type Said = Mapping[str, tuple[str, str]]
"""zarr.json of arrays and a digest of their manifests, by path."""


def likeness(said: Said, now: Snapshot, group: str) -> tuple[int, int]:
    """Say how much of what is said of arrays is as a snapshot holds it: shapes, manifests."""
    shapes = manifests = 0
    for node in now.below(group):
        if isinstance(node, ArrayNode) and (known := said.get(node.path)) is not None:
            shapes += loads(known[0]).get("shape") == list(node.shape)
            manifests += known[1] == _digest(node.manifests)
    return shapes, manifests


def said_by(build: Snapshot, group: str) -> Said:
    """Return what a record would say of the arrays of a snapshot."""
    return {
        node.path: (node.user_data.decode(), _digest(node.manifests))
        for node in build.below(group)
        if isinstance(node, ArrayNode)
    }


def changed_arrays(
    build: Snapshot, now: Snapshot, group: str
) -> tuple[frozenset[ObjectId8], frozenset[ObjectId8]]:
    """Return the arrays with other shapes, and those with other manifests, than a build made."""
    before = {node.id: node for node in build.below(group) if isinstance(node, ArrayNode)}
    there = [node for node in now.below(group) if isinstance(node, ArrayNode) and node.id in before]
    return (
        frozenset(node.id for node in there if before[node.id].shape != node.shape),
        frozenset(node.id for node in there if {*before[node.id].manifests} != {*node.manifests}),
    )


def made_any_of(build: SnapshotSummary, snapshot: Snapshot, group: str) -> bool:
    """Say whether a snapshot still holds an array that a build made, at its place."""
    build_id = str((provenance_of(build) or {}).get("build_id"))
    return any(node.id == _id_of(build_id, node.path) for node in snapshot.below(group))


def _recorded(storage: Storage) -> Iterator[tuple[str, str]]:
    """Yield the paths of records, and the ids of their builds."""
    for info in storage.list(FOLDER):
        build_id = build_of(info.path)
        if build_id:
            yield info.path, build_id


def build_of(path: str) -> str:
    """Return the id of the build that a record is about; "" where the object is no record."""
    name = path.rpartition("/")[2]
    build_id = name.partition(".")[0]
    return build_id if name.endswith(".json") and BUILD_ID.fullmatch(build_id) else ""


def records_needed(
    storage: Storage, paths: Iterable[str], snapshots: Iterable[Snapshot]
) -> set[str]:
    """Return the records that say what snapshots hold.

    Where none says just that, each record of a build of its arrays is needed.

    Args:
        storage: The root of the repository.
        paths: Of records.
        snapshots: That stay.
    """
    by_build: dict[str, dict[str, frozenset[tuple[str, str]]]] = {}
    needed: set[str] = set()
    for path in paths:
        try:
            arrays = loads(storage.get(path))["arrays"]
            said = frozenset((name, digest) for name, (_, digest) in arrays.items())
        except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            continue
        by_build.setdefault(build_of(path), {})[path] = said
    for snapshot in snapshots:
        arrays = [*snapshot.arrays()]
        for build_id, records in by_build.items():
            own = [node for node in arrays if node.id == _id_of(build_id, node.path)]
            now = frozenset((node.path, _digest(node.manifests)) for node in own)
            exact = {path for path, said in records.items() if said == now}
            needed |= exact or ({*records} if own else set())
    return needed


def _id_of(build_id: str, path: str) -> ObjectId8:
    return ObjectId8.of_content(build_id.encode(), path.encode())


def _digest(manifests: Iterable[ManifestRef]) -> str:
    """Return a digest of the manifests of an array, in whatever order."""
    lines = sorted(f"{each.object_id} {list(map(list, each.extents))}" for each in manifests)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=10).hexdigest()


def _read(storage: Storage, path: str, tip: SnapshotSummary) -> RecordedBuild | None:
    try:
        raw = storage.get(path)
    except ObjectNotFoundError:
        return None
    try:
        if len(raw) > _LARGE:
            raise ValueError("it is too long")  # noqa: TRY301  # as all that is wrong with it
        held = loads(raw)
        record, groups = held["record"], held["groups"]
        arrays = {path: (document, digest) for path, (document, digest) in held["arrays"].items()}
        texts = [*groups.values(), *(text for pair in arrays.values() for text in pair)]
        is_sound = record["build_id"] == build_of(path) and all(
            isinstance(each, str) for each in texts
        )
        if not is_sound:
            raise ValueError("it holds something else")  # noqa: TRY301
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            "the record of a build is damaged",
            do='Build again from all files: icevirt.build(files, repo, mode="w") (icevirt build'
            " SOURCES... REPO --mode w).",
            path=path,
            cause=str(error),
        ) from error
    known = {each.name: getattr(tip, each.name) for each in fields(SnapshotSummary)}
    known["metadata"] = {METADATA: record}
    return RecordedBuild(**known, groups=groups, arrays=arrays)
