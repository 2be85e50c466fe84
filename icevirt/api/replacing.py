"""A build that replaces what an earlier one made: what would change, and whether it was meant."""

from __future__ import annotations

from typing import Any

from icevirt.api.target import METADATA, Target
from icevirt.archive.difference import PlanDifference
from icevirt.archive.plan import BuildPlan
from icevirt.errors import PlanChangedError
from icevirt.logic.plan_changes import plan_changes
from icevirt.model.metadata import document_of
from icevirt.model.repo_info import SnapshotInfo
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.assets import Assets


def difference(target: Target, plan: BuildPlan) -> PlanDifference | None:
    """Compare a plan with the last build of the same group; None where there was none."""
    last = target.last_build()
    return None if last is None else _since(target, last, plan)


def refuse_losses_of(target: Target, plan: BuildPlan, *, allowed: bool) -> None:
    """Make sure that a build which replaces another takes nothing away that was not meant to go.

    Raises:
        PlanChangedError: It does.
    """
    last = target.last_build()
    if target.mode != "w" or last is None or allowed:
        return
    found = _since(target, last, plan)
    if found.stopping:
        raise PlanChangedError(
            f"the plan differs from the last build of this group: {'; '.join(found.stopping)}",
            do="If that is meant, pass allow_changes=True (--allow-changes).",
            group=target.group,
            last_build=found.snapshot_id,
        )


def _since(target: Target, last: SnapshotInfo, plan: BuildPlan) -> PlanDifference:
    made = Assets(target.storage).snapshot(last.id).below(target.group)
    told: Any = last.metadata.get(METADATA)
    return plan_changes(
        {
            node.path: node.user_data
            for node in made
            if isinstance(node, ArrayNode) and document_of(node)
        },
        int(told.get("files") or 0),
        plan,
        snapshot_id=str(last.id),
    )
