"""Compare a build with what its group holds, and refuse unintended changes.

It compares with what the branch holds now, not with what the last build recorded. Nodes are
compared, and a node names the manifests of its chunks, so no reference is read. A commit that makes
a dataset anew only in part carries on what it records, and what others changed meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from icevirt.api.dataset.records import RecordedBuild, describe_record, provenance_of
from icevirt.api.dataset.target import Target, origin_of
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import OTHERS, PlanChange, PlanDifference
from icevirt.errors import PlanChangedError
from icevirt.model.json import JSON
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot, document_of
from icevirt.planning.combine.data_vars import Kept, data_vars_of
from icevirt.planning.edits.file_edits import read_recorded
from icevirt.planning.plan_diff import changes_of_others, plan_changes
from icevirt.planning.remedies import build_fix
from icevirt.planning.stored_form import forms_of
from icevirt.planning.twins import find_unmarked, leave_behind
from icevirt.repo.history.walks import last_changes
from icevirt.repo.reader import has_same_values
from icevirt.storage.protocol import Storage
from icevirt.versioning.merge.build_merge import BuiltArray
from icevirt.versioning.merge.kept_nodes import (
    Claim,
    KeptNodes,
    Loss,
    attributes_of,
    coordinates_of,
    find_moved_manifests,
    is_same,
    losses,
    settle_base,
)

OF_OTHERS = "commits_undone"
"""Fact of an error: what of other people's work stops a build, which no file is to blame for."""

_SHOWN = 10  # paths in a line


@dataclass(frozen=True, slots=True)
class Replacing:
    """A plan held against the tip of its branch."""

    target: Target
    plan: BuildPlan
    claim: Claim
    edits: JSON  # of the plan, as a snapshot records them

    @classmethod
    def of(cls, target: Target, plan: BuildPlan, edits: JSON) -> Replacing:
        """Look at what the plan's group holds."""
        return cls(target, plan, target.claim(), edits)

    @property
    def arrays(self) -> dict[str, bytes]:
        """zarr.json of the plan's arrays, by path."""
        return {array.path: array.zarr_json for array in self.plan.arrays}

    def settle(self) -> KeptNodes:
        """Return which nodes below the group are kept, replaced and deleted."""
        base = self.target.snapshot()
        return settle_base(base, self.claim, groups=self.plan.groups, arrays=self.arrays)

    def find_kept_attributes(self) -> dict[str, list[str]]:
        """Return the attributes of groups that stay, by path, for the next build to know them."""
        base = self.target.snapshot()
        found: dict[str, list[str]] = {}
        for path, zarr_json in self.plan.groups.items():
            node = base.find(path)
            if isinstance(node, GroupNode) and (
                path == self.claim.group or self.claim.covers(path)
            ):
                there = self.claim.staying(node, zarr_json)
                found |= {path: sorted(there)} if there else {}
        return found

    def difference(self) -> PlanDifference | None:
        """Say what the build would change; None where its group holds nothing."""
        base, last = self.target.snapshot(), self.target.last_build()
        if last is None and next(iter(base.below(self.claim.group)), None) is None:
            return None
        found = self.settle()
        record = None if last is None else provenance_of(last)
        own = {
            node.path: node.user_data
            for node in base.below(self.claim.group)
            if isinstance(node, ArrayNode) and self.claim.is_own(node) and document_of(node)
        }
        changes = [*self._undone()]
        if record is not None:
            before = record.get("combine", {}).get("edits")
            edits = read_recorded(before), read_recorded(self.edits)
            files = record.get("files", 0)
            changes += plan_changes(own, files, self.plan, edits, forms_of(record))
        changes.sort(key=lambda change: not change.stops)
        return PlanDifference(
            snapshot_id="" if last is None else str(last.id),
            changes=tuple(changes),
            kept=tuple(sorted(found.kept)),
            replaced=tuple(sorted(found.replaced)),
            deleted=tuple(sorted(found.deleted)),
        )

    def refuse_losses(self, *, allowed: bool, expected: Collection[str] = ()) -> None:
        """Make sure that the build takes nothing away that was not meant to go.

        Args:
            allowed: Whether all of it may go.
            expected: Kinds of changes that stop nothing.

        Raises:
            PlanChangedError: It does.
        """
        found = None if allowed or not self.claim.replaces else self.difference()
        stopping = () if found is None else found.stopping_but(expected)
        if found is not None and stopping:
            others = [
                change.what
                for change in found.changes
                if change.stops and change.kind == OTHERS and OTHERS not in expected
            ]
            apart = (
                "Variables of yours along a dimension that grows belong into a group of their own,"
                ' with their coordinates: ds.to_zarr(session.store, group="derived"). '
            )
            raise PlanChangedError(
                f"the plan differs from what the group holds: {'; '.join(stopping)}",
                fixes=[
                    build_fix(
                        "what is listed is removed or changed; older snapshots keep it",
                        commit_options={"allow_changes": True},
                    )
                ],
                do=(apart if others else "")
                + "You can also build into another group or on another branch.",
                group=self.claim.group,
                last_build=found.snapshot_id,
                tip=str(self.target.tip),
                **({OF_OTHERS: len(others)} if others else {}),
            )

    def findings(self) -> tuple[str, ...]:
        """Say in the build's report what stays, and what of others' work goes."""
        if not self.claim.replaces:
            return ()
        found = self.settle()
        undone = tuple(change.what for change in self._undone())
        if not found.kept:
            return undone
        kept = sorted(found.kept)
        more = f" and {len(kept) - _SHOWN:,} more" if len(kept) > _SHOWN else ""
        text = f"kept, because the last build did not make it: {', '.join(kept[:_SHOWN])}{more}"
        return (text, *undone)

    def mark_relabelled(self, arrays: Mapping[str, BuiltArray]) -> Replacing:
        """Note which coordinates of nodes that stay are no longer what they were.

        What stays is labelled by coordinates of the build. Their values are known when they are
        written: equal ones are stored under equal names, so that names are compared.
        """
        base, planned = self.target.snapshot(), self.arrays
        if self.target.info is None or not self.claim.replaces:
            return self
        assets = self.target.assets
        changed = frozenset(
            path
            for path in coordinates_of(base, self.claim, self.settle(), planned)
            if not has_same_values(assets, base.node(path), arrays[path])
        )
        return replace(self, claim=replace(self.claim, relabelled=changed))

    def _undone(self) -> list[PlanChange]:
        """Return what the build would undo of the work of others, with the commits that did it."""
        target, groups, arrays = self.target, self.plan.groups, self.arrays
        if target.info is None:
            return []
        base, last = target.snapshot(), target.last_build()
        undone = find_undone(target, last, base, self.claim, groups=groups, arrays=arrays)
        paths = {loss.path for loss in undone}
        known = last_changes(target.assets, target.info, target.tip, paths)
        commits: Mapping[str, tuple[str, str]] = {
            path: (str(commit.id), commit.message) for path, commit in known.items()
        }
        return [*changes_of_others(undone, commits)]


