"""Find what a build would discard of other writers: changes to the last build, and nodes.

It compares the branch's tip with what the last build of the group committed, node by node. A node
names the manifests of its chunks, so a written chunk shows without reading any manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from icevirt.ids import ObjectId8
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode, GroupNode, Snapshot
from icevirt.versioning.merge.kept_nodes import (
    Claim,
    KeptNodes,
    attributes_of,
    is_same,
    planned_attributes,
)


class Loss(NamedTuple):
    """Something that others did and a build would undo."""

    path: str
    what: str
    stops: bool = True


def losses(
    base: Snapshot,
    claim: Claim,
    found: KeptNodes,
    *,
    groups: Mapping[str, bytes],
    arrays: Mapping[str, bytes],
    rearranged: Collection[ObjectId8] = (),
) -> list[Loss]:
    """Return what a build would undo.

    Args:
        base: What the branch holds.
        claim: Of the build.
        found: What stays of that.
        groups: zarr.json of its groups, by path.
        arrays: zarr.json of its arrays, by path.
        rearranged: Arrays whose manifests were rewritten with the references that they held.
    """
    planned = {**groups, **arrays}
    paths = {node.id: node.path for node in base.nodes}
    result = [Loss(path, why) for path, why in found.unfit.items()]
    for path, made in claim.made.items():
        now = base.find(path)
        if now is None and path in planned:
            there = paths.get(made.id)
            result.append(Loss(path, "deleted" if there is None else f"moved to {there}"))
        elif isinstance(now, ArrayNode) and isinstance(made, ArrayNode) and now.id == made.id:
            changes = [*_changes(made, now, is_rearranged=now.id in rearranged)]
            result += [Loss(path, ", ".join(changes))] if changes else []
    for path, zarr_json in planned.items():
        now = base.find(path)
        if isinstance(now, GroupNode) and path in groups:
            if path == claim.group or claim.covers(path):
                result += _attributes(now, claim, zarr_json)
        elif now is not None and not claim.is_own(now):
            result.append(Loss(path, "not made by the last build of this group"))
    return sorted(result)


def moved_manifests(base: Snapshot, claim: Claim) -> frozenset[ObjectId8]:
    """Return the arrays of the last build that differ in nothing but their manifests."""
    return frozenset(
        now.id
        for path, made in claim.made.items()
        if isinstance(made, ArrayNode)
        and isinstance(now := base.find(path), ArrayNode)
        and now.id == made.id
        and [*_changes(made, now, is_rearranged=False)] == [_CHUNKS]
    )


_CHUNKS = "chunks"


def _changes(made: ArrayNode, now: ArrayNode, *, is_rearranged: bool) -> Iterator[str]:
    """Yield what of an array is no longer as it was made."""
    if made.user_data != now.user_data:
        before, after = document_of(made), document_of(now)
        for key in sorted({*before, *after} - {"attributes"}):
            if not is_same(_stated(before.get(key)), _stated(after.get(key))):
                shown = f"{list(made.shape)} → {list(now.shape)}" if key == "shape" else ""
                yield f"{key} {shown}".rstrip()
        attributes = (attributes_of(each) for each in (made, now))
        yield from (f"attribute {name}" for name in _differing(*attributes))
    if {*made.manifests} != {*now.manifests} and not is_rearranged:
        yield _CHUNKS


def _stated(value: Any) -> Any:
    """Return a value, None for an empty list or object: some clients leave these out."""
    return None if value in ([], {}) else value


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if name not in before or name not in after or not is_same(before[name], after[name]):
            yield name


def _attributes(node: GroupNode, claim: Claim, planned: bytes) -> Iterator[Loss]:
    """Yield the attributes of a group that others set, and that the build would set otherwise.

    Those that others removed come back and stop nothing: xarray removes all of them when it adds a
    variable of a dataset that has none.
    """
    own, there = claim.attributes(node.path), attributes_of(node)
    after = {**claim.staying(node, planned), **planned_attributes(planned)}
    by_others = {*_differing(own, there)}
    for name in _differing(there, after):
        if name in by_others:
            gone = name not in there
            told = f"attribute {name}{' was removed' if gone else ''}"
            yield Loss(node.path, told, stops=not gone)
