"""Make sure that what datasets copied of files is the same at the new place of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icevirt.amounts import plural
from icevirt.api.dataset.files_held import CATALOG
from icevirt.archive.catalog import scan_of
from icevirt.archive.plan import FileRows
from icevirt.archive.reports.relocation import Moved, total
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.lookup import settled
from icevirt.catalog.parts import complete_parts
from icevirt.execution.executor import Executor, described
from icevirt.model import paths
from icevirt.model.snapshot import Snapshot
from icevirt.planning.containers import Relocation
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.compare_files import CopiesTask, compare_copies

_PER_TASK = 64  # files


def compare_copies_of(  # noqa: PLR0917 - files, and what is known of them
    running: Executor,
    storage: Storage,
    base: Snapshot,
    found: Moved,
    changed: Mapping[SourceFile, SourceFile],
    relocation: Relocation,
    access: Mapping[str, Any],
) -> Moved:
    """Compare what references do not reach, of files that have another checksum now.

    Args:
        running: Runs the tasks.
        storage: The repository.
        base: The version whose files moved.
        found: What tasks found of its manifests.
        changed: The files as datasets list them, and as they are.
        relocation: From where to where.
        access: To both places.
    """
    pairs, catalog = [*changed.items()], Below(storage, CATALOG)
    scans = sorted({scan_of(part) for part in complete_parts(catalog)})
    known = settled(catalog, "", SourceFiles(file for file, _ in pairs), also=scans)
    rows = FileRows(parts=known.parts, part=known.part, row=known.row)
    referenced = _referenced(base, found)
    tasks = []
    for low in range(0, len(pairs), _PER_TASK):
        pile = np.arange(low, min(low + _PER_TASK, len(pairs)))
        is_known = known.part[pile] >= 0
        order = [*pile[is_known].tolist(), *pile[~is_known].tolist()]
        tasks.append(
            CopiesTask(
                files=tuple(pairs[at] for at in order),
                rows=rows.take(pile[is_known]),
                catalog=catalog,
                referenced=referenced,
                relocation=relocation,
                access=access,
            )
        )
    with described(f"relocate: {plural(len(pairs), 'file')} with another time"):
        return total(running.run(compare_copies, tasks))


def _referenced(base: Snapshot, found: Moved) -> frozenset[str]:
    """Return the names of variables of which a version holds references and nothing else."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for node in base.arrays():
        number = int.from_bytes(bytes(node.id), "little")
        is_copied = number in found.copied or number not in found.referenced
        names[is_copied].add(paths.name(node.path))
    return frozenset(names[False] - names[True])
