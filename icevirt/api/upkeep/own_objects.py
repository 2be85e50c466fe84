"""Find what icevirt keeps in a repository beside Icechunk's objects, and what of it is garbage.

Garbage is what no snapshot needs: lists of files, scans of files that no list holds, and work
folders of builds that died. What is young stays: a running build may be about to need it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER
from icevirt.api.dataset.records import FOLDER as RECORDS
from icevirt.api.dataset.records import build_of, records_in, records_needed
from icevirt.api.upkeep.scans import FOLDERS, tables_with
from icevirt.archive import catalog as schema
from icevirt.archive.reports.upkeep import Deleted, UnfinishedBuild
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.listings import ListPiece, pieces_of
from icevirt.catalog.lookup import look_up_files
from icevirt.catalog.part_index import FOLDER as INDEXES
from icevirt.catalog.parts import complete_parts
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.planning.records import BUILD_ID
from icevirt.repo.assets import Assets
from icevirt.repo.layout import BUILDS, WORK
from icevirt.storage.protocol import Below, ObjectInfo, Storage
from icevirt.versioning import lookup
from icevirt.versioning.history.timestamps import is_old, moment

SWEEPS = f"{WORK[0]}/maintenance"
"""Where maintenance of a large repository keeps lists of chunks while it runs."""

_NAMED = ("held", "recipes", "tails")  # whose objects are named by snapshots or records
_NAME = re.compile(rb"(?<![0-9a-f])[0-9a-f]{20}(?:[0-9a-f]{20})?(?![0-9a-f])")
_PASSING = ("asked", "tasks", "pieces", "opening")  # of scans, which need them while they run


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFolder:
    """What a build keeps until it commits."""

    build_id: str
    first: int  # microseconds since 1970, by the storage's clock
    last: int
    objects: tuple[ObjectInfo, ...]

    def as_unfinished(self) -> UnfinishedBuild:
        """Return it as a report shows it."""
        return UnfinishedBuild(
            build_id=self.build_id, began=moment(self.first), last_write=moment(self.last)
        )


def work_folders(storage: Storage) -> list[WorkFolder]:
    """Return the work folders of builds, the oldest first."""
    found: dict[str, list[ObjectInfo]] = {}
    for info in storage.list(BUILDS):
        build_id = info.path.removeprefix(f"{BUILDS}/").partition("/")[0]
        if BUILD_ID.fullmatch(build_id):
            found.setdefault(build_id, []).append(info)
    folders = [
        WorkFolder(
            build_id=build_id,
            first=min(info.last_modified for info in infos),
            last=max(info.last_modified for info in infos),
            objects=tuple(infos),
        )
        for build_id, infos in found.items()
    ]
    return sorted(folders, key=lambda folder: folder.first)


def list_recorded_builds(storage: Storage) -> frozenset[str]:
    """Return the builds whose records are objects, which no expiry takes away."""
    return frozenset(filter(None, (build_of(info.path) for info in storage.list(RECORDS))))


def history_of_builds(
    info: RepoInfo, tip: ObjectId12, recorded: Collection[str]
) -> set[ObjectId12]:
    """Return the snapshots from a tip to the newest builds of its groups.

    What these snapshots say of the builds is needed to append, unless it is recorded elsewhere too.
    """
    found: set[ObjectId12] = set()
    walked: list[ObjectId12] = []
    groups: set[str] = set()
    for each in lookup.ancestry(info, tip):
        walked.append(each.id)
        for record in records_in(each):
            if str(record.get("group")) not in groups:
                groups.add(str(record.get("group")))
                if record.get("build_id") not in recorded:
                    found.update(walked)
    return found


@dataclass(slots=True)
class OwnGarbage:
    """Objects to delete, by kind, in the order in which they go."""

    storage: Storage
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)  # sizes by path

    def add(self, kind: str, infos: Iterable[ObjectInfo]) -> None:
        """Add objects."""
        self.kinds.setdefault(kind, {}).update((info.path, info.size) for info in infos)

    def count(self) -> dict[str, Deleted]:
        """Return counts by kind."""
        return {
            kind: Deleted(objects=len(sizes), bytes=sum(sizes.values()))
            for kind, sizes in self.kinds.items()
        }

    def delete(self) -> None:
        """Delete them."""
        for sizes in self.kinds.values():
            self.storage.delete_many([*sizes])


def own_garbage(
    assets: Assets,
    kept: Collection[SnapshotSummary],
    *,
    older_than: int,
    folders: Iterable[WorkFolder],
) -> OwnGarbage:
    """Return what no snapshot needs, and no running build.

    Args:
        assets: Of the repository.
        kept: The snapshots that stay.
        older_than: Microseconds since 1970; younger objects stay.
        folders: Work folders of builds that died.

    Raises:
        FormatError: A list of files or a part of the catalog is damaged.
    """
    storage, garbage = assets.storage, OwnGarbage(assets.storage)

    def old(folder: str) -> list[ObjectInfo]:
        found = storage.list(f"{WORK_FOLDER}{folder}")
        return [info for info in found if is_old(info.last_modified, older_than)]

    aged = [info.path for info in old("records")]
    snapshots = (assets.snapshot(each.id) for each in kept)
    records = records_needed(storage, filter(build_of, aged), snapshots) if aged else set()
    records |= {info.path for info in storage.list(RECORDS)} - {*aged}
    named = _find_names(json.dumps([dict(each.metadata) for each in kept]).encode())
    named |= {name for record in records for name in _find_names(storage.get(record))}
    there = {_stem(info) for info in storage.list(f"{WORK_FOLDER}listings")}
    pieces = pieces_of(Below(storage, WORK_FOLDER), sorted(there & named))
    for folder in ("listings", "known"):
        going = (info for info in old(folder) if _stem(info) not in pieces)
        garbage.add("lists of files", going)
    for folder in _NAMED:
        garbage.add("records", (info for info in old(folder) if _stem(info) not in named))
    garbage.add("records", (info for info in old("records") if info.path not in records))
    garbage.add("scans", _scans(storage, pieces, older_than))
    garbage.add("work of builds", chain.from_iterable(folder.objects for folder in folders))
    garbage.add("work of builds", old("maintenance"))
    return garbage


def _find_names(raw: bytes) -> set[str]:
    """Return what may be names of objects in a text."""
    return {found.decode() for found in _NAME.findall(raw)}


def _stem(info: ObjectInfo) -> str:
    return info.path.rpartition("/")[2].partition(".")[0]


def _scans(
    storage: Storage, pieces: Mapping[str, ListPiece], older_than: int
) -> Iterator[ObjectInfo]:
    """Yield the objects of the repository's catalog that describe no file of any list."""
    infos = [info for table in FOLDERS for info in storage.list(f"{CATALOG}{table}")]
    if not infos:
        return
    stay = _parts_needed(Below(storage, CATALOG), pieces, older_than)
    shared = {*map(schema.tables_of, stay)}
    infos += [info for folder in _PASSING for info in storage.list(f"{CATALOG}{folder}")]
    is_less = False
    for info in infos:
        path = info.path.removeprefix(CATALOG)
        is_part = path.startswith("files/")
        part = path.removeprefix("files/").removesuffix(".parquet")
        is_needed = part in stay if is_part else tables_with(path) in shared
        if is_old(info.last_modified, older_than) and not is_needed:
            is_less |= is_part
            yield info
    if is_less:  # the next scan writes an index of what stays
        yield from storage.list(f"{CATALOG}{INDEXES}")


def _parts_needed(catalog: Below, pieces: Mapping[str, ListPiece], older_than: int) -> set[str]:
    """Return the parts that are young, and those that describe a file of a list."""
    there = complete_parts(catalog)
    files = SourceFiles(file for piece in pieces.values() for file in piece.files)
    stay = {part for part, written in there.items() if not is_old(written, older_than)}
    for identity in {schema.scan_of(part) for part in there}:
        found = look_up_files(catalog, identity, files)
        stay.update(found.parts[at] for at in np.unique(found.part[found.part >= 0]).tolist())
    return stay
