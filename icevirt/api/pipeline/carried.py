"""Carry what a dataset records from its last build to a commit that builds it only in part.

Such a commit moves files, or makes some variables anew. What the last build made is then what the
commit leaves; so what others did meanwhile is written down with it, for the next build to know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from icevirt.api.pipeline import held_back
from icevirt.api.pipeline.build_records import keep_record
from icevirt.api.pipeline.provenance import provenance_of
from icevirt.api.pipeline.target import Target, origin_of
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot
from icevirt.storage.protocol import Storage
from icevirt.versioning.merge.build_merge import BuiltArray
from icevirt.versioning.merge.kept_nodes import (
    Claim,
    attributes_of,
    is_same,
    losses,
    moved_manifests,
    settled,
)

_OF_A_BUILD = ("inputs", "asked", "plan", "record", "held", "tail", "tried")
"""What no other commit repeats; those that need lists of held files and tails name them anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a dataset records, and what others changed since."""

    record: dict[str, Any]  # without what is true of a build alone
    made: Mapping[str, Node]  # by the last build, by path
    edited: Mapping[str, str]  # what others changed of arrays, by path
    ends: Mapping[str, Any]  # where the files go on, and what is held back

    @classmethod
    def of(cls, target: Target) -> Carried:
        """Look at the last build of a group, which there is, and at what is there now."""
        last, base = target.last_build(), target.snapshot()
        assert last is not None
        claim = target.claim()
        documents = {path: node.user_data for path, node in claim.made.items()}
        groups = {p: d for p, d in documents.items() if isinstance(claim.made[p], GroupNode)}
        arrays = {p: d for p, d in documents.items() if p not in groups}
        moved = target.rearranged(last, moved_manifests(base, claim))
        known = settled(base, claim, groups=groups, arrays=arrays)
        undone = losses(base, claim, known, groups={}, arrays=arrays, rearranged=moved)
        edited = {each.path: each.what for each in undone if each.path in claim.made}
        before = provenance_of(last, target.group) or {}
        record = {name: value for name, value in before.items() if name not in _OF_A_BUILD}
        record.pop("born", None)
        record |= origin_of(last, before) | {"kept": dict(_kept(base, claim, groups))}
        record |= {"edited": edited} if edited else {}
        ends = {"tail": before["tail"]} if "tail" in before else {}
        ends |= {"held": held} if (held := held_back.name_of(target)) else {}
        return cls(record=record, made=claim.made, edited=edited, ends=ends)

    @property
    def going_on(self) -> dict[str, Any]:
        """The record of a commit that changes neither files nor steps."""
        return {**self.record, **self.ends}

    def keep(self, storage: Storage, record: Mapping[str, Any], nodes: Iterable[Node]) -> None:
        """Write a record, for the time when its snapshot is gone.

        Args:
            storage: The root of the repository.
            record: That the snapshot will hold.
            nodes: Of the snapshot.
        """
        there = {node.path: node for node in nodes}
        now = [
            there[path]
            for path, node in self.made.items()
            if path in there and there[path].id == node.id
        ]
        keep_record(
            storage,
            record,
            groups={node.path: node.user_data for node in now if isinstance(node, GroupNode)},
            arrays={
                node.path: BuiltArray(node.user_data, node.id, node.manifests)
                for node in now
                if isinstance(node, ArrayNode)
            },
        )


def _kept(base: Snapshot, claim: Claim, groups: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the attributes of groups that others gave them, by path."""
    for path in groups:
        node = base.find(path)
        if not isinstance(node, GroupNode):
            continue
        own = claim.attributes(path)
        names = sorted(
            name
            for name, value in attributes_of(node).items()
            if name not in own or not is_same(value, own[name])
        )
        if names:
            yield path, names
