"""Recheck files that others refer to: references of kerchunk, virtual datasets, raw files.

A build lists its sources again before it commits. Only references know what the sources refer to,
so tasks read them, and check each target once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from icevirt.archive.plan import FileRows
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.references import RefsReader
from icevirt.model.chunks import ChunkType
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.objects.source_lists.listing import changed_since
from icevirt.storage.protocol import Storage

_SHOWN = 20  # changed files that a task returns; the others are counted
_SECOND = 1_000_000_000  # nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetTask:
    """Some files of a plan, and the arrays that it takes of them."""

    files: FileRows
    paths: tuple[str, ...]
    catalog: Storage
    access: SourceAccess = field(default_factory=SourceAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsChanged:
    """What a task found."""

    looked: int  # at so many targets
    changed: int
    how: dict[str, str] = field(default_factory=dict)  # by URL, of some


def look_at_targets(task: TargetTask) -> TargetsChanged:
    """Compare the targets of references with what they were when they were scanned.

    Targets without a checksum are skipped; the scan reported them.
    """
    reader = RefsReader(task.catalog)
    everything = np.ones(len(task.files), np.bool_)
    found: set[tuple[str, str, int]] = set()
    for path in task.paths:
        for block in reader.located(task.files, everything, path):
            numbers = np.unique(block.source[block.kind == ChunkType.virtual].astype(np.int64))
            held = block.targets.take(numbers[numbers > 0] - 1)
            found.update(zip(held.url, held.etag, held.last_modified.tolist(), strict=True))
    files = [
        SourceFile(url=url, size=-1, etag=etag, last_modified=seconds * _SECOND)
        for url, etag, seconds in sorted(found)
        if etag or seconds
    ]
    with granted(task.access):
        changed = changed_since(files)
    return TargetsChanged(
        looked=len(files), changed=len(changed), how=dict(islice(changed.items(), _SHOWN))
    )
