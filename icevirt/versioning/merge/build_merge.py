"""Place a finished build into the nodes of a snapshot, if that is still allowed.

Pure: the decision uses the state of the branch, and is repeated whenever the branch moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from icevirt.errors import ConflictError, InvalidInputError, NotAnArrayError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, Boxes, GroupNode, ManifestRef, Node, Snapshot, node_of
from icevirt.versioning import hierarchy
from icevirt.versioning.hierarchy import NewId
from icevirt.versioning.merge.kept_nodes import Claim, settle_base
from icevirt.versioning.repo_updates import line_of


class BuiltArray(NamedTuple):
    """An array whose manifests are written."""

    zarr_json: bytes
    node_id: ObjectId8
    manifests: Sequence[ManifestRef]


type BuiltArrays = Mapping[str, tuple[bytes, ObjectId8, Sequence[ManifestRef]]]


def graft_build(
    base: Snapshot,
    *,
    groups: Mapping[str, bytes],
    arrays: BuiltArrays,
    claim: Claim | None,
    new_id: NewId,
) -> tuple[Node, ...]:
    """Return the nodes of ``base`` with the build's groups and arrays; ``new_id`` is for groups.

    Raises:
        AlreadyExistsError: Something of the build already exists.
        InvalidInputError: Something would lie below an array, or a node id is taken.
    """
    result = hierarchy.by_path(base.nodes)
    if claim is not None and claim.replaces:  # with the attributes that stay of its groups
        own = result.get(claim.group)
        if isinstance(own, ArrayNode):
            raise InvalidInputError(
                "this is an array, not a group", do="Choose another group.", path=claim.group
            )
        found = settle_base(base, claim, groups=groups, arrays=documents(arrays))
        groups = found.groups
        for path in found.lost:
            del result[path]
        if isinstance(own, GroupNode) and claim.group in groups:
            hierarchy.set_metadata(result, own, groups[claim.group])
    taken = {node.id for node in base.nodes}
    for path, zarr_json in sorted(groups.items(), key=lambda item: paths.order(item[0])):
        hierarchy.add_group(result, paths.canonical(path), zarr_json, new_id)
    for path, (zarr_json, node_id, manifests) in arrays.items():
        if node_id in taken:
            raise InvalidInputError(
                "the id of a new array is already in use",
                do="Give every build its own node ids.",
                path=path,
                node_id=str(node_id),
            )
        taken.add(node_id)
        hierarchy.add_array(result, array_of(path, zarr_json, node_id, manifests), new_id)
    if paths.ROOT not in result:
        hierarchy.add_group(result, paths.ROOT, hierarchy.PLAIN_GROUP, new_id)
    return tuple(result.values())


def refuse_touched(
    planned: Snapshot,
    tip: Snapshot,
    *,
    groups: Mapping[str, bytes],
    arrays: BuiltArrays,
    claim: Claim | None,
    message: str,
) -> None:
    """Check that no writer changed the nodes of the build since it was planned on a tip.

    What the build replaces counts too, and a group that must be empty.

    Raises:
        ConflictError: A writer did.
    """
    before, now = hierarchy.by_path(planned.nodes), hierarchy.by_path(tip.nodes)
    ours = {paths.canonical(path) for path in (*groups, *arrays)}
    if claim is not None and claim.replaces:
        for each in (planned, tip):
            ours |= settle_base(each, claim, groups=groups, arrays=documents(arrays)).lost
    elif claim is not None:
        ours |= {path for path in (*before, *now) if claim.covers(path)}
    clash = sorted(path for path in ours if before.get(path) != now.get(path))
    if clash:
        raise ConflictError(
            "the branch moved since the build was planned, and changed the same group",
            do="Run the build again: it plans from the current branch.",
            paths=clash[:10],
            expected_parent=str(planned.id),
            ours=message,
            theirs=line_of(tip),
        )


def documents(arrays: BuiltArrays) -> dict[str, bytes]:
    """Return zarr.json of the arrays, by path."""
    return {path: zarr_json for path, (zarr_json, _, _) in arrays.items()}


def array_of(
    path: str, zarr_json: bytes, node_id: ObjectId8, manifests: Sequence[ManifestRef]
) -> ArrayNode:
    """Return an array node whose manifests lie in its grid and do not overlap.

    Raises:
        InvalidInputError: They do.
    """
    node = node_of(paths.canonical(path), zarr_json, node_id, manifests)
    if not isinstance(node, ArrayNode):
        raise NotAnArrayError("this is the metadata of a group, not of an array", path=path)
    boxes = Boxes.of(manifests, len(node.num_chunks))
    if np.any(boxes.high > np.array(node.num_chunks, np.int64)):
        raise InvalidInputError(
            "a manifest reaches out of the array's chunk grid",
            path=path,
            num_chunks=node.num_chunks,
        )
    if (pair := boxes.first_overlap()) is not None:
        raise InvalidInputError(
            "two manifests of an array overlap, so that chunks of one would not be found",
            path=path,
            extents=[manifests[at].extents for at in pair],
        )
    return node