def find_undone(
    target: Target,
    last: SnapshotSummary | None,
    base: Snapshot,
    claim: Claim,
    *,
    groups: Mapping[str, bytes],
    arrays: Mapping[str, bytes],
) -> list[Loss]:
    """Return what others did since the last build, and a build of some nodes would undo.

    Args:
        target: The branch.
        last: The last build of its group.
        base: What the branch holds.
        claim: What of it is the build's.
        groups: zarr.json of the groups that are built, by path.
        arrays: The same of arrays.
    """
    moved = find_moved_manifests(base, claim)
    if last is not None:
        moved = target.find_rearranged(last, moved)
    known = settle_base(base, claim, groups=groups, arrays=arrays)
    return losses(base, claim, known, groups=groups, arrays=arrays, rearranged=moved)


_ERA = re.compile(r"^/era_[0-9]+(?=/)")


def rules_of(target: Target) -> Kept:
    """Return what the last build of the group says of dimensions, nothing where it stays.

    Builds of earlier versions gave variables a new dimension where their values differed; what
    these have, they keep too.
    """
    last = None if target.mode != "w" else target.last_build()
    if last is None:
        return Kept()
    nodes = target.assets.snapshot(last.id).below(target.group)
    return rules_in(nodes, provenance_of(last) or {}, target.group)


def rules_in(nodes: Iterable[Node], recorded: Mapping[str, Any], group: str) -> Kept:
    """Return what nodes, and what is recorded of their build, say of dimensions."""
    asked = recorded.get("combine", {}).get("data_vars")
    dimensions = {}
    for node in nodes:
        if isinstance(node, ArrayNode):
            path = "/" + node.path.removeprefix(group).lstrip("/")
            inner = _ERA.sub("", path, count=1) if recorded.get("eras", 1) != 1 else path
            names = document_of(node).get("dimension_names") or ()
            dimensions[inner] = tuple(name for name in names if name is not None)
    return Kept(dimensions=dimensions, data_vars=data_vars_of(asked))


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
        undone = find_undone(target, last, base, claim, groups=groups, arrays=arrays)
        edited = {each.path: each.what for each in undone if each.path in arrays}
        before = provenance_of(last, target.group) or {}
        changed = [path for path, what in edited.items() if what != claim.edited.get(path)]
        edited = leave_behind(before, edited, changed)
        if not isinstance(last, RecordedBuild):
            edited = {**find_unmarked(before, last.metadata, claim.made), **edited}
        kept = dict(find_kept(base, {path: claim.attributes(path) for path in groups}))
        record = carry_record(last, before, kept=kept, edited=edited)
        ends = {"tail": before["tail"]} if "tail" in before else {}
        ends |= {"held": held} if (held := target.find_held_back()[0]) else {}
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
        groups = {node.path: node.user_data for node in now if isinstance(node, GroupNode)}
        storage.put(*describe_made(record, groups, now))


def carry_record(
    last: SnapshotSummary,
    before: Mapping[str, Any],
    *,
    kept: Mapping[str, list[str]],
    edited: Mapping[str, str],
) -> dict[str, Any]:
    """Return the record of a commit that goes on with a build, without what is true of that alone.

    Args:
        last: The build.
        before: What it recorded.
        kept: Attributes of groups that others gave them, by path.
        edited: What others changed of arrays, by path.
    """
    out = (*_OF_A_BUILD, "born")
    record = {name: value for name, value in before.items() if name not in out}
    record |= origin_of(last, before) | {"kept": dict(kept)}
    return record | ({"edited": dict(edited)} if edited else {})


def describe_made(
    record: Mapping[str, Any], groups: Mapping[str, bytes], nodes: Iterable[Node]
) -> tuple[str, bytes]:
    """Return where a record is kept, and the bytes that say it, of the arrays among some nodes."""
    arrays = {
        node.path: BuiltArray(node.user_data, node.id, node.manifests)
        for node in nodes
        if isinstance(node, ArrayNode)
    }
    return describe_record(record, groups=groups, arrays=arrays)


def find_kept(
    base: Snapshot, own: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the attributes of groups that others gave them, given those of a build, by path."""
    for path, attributes in own.items():
        node = base.find(path)
        there = attributes_of(node) if isinstance(node, GroupNode) else {}
        names = sorted(
            name
            for name, value in there.items()
            if name not in attributes or not is_same(value, attributes[name])
        )
        if names:
            yield path, names
