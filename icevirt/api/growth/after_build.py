"""Leave behind a build what an append needs to go on from its end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.api.growth.tail_state import MOST_ENDS, TailState, described, write_tail
from icevirt.api.pipeline.stages import Scan
from icevirt.archive.facts import ArrayColumns, FileColumns
from icevirt.archive.plan import BuildPlan
from icevirt.planning.lengthened import (
    decided_of,
    files_at_ends,
    files_of_schemas,
    groups_decided,
)
from icevirt.storage.protocol import Storage


def ends_of(plan: BuildPlan, files: FileColumns, arrays: ArrayColumns) -> NDArray[np.int64] | None:
    """Return the files that stand for all in the plan of an append; None where none can.

    Args:
        plan: Of the build.
        files: Of its facts.
        arrays: The same.

    Returns:
        Rows of the plan's files, ascending.
    """
    ends = files_at_ends(plan)
    if ends is None:
        return None
    others = [_row_of(plan.files, files, at) for at in files_of_schemas(arrays).tolist()]
    found = np.unique(np.concatenate([ends, *others]))
    return found if len(found) <= MOST_ENDS else None


def _row_of(planned: FileColumns, files: FileColumns, at: int) -> NDArray[np.int64]:
    """Return the row that a file of the facts has in the plan, if it has one."""
    name = files.parts[int(files.part[at])]
    if name not in planned.parts:
        return np.zeros(0, np.int64)
    same = planned.part == planned.parts.index(name)
    return np.flatnonzero(same & (planned.row == files.row[at]))


def leave_tail(
    storage: Storage,
    scan: Scan,
    plan: BuildPlan,
    ends: NDArray[np.int64] | None,
    pieces: tuple[tuple[str, int], ...],
) -> str:
    """Write the state from which an append goes on; return its name, "" where none can."""
    if ends is None or plan.origin is not None:
        return ""
    identity, files, objects = described(scan.catalog, plan.files.take(ends), scan.identity)
    state = TailState(
        identity=identity,
        decided={array.path: decided_of(array) for array in plan.arrays},
        groups=groups_decided(plan.groups),
        ends=files,
        files=len(scan.files),
        pieces=pieces,
        born="",
        hot="",
        described=objects,
    )
    return write_tail(storage, state)
