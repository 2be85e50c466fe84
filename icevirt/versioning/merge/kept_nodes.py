"""Decide which nodes of a group stay when a build replaces it, and what others lose. Pure.

A build replaces what the last build of its group made. Everything else stays, unless the build
needs its path, or its dimensions no longer match. Losses show by comparing the branch's tip with
what the last build committed: a node names the manifests of its chunks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.attributes import EXTENSION, read_dtypes
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot, document_of, grid_facts

_CHUNKS = "chunks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The group that a build is for, and what of it is its own."""

    group: str
    replaces: bool  # False: the group is to be empty
    made: Mapping[str, Node] = field(default_factory=dict)  # by the last build; as it committed
    kept: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Attributes of groups in ``made`` that the last build found there and kept."""
    edited: Mapping[str, str] = field(default_factory=dict)
    """What others had changed or deleted of arrays when an append made these longer, by path."""
    relabelled: frozenset[str] = frozenset()
    """Planned coordinates whose values are not those of the branch's tip."""

    def covers(self, path: str) -> bool:
        """Say whether a path lies below the group."""
        return path != self.group and path.startswith(self.group.rstrip("/") + "/")

    def is_own(self, node: Node) -> bool:
        """Say whether the last build made a node, and it is where that put it."""
        made = self.made.get(node.path)
        return made is not None and made.id == node.id

    def attributes(self, path: str) -> dict[str, Any]:
        """Return the attributes that the last build gave to a group, as it committed them."""
        made = self.made.get(path)
        if made is None:
            return {}
        kept = self.kept.get(path, frozenset())
        return {k: v for k, v in attributes_of(made).items() if k not in kept}

    def staying(self, node: GroupNode, planned: bytes) -> dict[str, Any]:
        """Return the attributes of a group that others gave it and the build does not give it."""
        own, new = self.attributes(node.path), read_planned_attributes(planned)
        there = attributes_of(node)
        return {k: v for k, v in there.items() if k not in own and k not in new}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNodes:
    """The nodes below a build's group that stay or go."""

    kept: frozenset[str]
    replaced: frozenset[str]  # the build makes these paths anew
    deleted: frozenset[str]
    unfit: Mapping[str, str]  # nodes of others among the deleted, and why they cannot stay
    groups: Mapping[str, bytes]  # zarr.json of the build's groups, with attributes that stay

    @property
    def lost(self) -> frozenset[str]:
        """Nodes that are no longer there, or no longer the same."""
        return self.replaced | self.deleted


def settle_base(
    base: Snapshot, claim: Claim, *, groups: Mapping[str, bytes], arrays: Mapping[str, bytes]
) -> KeptNodes:
    """Decide what of a base stays, given zarr.json of the build's groups and arrays by path."""
    there = {node.path: node for node in base.nodes if claim.covers(node.path)}
    replaced = frozenset(there.keys() & (groups.keys() | arrays.keys()))
    sizes = _Sizes.of(claim, there, arrays)
    unfit: dict[str, str] = {}
    kept: set[str] = set()
    for path, node in there.items():  # groups before what is below them
        if path in replaced or (claim.is_own(node) and isinstance(node, ArrayNode)):
            continue
        above = next((each for each in paths.ancestors(path) if each in arrays), None)
        why = sizes.unfit(node) if above is None else f"{above} is an array in the build"
        if why is not None:
            unfit[path] = why
        elif not claim.is_own(node) or not is_same(attributes_of(node), claim.attributes(path)):
            kept.add(path)
    groups_above = {each for path in kept for each in paths.ancestors(path)}
    kept |= {path for path in groups_above & there.keys() - replaced if path not in unfit}
    return KeptNodes(
        kept=frozenset(kept),
        replaced=replaced,
        deleted=frozenset(there.keys() - kept - replaced),
        unfit=unfit,
        groups={path: _document(base, claim, path, planned) for path, planned in groups.items()},
    )


