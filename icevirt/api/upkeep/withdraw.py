"""Implement `icevirt.withdraw`: a file, and every copy of its values, leaves a repository.

The order lets a run that was killed be repeated: first the file is excluded, then the branches are
built without it, then versions that hold it leave the history in one conditional write, and last
their objects go, snapshots at the very end, because a repeated run finds the others by them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace

from icevirt.api.dataset import left_out
from icevirt.api.dataset.events import Clock, long_running
from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER
from icevirt.api.dataset.left_out import exclude, exclusions
from icevirt.api.dataset.records import moves_in, newest_records
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import ExecutorStarter
from icevirt.api.dataset.writing import commit_held
from icevirt.api.moving.renaming import all_names
from icevirt.api.sources.reader_urls import Prefixes, prefixes_of
from icevirt.api.upkeep.dropping import DatasetFiles
from icevirt.api.upkeep.holding import Holding, HoldingSearch
from icevirt.api.upkeep.scans import objects_of_parts, source_urls
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.upkeep import WithdrawReport
from icevirt.errors import ConflictError, NotFoundError
from icevirt.execution.executor import described, job_tags
from icevirt.execution.selection import ExecutorChoice
from icevirt.model.repo_info import ExpirationRan, RepoInfo
from icevirt.repo import layout
from icevirt.repo.maintenance import garbage_collection
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Below, Storage
from icevirt.versioning.history.garbage_collection import released


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
    that name them; their objects are deleted at once, and so are the scans and lists that name the
    file, also lists of files that updates hold back. Later appends pass it over. Let no build run
    meanwhile. If the call is interrupted, call it again.

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
    clock = Clock(progress)
    with ExitStack() as stack:
        stack.enter_context(long_running("withdraw", clock))
        stack.enter_context(job_tags(storage.url))
        stack.enter_context(described("withdraw: look for references"))
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
                do="Name it as the dataset was built from it: icevirt.source(repo, variable)"
                " (icevirt source REPO VARIABLE) shows names. To keep a file out that was never"
                " in, call icevirt.exclude(repo, file) (icevirt exclude REPO FILE).",
                repo=storage.url,
                files=sorted(urls)[:5],
            )
        prefixes = prefixes_of(authorize)
        datasets = [
            DatasetFiles.of(
                storage,
                branch=branch,
                group=group,
                prefixes=prefixes,
                starter=starter,
                clock=clock,
            )
            for branch, group in found.datasets
        ]
        commits: list[str] = []
        if not dry_run:
            exclude(storage, wanted, why="withdrawn", branch=None, group=None)
            for each in datasets:
                report = each.without(wanted, message="Withdraw files", allow_changes=allow_changes)
                commits.append(report.snapshot_id)
            commits += _no_longer_held(storage, head.read().info, wanted)
            with clock.phase("delete"):
                again = look()
                _release(head, again)
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
            held = left_out.held_files(storage, target.held_back()[0])
            if len(rest := left_out.without(held, urls)) < len(held):
                yield commit_held(target, rest)


def _release(head: RepoInfoFile, found: Holding) -> None:
    """Take the versions out of the history, and the tags that name them.

    Raises:
        ConflictError: A branch shows one.
    """

    def edit(info: RepoInfo) -> tuple[RepoInfo, ExpirationRan] | None:
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
        return released(info, gone), ExpirationRan()

    head.update(edit)


def _delete(storage: Storage, head: RepoInfoFile, found: Holding) -> None:
    """Delete the objects, those last by which a repeated run finds the others."""
    storage.delete_many([layout.chunk(key) for key in found.chunks])
    names = [path.removeprefix("listings/").removesuffix(".parquet") for path in found.listings]
    indexes = [f"known/{name}" for name in names]
    storage.delete_many([f"{WORK_FOLDER}{path}" for path in (*indexes, *found.listings)])
    catalog = Below(storage, CATALOG)
    storage.delete_many([*found.work, *found.records, *found.held])
    catalog.delete_many(objects_of_parts(catalog, found.parts))
    garbage_collection.trim(head, head.now(), dry_run=False)
    storage.delete_many([layout.manifest(key) for key in found.going])
    storage.delete_many([layout.snapshot(key) for key in found.versions])
