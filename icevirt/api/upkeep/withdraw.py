"""Implement `icevirt.withdraw`: a file, and every copy of its values, leaves a repository.

The order lets a run that was killed be repeated: first the file is excluded, then the branches are
built without it, then versions that hold it leave the history in one conditional write, and last
their objects go, snapshots at the very end, because a repeated run finds the others by them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from icevirt.api.dataset import left_out
from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER
from icevirt.api.dataset.left_out import exclude, exclusions, lists_naming
from icevirt.api.dataset.records import moves_in, newest_records, records_in
from icevirt.api.dataset.tail import FOLDER as TAILS
from icevirt.api.dataset.tail import read_tail
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import ExecutorStarter, is_overtaken, until_alone
from icevirt.api.dataset.writing import commit_held
from icevirt.api.events import Clock, long_running
from icevirt.api.history.log import name_version
from icevirt.api.moving import all_names
from icevirt.api.sources.reader_urls import Prefixes, prefixes_of
from icevirt.api.upkeep.scans import objects_of_parts, rows_of_files, source_urls
from icevirt.api.upkeep.windows import DatasetFiles
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.upkeep import WithdrawReport
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.listings import pieces_of
from icevirt.catalog.part_copies import copy_others
from icevirt.errors import ConflictError, FormatError, NotFoundError, ObjectNotFoundError
from icevirt.execution.executor import describe_jobs, job_tags
from icevirt.execution.selection import ExecutorChoice
from icevirt.ids import ObjectId12
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import Snapshot
from icevirt.model.updates import ExpirationRan
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import garbage_collection
from icevirt.repo.maintenance.garbage_collection import chunks_of
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.collect import InUseTask, ReferringTask, in_use, referring
from icevirt.versioning.history.garbage_collection import release
from icevirt.versioning.id_columns import ID, id_at, places

type Place = tuple[str, str]
"""A branch, and a group."""

_TASKS_PER_SLOT = 4

_REMAINS = (
    "the file itself, which icevirt never touches",
    "its name, in the list of excluded files, and in recipes that name it",
    "transaction logs, which hold indices of chunks and no values",
    "work of builds that were killed, until `icevirt maintain` removes it",
    "what open readers and caches hold, until they are closed or refreshed",
    "backups of the repository, versions that its bucket keeps, and catalogs outside of it",
)


@dataclass(slots=True, kw_only=True)
class Holding:
    """What holds the files."""

    info: RepoInfo
    versions: dict[ObjectId12, Snapshot]  # that hold them, also such as are in no history
    manifests: dict[ObjectId12, int]  # that refer to them, and by how many references
    datasets: list[tuple[str, str]]  # (branch, group)
    going: set[ObjectId12]  # manifests of these versions alone
    chunks: list[ObjectId12]  # native chunks of these alone
    listings: list[str]  # objects
    scans: frozenset[tuple[str, int]]  # part and row of the catalog
    executor: str
    work: list[str] = field(default_factory=list)  # objects of scans that name files
    records: list[str] = field(default_factory=list)  # objects that say what builds made
    held: list[str] = field(default_factory=list)  # objects that say why files are held back

    @property
    def is_nothing(self) -> bool:
        """Whether nothing holds them."""
        return not (self.versions or self.listings or self.scans or self.manifests or self.held)

    def report(
        self, url: str, files: Sequence[str], *, is_plan: bool, commits: list[str], clock: Clock
    ) -> WithdrawReport:
        """Return what was done."""
        known = [self.info.snapshots[key] for key in self.versions if key in self.info.snapshots]
        tags = (name for name, key in self.info.tags.items() if key in self.versions)
        return WithdrawReport(
            repo=url,
            is_plan=is_plan,
            files=tuple(files),
            datasets=tuple(self.datasets),
            commits=tuple(commits),
            references=sum(self.manifests.values()),
            snapshots=tuple(map(name_version, sorted(known, key=lambda each: -each.flushed_at))),
            tags=tuple(sorted(tags)),
            manifests=len(self.going),
            chunks=len(self.chunks),
            remains=_REMAINS,
            executor=self.executor,
            seconds=clock.seconds,
        )


@dataclass(slots=True, kw_only=True)
class HoldingSearch:
    """Finds what holds some files."""

    storage: Storage
    info: RepoInfo
    urls: frozenset[str]
    starter: ExecutorStarter

    def look(self) -> Holding:
        """Find what holds them: versions, manifests, chunks, lists, scans."""
        info, assets = self.info, Assets(self.storage)
        versions = {key: assets.snapshot(key) for key in _ids(self.storage, "snapshots")}
        there = _ids(self.storage, "manifests")
        executor = self.starter.start(SourceFiles(), self.storage)
        urls = self._spellings()
        tasks = [
            ReferringTask(repo=self.storage, manifests=pile, urls=urls)
            for pile in self._piles(there)
        ]
        rows = chain.from_iterable(executor.run(referring, tasks))
        manifests = {ObjectId12(key): count for key, count in rows}
        lists = self._lists()
        holding = {
            key: snapshot
            for key, snapshot in versions.items()
            if any(file.id in manifests for file in snapshot.manifest_files)
            or any(self._is_of(each, lists) for each in records_in(snapshot))
        }
        for key in info.snapshots.keys() & versions.keys() - {*holding}:
            with suppress(ObjectNotFoundError):  # the newest build of a group was made of a file
                if any(self._is_of(each, lists) for each in newest_records(info, key)):
                    holding[key] = versions[key]
        others = (each for key, each in versions.items() if key not in holding)
        kept = {file.id for each in others for file in each.manifest_files}
        going = {file.id for each in holding.values() for file in each.manifest_files}
        going = ((going | manifests.keys()) - kept) & there
        catalog = Below(self.storage, CATALOG)
        scans = frozenset((part, row) for part, row, _ in rows_of_files(catalog, self.urls))
        return Holding(
            info=info,
            versions=holding,
            manifests=manifests,
            datasets=[  # at the tips of branches
                (branch, str(record.get("group")))
                for branch, tip in sorted(info.branches.items())
                for record in newest_records(info, tip)
                if self._is_of(record, lists)
            ],
            going=going,
            chunks=self._chunks(going, kept & there),
            listings=[name for name, holds in lists.items() if holds],
            scans=scans,
            executor=executor.name,
            work=[f"{CATALOG}{info.path}" for info in catalog.list("asked")] if scans else [],
            records=self._records(lists),
            held=lists_naming(self.storage, self.urls),
        )

    # -- inside ------------------------------------------------------------------------------

    def _spellings(self) -> frozenset[str]:
        """Return the files as references may name them."""
        config = RepositoryConfig.from_document(dict(self.info.config or {}))
        found = set(self.urls)
        for record in chain.from_iterable(map(records_in, self.info.snapshots.values())):
            combine = record.get("combine")
            pairs = combine.get("publish_as") if isinstance(combine, dict) else None
            for before, after in pairs if isinstance(pairs, list) else ():
                moved = (url for url in self.urls if url.startswith(str(before)))
                found |= {f"{after}{url[len(str(before)) :]}" for url in moved}
        for each in config.virtual_chunk_containers.values():
            if each.name is not None:
                below = (url for url in [*found] if url.startswith(each.url_prefix))
                found |= {f"vcc://{each.name}/{url[len(each.url_prefix) :]}" for url in below}
        return frozenset(found)

    def _chunks(
        self, going: Collection[ObjectId12], kept: Collection[ObjectId12]
    ) -> list[ObjectId12]:
        """Return the native chunks that only manifests refer to which go."""
        mine = chunks_of(Assets(self.storage), going)
        if not len(mine):
            return []
        executor = self.starter.start(SourceFiles(), self.storage)
        tasks = [
            InUseTask(repo=self.storage, manifests=pile, chunks=mine.tobytes())
            for pile in self._piles(kept)
        ]
        used = np.frombuffer(b"".join(executor.run(in_use, tasks)), ID)
        stays = np.zeros(len(mine), np.bool_)
        stays[places(mine, used)] = True
        return [id_at(mine, at) for at in np.flatnonzero(~stays).tolist()]

    def _piles(self, keys: Collection[ObjectId12]) -> list[tuple[bytes, ...]]:
        executor = self.starter.start(SourceFiles(), self.storage)
        ordered = sorted(map(bytes, keys))
        size = -(-len(ordered) // (executor.parallelism * _TASKS_PER_SLOT)) or 1
        return [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]

    def _lists(self) -> dict[str, bool]:
        """Return for each list of files, as a path, whether it holds one of the files."""
        folder = Below(self.storage, WORK_FOLDER)
        names = [info.path.removeprefix("listings/") for info in folder.list("listings")]
        pieces = pieces_of(folder, [name.removesuffix(".parquet") for name in names])
        own = {
            name: any(url in self.urls for url in piece.files.urls)
            for name, piece in pieces.items()
        }
        found = {}
        for name in pieces:
            at, holds = name, False
            while at in pieces and not holds:
                holds, at = own[at], pieces[at].base
            found[f"listings/{name}.parquet"] = holds
        return found

    def _records(self, lists: Mapping[str, bool]) -> list[str]:
        """Return the records of builds that name one of the files, or a list that holds it.

        What appends go on from goes with them if it names one of the files.
        """
        named = [url.encode() for url in self.urls]
        named += [
            path.removeprefix("listings/").removesuffix(".parquet").encode()
            for path, holds in lists.items()
            if holds
        ]
        found = []
        for info in self.storage.list(f"{WORK_FOLDER}records"):
            raw = self.storage.get(info.path)
            if any(each in raw for each in named):
                found.append(info.path)
        for info in self.storage.list(f"{WORK_FOLDER}{TAILS}"):
            with suppress(FormatError):
                tail = read_tail(self.storage, info.path.rpartition("/")[2])
                if tail is not None and any(file.url in self.urls for file in tail.ends):
                    found.append(info.path)
        return found

    def _is_of(self, record: Mapping[str, Any], lists: Mapping[str, bool]) -> bool:
        """Say whether a dataset was made of one of the files."""
        named = any(url in str(record) for url in self.urls)
        return named or lists.get(f"listings/{record.get('listing')}.parquet", False)


def _ids(storage: Storage, folder: str) -> set[ObjectId12]:
    found = set()
    for info in storage.list(folder):
        with suppress(ValueError):
            found.add(ObjectId12.parse(info.path.removeprefix(f"{folder}/")))
    return found


def withdraw(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    repo: StorageLike,
    *,
    authorize: Prefixes = (),
    allow_changes: bool = False,
    dry_run: bool = False,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> WithdrawReport:
    """Take files out of a repository: out of every branch, tag and older version.

    Each dataset that holds one is built without it, in one commit, from the scans of the others.
    Versions that hold references to it or copies of its values leave the history, with the tags
    that name them; their objects are deleted at once, and so are scans of the file and the lists
    that name it, also lists of files that updates hold back. Later appends pass it over. Let no
    build run meanwhile. If the call is interrupted, call it again.

    Args:
        files: Paths or URLs of the files, as they were built from, or as they are called since
            they were relocated; they may be gone already.
        repo: Path or URL of the repository.
        authorize: Directories and URL prefixes of the datasets' files. They are read only if the
            repository has no scan of them.
        allow_changes: Also remove what others stored or added in these datasets, if it does not
            fit without the files.
        dry_run: Only say what would go.
        executor: What reads manifests and builds, as for `icevirt.build`; by default this process.
        progress: Called with every step of the long phases.

    Raises:
        NotFoundError: No version holds one of the files, and they were not withdrawn before.
        PlanChangedError: What others stored or added would be lost.
        CombineError: A dataset does not combine without the files.
        ConflictError: Another writer committed the files again; call it again.
        ReadOnlyError: The repository is read-only.
        FormatError: The repository has the V1 format, or something in it is damaged.
    """
    urls = source_urls(files)
    storage = storage_of(repo)
    head = RepoInfoFile(storage)
    info = head.read_v2("withdrawing a file").info
    refuse_read_only(info)
    storage = head.obey(info.config)
    clock = Clock(progress)
    with ExitStack() as stack:
        stack.enter_context(long_running("withdraw", clock))
        stack.enter_context(job_tags(storage.url))
        stack.enter_context(describe_jobs("withdraw: look for references"))
        starter = ExecutorStarter(stack, clock, executor)
        notes = [each.urls for _, each in exclusions(storage) if each.why == "withdrawn"]
        # a run that was killed may have taken away the versions that say how files were called
        begun = {url for note in notes if not {*urls}.isdisjoint(note) for url in note}
        wanted = all_names({*urls, *begun}, moves_in(info.snapshots.values()))

        def look() -> Holding:
            info = head.read().info
            search = HoldingSearch(storage=storage, info=info, urls=wanted, starter=starter)
            return search.look()

        with clock.phase("look"):
            found = look()
        if found.is_nothing and not {*urls} <= begun:
            raise NotFoundError(
                "no version of the repository holds this file",
                do=write_remedy(
                    "Name it as the dataset was built from it: ",
                    write_code("icevirt.source(repo, variable)", "icevirt source REPO VARIABLE"),
                    " shows names. To keep a file out that was never in, call ",
                    write_code("icevirt.exclude(repo, file)", "icevirt exclude REPO FILE"),
                    ".",
                ),
                repo=storage.url,
                files=sorted(urls)[:5],
            )
        prefixes = prefixes_of(authorize)

        def look_at(place: Place) -> DatasetFiles:
            branch, group = place
            return DatasetFiles.of(
                storage,
                branch=branch,
                group=group,
                prefixes=prefixes,
                starter=starter,
                clock=clock,
            )

        def leave(place: Place, seen: DatasetFiles) -> str:
            def attempt(number: int) -> str:
                files = look_at(place) if number else seen
                message = "Withdraw files"
                made = files.without(wanted, message=message, allow_changes=allow_changes)
                return made.snapshot_id

            return until_alone("withdraw", attempt, is_overtaken)

        datasets = {place: look_at(place) for place in found.datasets}
        commits: list[str] = []
        if not dry_run:
            exclude(storage, wanted, why="withdrawn", branch=None, group=None)
            commits += [leave(place, seen) for place, seen in datasets.items()]
            commits += _no_longer_held(storage, head.read().info, wanted)
            with clock.phase("delete"):
                again = look()
                _release(head, again, lambda info: _refuse_renamed(info, wanted))
                _delete(storage, head, again)
            found = replace(again, datasets=found.datasets)
        return found.report(storage.url, urls, is_plan=dry_run, commits=commits, clock=clock)


def _no_longer_held(storage: Storage, info: RepoInfo, urls: Collection[str]) -> Iterator[str]:
    """Commit which files are held back, where that names one of some files; yield the snapshots.

    Raises:
        ConflictError: Another writer was first.
    """
    for branch, tip in sorted(info.branches.items()):
        for group in {str(record.get("group")) for record in newest_records(info, tip)}:
            target = Target.look(storage, branch=branch, group=group, mode="w")
            held = left_out.read_held(storage, target.find_held_back()[0])
            if len(rest := left_out.without(held, urls)) < len(held):
                yield commit_held(target, rest)


def _refuse_renamed(info: RepoInfo, urls: frozenset[str]) -> None:
    """Check that nobody relocated the files since it was looked how they are called.

    Raises:
        ConflictError: Somebody did.
    """
    if more := all_names(urls, moves_in(info.snapshots.values())) - urls:
        raise ConflictError(
            "files were relocated meanwhile",
            do="Call it again: it looks for them under their new names too.",
            files=sorted(more)[:5],
        )


def _release(head: RepoInfoFile, found: Holding, check: Callable[[RepoInfo], None]) -> None:
    """Take the versions out of the history, and the tags that name them.

    Raises:
        ConflictError: A branch shows one, or the check fails.
    """

    def edit(info: RepoInfo) -> tuple[RepoInfo, ExpirationRan] | None:
        check(info)
        gone = found.versions.keys() & info.snapshots.keys()
        if not gone:
            return None
        shown = sorted(name for name, tip in info.branches.items() if tip in gone)
        if shown:
            raise ConflictError(
                "branches still show versions that hold the files",
                do="Call it again. If no build made what they show, delete these branches, or"
                " the groups that hold values of the files.",
                branches=shown,
            )
        return release(info, gone), ExpirationRan()

    head.update(edit)


def _delete(storage: Storage, head: RepoInfoFile, found: Holding) -> None:
    """Delete the objects, those last by which a repeated run finds the others."""
    storage.delete_many([layout.chunk(key) for key in found.chunks])
    names = [path.removeprefix("listings/").removesuffix(".parquet") for path in found.listings]
    indexes = [f"known/{name}" for name in names]
    storage.delete_many([f"{WORK_FOLDER}{path}" for path in (*indexes, *found.listings)])
    catalog = Below(storage, CATALOG)
    storage.delete_many([*found.work, *found.records, *found.held])
    copy_others(catalog, found.scans)
    catalog.delete_many(objects_of_parts(catalog, {part for part, _ in found.scans}))
    garbage_collection.trim(head, head.now(), dry_run=False)
    storage.delete_many([layout.manifest(key) for key in found.going])
    storage.delete_many([layout.snapshot(key) for key in found.versions])
