"""Copy parts of a catalog into another one, so that what was scanned for a build stays known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from icevirt.catalog.parts import mark
from icevirt.storage.protocol import Storage

_TABLES = ("scans", "refs", "arrays", "more")  # of a part, which counts once its files are there

_AT_ONCE = 8  # objects


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyScansTask:
    """Some objects of a catalog."""

    source: Storage
    into: Storage
    paths: tuple[str, ...]


def copy_scans(task: CopyScansTask) -> int:
    """Copy the objects; return how many."""

    def copy(path: str) -> None:
        task.into.put(path, task.source.get(path))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="icevirt-copy") as pool:
        return sum(1 for _ in pool.map(copy, task.paths))


def scans_to_copy(source: Storage, into: Storage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make the target a catalog; return the objects that it lacks, and those that come last."""
    mark(into)
    there = {info.path for info in into.list()}
    first, last = (
        tuple(
            sorted(
                info.path
                for table in tables
                for info in source.list(table)
                if info.path not in there
            )
        )
        for tables in (_TABLES, ("files",))
    )
    return first, last
