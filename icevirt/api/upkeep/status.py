"""Implement `icevirt.status`: how a dataset is, in few requests and without reading references."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.xarray.eras import of_all_eras
from icevirt.api.dataset.differences import (
    UpdateCall,
    follow,
    list_and_compare,
    look,
    options_of,
)
from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER
from icevirt.api.dataset.left_out import read_held
from icevirt.api.dataset.records import concat_dims, provenance_of
from icevirt.api.dataset.target import Target
from icevirt.api.upkeep.own_objects import work_folders
from icevirt.archive.reports.upkeep import RepositoryStatus
from icevirt.catalog.listings import pieces_of
from icevirt.errors import IcevirtError
from icevirt.model import paths
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.planning.tail_runs import tails
from icevirt.repo.authorization import Authorization
from icevirt.repo.made_here import identify, own_or
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Below, Storage
from icevirt.versioning import lookup
from icevirt.versioning.history.timestamps import moment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def status(
    repo: StorageLike,
    *,
    branch: str = "main",
    group: str = "/",
    recorded_only: bool = False,
    authorize_virtual_chunk_access: Authorization = None,
) -> RepositoryStatus:
    """Say how a dataset is: its newest step, its files, and what an update would take.

    It reads the object `repo`, the newest snapshot, the coordinate of the dimension that grows and
    the list of files, and lists the work folders of builds and the sources. It reads no references
    of variables, and no source file, unless the coordinate lies in one.

    Args:
        repo: Path or URL of the repository.
        branch: The branch.
        group: The group of the dataset.
        recorded_only: Say only what the repository records, and list no sources: in few requests,
            however many files there are.
        authorize_virtual_chunk_access: As for `icevirt.open`, if the coordinate is virtual.

    Raises:
        RepositoryNotFoundError, RefNotFoundError, NodeNotFoundError: They do not exist.
        FormatError: The list of files is damaged, or the repository has the V1 format.

    Examples:
        >>> icevirt.status("repo")
        <RepositoryStatus main@...  5 files  60 steps to 2005-12-01 00:00:00Z>
    """
    storage = storage_of(repo)
    access = own_or(authorize_virtual_chunk_access, identify(storage))
    opened = Repository.open(storage, authorize_virtual_chunk_access=access)
    info = opened.head.read_v2("the status of a dataset").info
    tip = lookup.branch_tip(info, branch)
    group = paths.canonical(group)
    session = opened.readonly_session(snapshot_id=str(tip))
    session.snapshot.node(group)
    target = Target(
        storage=storage, branch=branch, group=group, mode="w", info=info, head=opened.head
    )
    last = target.last_build()
    record: Mapping[str, Any] = (provenance_of(last) if last else None) or {}
    sizes, times = _files(storage, record)
    notes: list[str] = []
    dimension = next(iter(concat_dims(record)), None)
    steps, newest = None, None
    if dimension is not None:
        try:
            ds = of_all_eras(IcevirtStore(session), session.snapshot, group, {})
            steps = ds.sizes.get(dimension)
            newest = _newest(ds[dimension].values) if dimension in ds.variables else None
        except IcevirtError as error:
            notes.append(f"the newest step is unknown: {error.what}")
    held = read_held(storage, target.find_held_back()[0])
    changes = None
    if record and not recorded_only:
        try:
            changes = _find_changes(storage, branch, group, held={each.url for each in held})
        except IcevirtError as error:
            notes.append(f"which files are new is unknown: {error.what}")
    counts = record.get("bytes") or (None, None)
    snapshot = session.snapshot
    return RepositoryStatus(
        repo=storage.url,
        branch=branch,
        group=group,
        snapshot_id=str(tip),
        at=datetime.now(UTC),
        last_commit=moment(info.snapshots[tip].flushed_at),
        last_build=None if last is None else moment(last.flushed_at),
        dimension=dimension,
        steps=steps,
        newest_step=newest,
        newest_file=_EPOCH + timedelta(microseconds=int(times.max()) // 1000)
        if len(times) and times.max() > 0
        else None,
        files=record.get("files"),
        held_files=held,
        bad_files=tuple(url for url, _, _ in record.get("bad_files", ())),
        changes=changes,
        source_bytes=int(sizes.sum()) if len(sizes) else None,
        referenced_bytes=counts[0],
        stored_bytes=counts[1],
        manifests=len(snapshot.manifest_files),
        manifest_bytes=sum(each.size_bytes for each in snapshot.manifest_files),
        manifests_to_join=tails([*snapshot.arrays()]),
        snapshots=sum(1 for _ in lookup.ancestry(info, tip)),
        unfinished=tuple(each.as_unfinished() for each in work_folders(storage)),
        notes=tuple(notes),
    )


def _find_changes(
    storage: Storage, branch: str, group: str, *, held: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the files that an update by the dataset's recipe would take, without those it held."""
    catalog = Below(storage, CATALOG)
    call = UpdateCall(storage=storage, catalog=catalog, group=group, branch=branch)
    dataset = look(call)
    how = follow(call, dataset)
    with grant_access(SourceAccess.of(how.access)):
        _, found = list_and_compare(call, dataset, how, options_of(call, dataset, how))
    kinds = {"new": found.added, "changed": found.corrected, "vanished": found.vanished}
    return {
        name: tuple(file.url for file in files if file.url not in held)
        for name, files in kinds.items()
    }


def _files(
    storage: Storage, record: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sizes of the dataset's files, and their times in nanoseconds."""
    pieces = pieces_of(Below(storage, WORK_FOLDER), [str(record.get("listing", ""))]).values()
    none = np.zeros(0, np.int64)
    return (
        np.concatenate([none, *(each.files.sizes for each in pieces)]),
        np.concatenate([none, *(each.files.times for each in pieces)]),
    )


def _newest(values: NDArray[Any]) -> datetime | None:
    """Return the latest of some labels, None if they are no times that a clock shows."""
    if not len(values):
        return None
    latest = values.max()
    if isinstance(latest, np.datetime64):
        if np.isnat(latest):
            return None
        return _EPOCH + timedelta(microseconds=int(latest.astype("M8[us]").astype(np.int64)))
    if hasattr(latest, "timetuple"):  # of a calendar that the standard library does not know
        fields = ("year", "month", "day", "hour", "minute", "second", "microsecond")
        try:
            return datetime(*(getattr(latest, name) for name in fields), tzinfo=UTC)  # type: ignore[misc]
        except ValueError:
            return None
    return None
