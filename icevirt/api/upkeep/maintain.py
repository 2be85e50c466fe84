"""Implement `icevirt.maintain`: retention of snapshots, and the collection of what they leave.

The order makes each step safe to repeat: one conditional write takes snapshots out of the history,
then objects that nothing refers to any more are deleted, those that lead to others first. A run
that is killed leaves objects that the next one deletes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce

from icevirt.api.choices import check_group
from icevirt.api.dataset.files_held import CATALOG
from icevirt.api.dataset.transaction import ExecutorStarter, is_overtaken, until_alone
from icevirt.api.events import Clock, long_running, telling_tasks
from icevirt.api.history.log import name_version
from icevirt.api.sources.reader_urls import Prefixes, prefixes_of
from icevirt.api.upkeep.fold import fold
from icevirt.api.upkeep.own_objects import (
    SWEEPS,
    WorkFolder,
    history_of_builds,
    list_recorded_builds,
    own_garbage,
    work_folders,
)
from icevirt.api.upkeep.windows import DatasetFiles, Window, behind
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.upkeep import Deleted, MaintenanceReport, WindowChange
from icevirt.catalog.part_copies import fold_parts
from icevirt.errors import InvalidInputError
from icevirt.execution.executor import Executor, describe_jobs
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of
from icevirt.ids import ObjectId12
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.updates import ExpirationRan
from icevirt.planning.axes.axis import duration_of
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import garbage_collection
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.repo.settings import SAFE_AGE
from icevirt.repo.v1 import upgrade
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Below
from icevirt.tasks.collect import (
    ChunkList,
    ChunksTask,
    SweepTask,
    list_chunks,
    ranges_of,
    sweep,
)
from icevirt.versioning.history import garbage_collection as rules
from icevirt.versioning.history.timestamps import is_old, moment
from icevirt.wire.manifests.encoding import ManifestEncoding

KEEP = "30D"
"""How long versions stay by default."""

_MANY = 500  # manifests, from which on other processes or Spark read them faster
_TASKS_PER_SLOT = 4
_SHOWN = 20  # snapshots in a report
_MICROSECOND = timedelta(microseconds=1)


def maintain(
    repo: StorageLike,
    *,
    keep_snapshots: str | timedelta = KEEP,
    window: str | float | Mapping[str, str | float] | None = None,
    branch: str = "main",
    group: str = "/",
    authorize: Prefixes = (),
    dry_run: bool = False,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> MaintenanceReport:
    """Shorten the history of a repository, and delete what nothing refers to any more.

    Every version that a branch showed during the time that is kept stays, and so do the tips of
    branches and tags. Readers that hold an older version cannot read on. Of what no version refers
    to, objects stay that are younger than seven days or than the oldest unfinished build. What is
    icevirt's own goes too, if no version needs it: lists of files, scans, and work folders in
    which no build wrote anything for seven days. Entries of the ops log older than seven days go,
    with the backups of `repo` that they lead to. Small manifests of appends are joined in a commit,
    if there are many at the end of an array. If the call is interrupted, call it again.

    Args:
        repo: Path or URL of the repository.
        keep_snapshots: How long versions stay, like "30D"; at least seven days.
        window: Keep the dataset to its last steps first: a time like "90D", counted from the newest
            step of the dimension along which the files lie, or ``{"time": "90D"}``. Files that are
            wholly older are dropped if a tenth of the steps or more goes, in one commit; they stay
            out if they are named again. References of all others are written again.
        branch: Of the dataset with the window.
        group: Of the dataset with the window.
        authorize: With ``window``: directories and URL prefixes of the dataset's files. They are
            read only if the repository has no scan of them.
        dry_run: Only say what would be deleted. For a large repository, lists of chunks are
            written to its folder of icevirt all the same, and deleted; for a window, scans of files
            that it lacks.
        executor: What reads manifests and deletes chunks, as for `icevirt.build`; by default this
            process where there is little to do, else the active session of Spark, or processes.
        progress: Called with every step of the long phases.

    Raises:
        ConflictError: Other writers changed the dataset of the window before every attempt.
        InvalidInputError: The time is none, or is too short; the window does not fit the dataset;
            or its files lie elsewhere than was authorized.
        PlanChangedError: The window would remove what others stored or added.
        ReadOnlyError: The repository is read-only.
        FormatError: A file that is to be kept cannot be read, or the repository has the V1 format;
            no object was deleted.

    Examples:
        >>> icevirt.maintain("repo", keep_snapshots="30D", dry_run=True)
        <MaintenanceReport 0 of ... snapshots and 0 objects to delete  0 B>
    """
    keep = age_of(keep_snapshots)
    storage = storage_of(repo)
    head = RepoInfoFile(storage)
    info = head.read_v2("maintenance").info
    refuse_read_only(info)
    storage = head.obey(info.config)
    upgrade.refuse_left_behind(head, info, "maintenance")
    clock = Clock(progress)
    with long_running("maintain", clock), ExitStack() as stack:
        change = None
        if window is not None:
            wanted = Window.of(window)
            starter = ExecutorStarter(stack, clock, executor)

            def keep_window(_: int) -> WindowChange:
                files = DatasetFiles.of(
                    storage,
                    branch=branch,
                    group=check_group(group),
                    prefixes=prefixes_of(authorize),
                    starter=starter,
                    clock=clock,
                )
                found = behind(wanted, files)
                return found.change if dry_run else found.drop()

            change = until_alone("window", keep_window, is_overtaken)
        with clock.phase("list"):
            work = _Maintenance.look(head, keep, dry_run=dry_run)
        with clock.phase("join"):
            joined = fold(storage, branch=branch, dry_run=dry_run).joined
            scans = Below(storage, CATALOG)
            parts = 0 if dry_run else fold_parts(scans, older_than=work.garbage_before)
        config = RepositoryConfig.from_document(dict(info.config or {}))
        assets = Assets(storage, manifests=ManifestEncoding.of_config(config.document))
        sweeper = _ChunksByTasks(assets, executor, stack, clock)
        with clock.phase("collect"):
            summary = garbage_collection.collect(
                assets,
                head,
                work.garbage_before,
                dry_run=dry_run,
                before=(work.expire,),
                roots=work.undone,
                sweeper=sweeper,
            )
            summary.check(storage.url)
        with clock.phase("own"):
            own = own_garbage(
                assets, work.find_kept(head), older_than=work.garbage_before, folders=work.dead
            )
            if not dry_run:
                own.delete()
        with clock.phase("trim"):
            trimmed = garbage_collection.trim(head, work.garbage_before, dry_run=dry_run)
    counts = {
        "snapshots": summary.snapshots_deleted,
        "transaction logs": summary.transaction_logs_deleted,
        "manifests": summary.manifests_deleted,
        "native chunks": summary.chunks_deleted,
    }
    sizes = summary.bytes_by_kind
    return work.report(
        storage.url,
        info,
        keep_snapshots,
        deleted={
            **{kind: Deleted(objects=n, bytes=sizes.get(kind, 0)) for kind, n in counts.items()},
            **own.count(),
            "backups of repo": Deleted(
                objects=trimmed.backups_deleted, bytes=trimmed.bytes_deleted
            ),
        },
        window=change,
        joined=(joined, parts),
        executor=sweeper.name,
        seconds=clock.seconds,
    )


def age_of(given: str | timedelta) -> int:
    """Return microseconds of the time that is kept.

    Raises:
        InvalidInputError: It is none, or below seven days.
    """
    found = given // _MICROSECOND if isinstance(given, timedelta) else duration_of(str(given))
    if found < SAFE_AGE // _MICROSECOND:
        raise InvalidInputError(
            "versions stay for at least seven days: readers may hold them, and builds begin there"
            if found
            else "this is not a time",
            do=write_remedy(
                "Pass ",
                write_code('keep_snapshots="7D"', "--keep-snapshots 7D"),
                " or more",
                "; units are h, D and w.",
            ),
            keep_snapshots=str(given),
        )
    return found


@dataclass(slots=True, kw_only=True)
class _Maintenance:
    """What stays, as it was when the call began."""

    dry_run: bool
    history_from: int  # microseconds since 1970, like all times here
    garbage_before: int
    running: list[WorkFolder]
    dead: list[WorkFolder]
    recorded: frozenset[str]  # builds whose records are objects too
    expired: frozenset[ObjectId12] = frozenset()
    swept: RepoInfo | None = None

    @classmethod
    def look(cls, head: RepoInfoFile, keep: int, *, dry_run: bool) -> _Maintenance:
        """Look which builds are unfinished, and decide from when on everything stays."""
        now = head.now()
        safe = now - SAFE_AGE // _MICROSECOND
        folders = work_folders(head.storage)
        running = [each for each in folders if not is_old(each.last, safe)]
        oldest = min((each.first for each in running), default=now)
        return cls(
            dry_run=dry_run,
            history_from=min(now - keep, oldest),
            garbage_before=min(safe, oldest),
            running=running,
            dead=[each for each in folders if each not in running],
            recorded=list_recorded_builds(head.storage),
        )

    def expire(self, info: RepoInfo) -> tuple[RepoInfo, ExpirationRan] | None:
        """Release what no branch has shown since then."""
        spared = {*rules.find_shown_at(info, self.history_from), *self.undone(info)}
        for tip in info.branches.values():
            spared |= history_of_builds(info, tip, self.recorded)
        changed, self.expired = rules.expire(info, self.history_from, spared=spared)
        self.swept = changed
        return (changed, ExpirationRan()) if self.expired else None

    def undone(self, info: RepoInfo) -> Collection[ObjectId12]:
        """Return what was undone lately, and may be redone."""
        return rules.undone_since(info, self.garbage_before)

    def find_kept(self, head: RepoInfoFile) -> Collection[SnapshotSummary]:
        """Return the snapshots that are left, or would be."""
        if not self.dry_run:
            return head.read().info.snapshots.values()
        assert self.swept is not None
        swept = rules.sweep(self.swept, self.garbage_before, self.undone(self.swept))
        return swept.snapshots.values()

    def report(
        self,
        url: str,
        before: RepoInfo,
        keep: str | timedelta,
        *,
        deleted: dict[str, Deleted],
        window: WindowChange | None,
        joined: tuple[int, int],
        executor: str,
        seconds: dict[str, float],
    ) -> MaintenanceReport:
        """Return what was done."""
        known = before.snapshots
        gone = [known[key] for key in self.expired if key in known]
        gone.sort(key=lambda each: -each.flushed_at)
        named = [(f"branch {name}", known[key]) for name, key in sorted(before.branches.items())]
        named += [(f"tag {name}", known[key]) for name, key in sorted(before.tags.items())]
        return MaintenanceReport(
            repo=url,
            is_plan=self.dry_run,
            keep_snapshots=str(keep),
            history_from=moment(self.history_from),
            garbage_before=moment(self.garbage_before),
            snapshots=len(known),
            snapshots_expired=len(self.expired),
            expired=tuple(map(name_version, gone[:_SHOWN])),
            kept_by_name=tuple(
                name_version(each, name)
                for name, each in named
                if each.flushed_at < self.history_from and each.parent_id is not None
            ),
            unfinished=tuple(each.as_unfinished() for each in self.running),
            deleted=deleted,
            window=window,
            manifests_joined=joined[0],
            parts_joined=joined[1],
            executor=executor,
            seconds=seconds,
        )


class _ChunksByTasks:
    """Looks for chunks by tasks, or in this process if there are few manifests."""

    def __init__(
        self, assets: Assets, choice: ExecutorChoice, stack: ExitStack, clock: Clock
    ) -> None:
        self._assets, self._choice, self._stack, self._clock = assets, choice, stack, clock
        self._here = garbage_collection.ChunksHere(assets)
        self._running: Executor | None = None
        self._lists: Sequence[ChunkList] = ()
        self.name = ""

    def look(self, manifests: Collection[ObjectId12]) -> None:
        """Read the manifests that are kept."""
        if len(manifests) < _MANY and self._choice is None:
            self._here.look(manifests)
            return
        storage = self._assets.storage
        self._running = self._stack.enter_context(executor_of(self._choice))
        self.name = self._running.name
        folder = f"{SWEEPS}/{secrets.token_hex(10)}"
        check_before_first(self._running, ClusterNeeds(written=(storage,)))
        self._stack.callback(storage.delete_below, folder)
        slots = self._running.parallelism * _TASKS_PER_SLOT
        keys = sorted(map(bytes, manifests))
        size = -(-len(keys) // slots) or 1
        self._ranges = ranges_of(slots)
        tasks = [
            ChunksTask(
                repo=storage,
                manifests=tuple(keys[at : at + size]),
                path=f"{folder}/{at // size}",
                ranges=self._ranges,
            )
            for at in range(0, len(keys), size)
        ]
        tell = telling_tasks(self._clock.step, "manifests", len(tasks))
        with describe_jobs("maintain: manifests", storage.url):
            self._lists = self._running.run(list_chunks, tasks, progress=tell)

    def sweep(self, older_than: int, *, dry_run: bool) -> garbage_collection.Deletion:
        """Delete old chunks that none of them refers to."""
        if self._running is None:
            return self._here.sweep(older_than, dry_run=dry_run)
        tasks = [
            SweepTask(
                repo=self._assets.storage,
                ids=ids,
                lists=tuple((each.path, each.cuts[at], each.cuts[at + 1]) for each in self._lists),
                older_than=older_than,
                dry_run=dry_run,
            )
            for at, ids in enumerate(self._ranges)
        ]
        tell = telling_tasks(self._clock.step, "chunks", len(tasks))
        with describe_jobs("maintain: chunks", self._assets.storage.url):
            found = self._running.run(sweep, tasks, progress=tell)
        return reduce(garbage_collection.Deletion.plus, found, garbage_collection.Deletion())