def coordinates_of(
    base: Snapshot, claim: Claim, found: KeptNodes, arrays: Mapping[str, bytes]
) -> frozenset[str]:
    """Return the planned coordinates by which arrays that stay are labelled."""
    there = {node.path: node for node in base.nodes if claim.covers(node.path)}
    sizes = _Sizes.of(claim, there, arrays)
    return frozenset(
        paths.join(group, name)
        for path in found.kept
        for name, _, group in sizes.list_shared(there[path])
        if paths.join(group, name) in arrays and paths.join(group, name) in there
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Lengths of dimensions, by group and name."""

    claim: Claim
    there: Mapping[str, Node]
    now: Mapping[tuple[str, str], int]  # of the build's arrays
    before: Mapping[tuple[str, str], int]  # of those that the last build made, as they are there

    @classmethod
    def of(cls, claim: Claim, there: Mapping[str, Node], arrays: Mapping[str, bytes]) -> _Sizes:
        now: dict[tuple[str, str], int] = {}
        before: dict[tuple[str, str], int] = {}

        def add(
            to: dict[tuple[str, str], int],
            path: str,
            names: tuple[str | None, ...] | None,
            shape: tuple[int, ...],
        ) -> None:
            for name, length in zip(names or (), shape, strict=False):
                if name is not None:
                    to[paths.parent(path), name] = length

        for path, zarr_json in arrays.items():
            facts = grid_facts(json.loads(zarr_json))
            add(now, path, facts.dimension_names, facts.shape)
        for path, node in there.items():
            if isinstance(node, ArrayNode) and (claim.is_own(node) or path in arrays):
                add(before, path, node.dimension_names, node.shape)
        return cls(claim, there, now, before)

    def unfit(self, node: Node) -> str | None:
        """Say why an array does not fit the build's dimensions, None where it does."""
        for name, length, group in self.list_shared(node):
            now = self.now[group, name]
            if length != now and self.before.get((group, name), length) == length:
                return f"its {name} has {length:,} steps, in the build {now:,}"
            if paths.join(group, name) in self.claim.relabelled:
                return f"{name} has other labels in the build"
        return None

    def list_shared(self, node: Node) -> Iterator[tuple[str, int, str]]:
        """Yield the dimensions that an array has in common with the build: name, length, group.

        As in netCDF, a dimension is that of the array's own group or of the nearest group above;
        one that has a coordinate of its own below the build's is another one.
        """
        if not isinstance(node, ArrayNode) or node.dimension_names is None:
            return
        for name, length in zip(node.dimension_names, node.shape, strict=True):
            if name is None:
                continue
            for group in reversed(paths.ancestors(node.path)):
                if (group, name) in self.now:
                    yield name, length, group
                    break
                own = self.there.get(f"{group.rstrip('/')}/{name}")
                if own is not None and not self.claim.is_own(own):
                    break


def attributes_of(node: Node) -> dict[str, Any]:
    """Return the attributes of a node. Raises ``FormatError``."""
    return document_of(node).get("attributes") or {}


def read_planned_attributes(zarr_json: bytes) -> dict[str, Any]:
    """Return the attributes of a zarr.json of the build's own."""
    return json.loads(zarr_json).get("attributes") or {}


def is_same(one: Any, other: Any) -> bool:
    """Say whether two JSON values are equal, where 1, 1.0 and true are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _document(base: Snapshot, claim: Claim, path: str, planned: bytes) -> bytes:
    """Return zarr.json of a group of the build, with the attributes that stay."""
    node = base.find(path)
    mine = claim.covers(path) or path == claim.group
    if not (isinstance(node, GroupNode) and mine and claim.replaces):
        return planned
    if not (kept := claim.staying(node, planned)):
        return planned
    document, there = json.loads(planned), document_of(node)
    document["attributes"] = {**(document.get("attributes") or {}), **kept}
    dtypes = read_dtypes(there)
    if recorded := {name: dtypes[name] for name in kept if name in dtypes}:
        extension = document.setdefault(EXTENSION, {"must_understand": False})
        extension["attribute_dtypes"] = {**read_dtypes(document), **recorded}
    return json.dumps(document, ensure_ascii=False).encode()  # other clients write NaN


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
    """Return what a build would undo; of arrays in ``rearranged`` only the manifests changed."""
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
            changes = [*filter(None, [claim.edited.get(path)]), *changes]
            result += [Loss(path, ", ".join(changes))] if changes else []
    for path in claim.edited.keys() & planned.keys() - claim.made.keys():
        if base.find(path) is None:
            result.append(Loss(path, claim.edited[path]))
    for path, zarr_json in planned.items():
        now = base.find(path)
        if isinstance(now, GroupNode) and path in groups:
            if path == claim.group or claim.covers(path):
                result += _attributes(now, claim, zarr_json)
        elif now is not None and not claim.is_own(now):
            result.append(Loss(path, "not made by the last build of this group"))
    return sorted(result)


def find_moved_manifests(base: Snapshot, claim: Claim) -> frozenset[ObjectId8]:
    """Return the arrays of the last build that differ in nothing but their manifests."""
    return frozenset(
        now.id
        for path, made in claim.made.items()
        if isinstance(made, ArrayNode)
        and isinstance(now := base.find(path), ArrayNode)
        and now.id == made.id
        and [*_changes(made, now, is_rearranged=False)] == [_CHUNKS]
    )


def _changes(made: ArrayNode, now: ArrayNode, *, is_rearranged: bool) -> Iterator[str]:
    """Yield what of an array is no longer as it was made."""
    if made.user_data != now.user_data:
        before, after = document_of(made), document_of(now)
        for key in sorted({*before, *after} - {"attributes"}):
            # some clients leave empty lists and objects out
            was, is_now = (
                None if (value := each.get(key)) in ([], {}) else value for each in (before, after)
            )
            if not is_same(was, is_now):
                shown = f"{list(made.shape)} → {list(now.shape)}" if key == "shape" else ""
                yield f"{key} {shown}".rstrip()
        attributes = (attributes_of(each) for each in (made, now))
        yield from (f"attribute {name}" for name in _differing(*attributes))
    if {*made.manifests} != {*now.manifests} and not is_rearranged:
        yield _CHUNKS


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name in sorted({*before, *after})
        if name not in before or name not in after or not is_same(before[name], after[name])
    ]


def _attributes(node: GroupNode, claim: Claim, planned: bytes) -> Iterator[Loss]:
    """Yield the attributes of a group that others set, and that the build would set otherwise.

    Those that others removed come back and stop nothing: xarray removes all of them when it adds a
    variable of a dataset that has none.
    """
    own, there = claim.attributes(node.path), attributes_of(node)
    after = {**claim.staying(node, planned), **read_planned_attributes(planned)}
    by_others = {*_differing(own, there)}
    for name in _differing(there, after):
        if name in by_others:
            gone = name not in there
            what = f"attribute {name}{' was removed' if gone else ''}"
            yield Loss(node.path, what, stops=not gone)
