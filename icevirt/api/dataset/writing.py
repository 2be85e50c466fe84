"""Write what is planned, look once more at what it was made of, and commit it with one write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any

import numpy as np

from icevirt.amounts import plural
from icevirt.api.dataset.left_out import keep_held
from icevirt.api.dataset.records import HOLDING, is_about, keep_record
from icevirt.api.dataset.replacing import Replacing
from icevirt.api.dataset.scanning import Scan
from icevirt.api.dataset.target import Target
from icevirt.archive.joining import Form
from icevirt.archive.plan import BuildPlan, FileRows, ManifestTask, WriteResult
from icevirt.archive.reports.build import Progress
from icevirt.archive.reports.upkeep import FileHeldBack
from icevirt.archive.sources import LISTING, SourceFile
from icevirt.errors import (
    BuildError,
    ConflictError,
    SourcesChangedError,
)
from icevirt.execution.executor import Executor, describe_jobs, reporter
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import ManifestFile, ManifestRef, Snapshot
from icevirt.objects.source_access import in_force
from icevirt.objects.source_lists.listing import find_changes
from icevirt.planning.records import METADATA
from icevirt.planning.remedies import build_fix
from icevirt.planning.schedule.write_tasks import Route, bundles, drafts, route_of, write_items
from icevirt.planning.schedule.write_tasks import deal_items as dealt_items
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.build_commit import BuildCommit, with_settings
from icevirt.repo.commits.pending_commit import PendingCommit, refuse_collected
from icevirt.repo.layout import chunk, manifest
from icevirt.repo.repo_info_file import RepoState
from icevirt.storage.protocol import NOTHING, Below
from icevirt.tasks.compare_files import TargetTask, look_at_targets
from icevirt.tasks.shuffle import Needs, run_map
from icevirt.tasks.source_values import Reading
from icevirt.tasks.write_manifests import (
    PackedTasks,
    WriteTask,
    read_chunk_ids,
    record_path,
    run_write,
)
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.merge.build_merge import BuiltArray
from icevirt.versioning.repo_updates import Edit
from icevirt.wire.manifests.encoding import ManifestEncoding

_TASKS_PER_SLOT = 4
_SHOWN = 10  # names in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One build: its scan, where it goes, and where it keeps what is finished."""

    build_id: str
    scan: Scan
    target: Target
    record: Below
    led: tuple[str, ...] = ()  # URL prefixes into which references of the files may lead


def write_all(executor: Executor, job: Job, plan: BuildPlan) -> list[WriteResult]:
    """Write every object of the plan that an earlier attempt did not leave."""
    todo = tuple(drafts(plan))
    config = job.target.config

    def task(items: Iterable[Sequence[ManifestTask]]) -> WriteTask:
        return WriteTask(
            parcels=tuple(map(PackedTasks.of, items)),
            catalog=job.scan.catalog,
            repo=job.target.storage,
            record=job.record,
            inline_threshold=config.inline_threshold,
            encoding=ManifestEncoding.of_config(config.document),
            led=job.led,
            named=tuple((each.url_prefix, each.name) for each in plan.containers if each.name),
            reading=Reading.of(job.scan.options, job.scan.limits),
        )

    expected = {record_path(draft.number): draft.expected for draft in todo}

    def look() -> Progress:
        done = [expected[info.path] for info in job.record.list("items") if info.path in expected]
        return Progress(
            phase="write",
            done=len(done),
            total=len(todo),
            unit="manifests",
            references=sum(done),
        )

    watch = reporter(job.scan.progress, look)
    stage = describe_jobs(f"write: {plural(len(todo), 'manifest')}")
    if route_of(plan).kind is Route.direct:
        files = plan.files if plan.origin is not None else FileRows.of(plan.files)
        # made one at a time, for all of them together may be more than a driver can hold
        piles = dealt_items(plan, todo, executor.parallelism)
        tasks = (task(bundles(plan, pile, files)) for pile in piles)
        with stage:
            written = executor.run(run_write, tasks, progress=watch, storage=job.record)
    else:
        needs = Needs()
        for number, item in enumerate(write_items(plan)):
            needs.add(number, item)
        maps = needs.tasks(job.scan.catalog, executor.parallelism * _TASKS_PER_SLOT)
        each = (task([[item]]) for item in write_items(plan))
        with stage:
            written = executor.shuffle(
                run_map, maps, run_write, each, progress=watch, storage=job.record
            )
    return sorted((result for pile in written for result in pile), key=lambda each: each.number)


def refuse_changed_targets(executor: Executor, job: Job, plan: BuildPlan) -> None:
    """Look once more at files that the plan's files refer to.

    Raises:
        SourcesChangedError: Some changed or are gone.
    """
    # the objects of a store were compared with its file, by one listing
    others = np.flatnonzero(~plan.files.etag.begin_with(LISTING.encode()))
    files = FileRows.of(plan.files).take(others)
    if not len(files):
        return
    paths = tuple(
        {
            path
            for array in plan.arrays
            # made of references in any file, not of values beside them
            if array.form is None or (array.form != Form.beside).any()
            for path in array.paths_in_files
        }
    )
    order = np.argsort(files.part, kind="stable")
    cuts = np.flatnonzero(np.diff(files.part[order])) + 1
    tasks = [
        TargetTask(files=files.take(rows), paths=paths, catalog=job.scan.catalog, access=in_force())
        for rows in np.split(order, cuts)
    ]
    with describe_jobs(f"recheck: {plural(len(files), 'file')}"):
        found = executor.run(look_at_targets, tasks, storage=job.record)
    if changed := sum(each.changed for each in found):
        how = {url: text for each in found for url, text in each.how.items()}
        raise SourcesChangedError(
            f"{changed} of {sum(each.looked for each in found)} referenced files changed since the "
            "scan",
            do="Build again when they no longer change (with a new catalog if you keep one); "
            "nothing was committed.",
            files=dict(islice(how.items(), _SHOWN // 2)),
        )


def have_vanished(job: Job, results: Sequence[WriteResult]) -> bool:
    """Say whether objects that were written are not there any more."""
    storage = job.target.storage
    sizes = {info.path: info.size for info in storage.list("manifests")}
    if any(
        sizes.get(manifest(ObjectId12(result.manifest_id))) != result.size_bytes
        for result in results
        if result.manifest_id is not None
    ):
        return True
    stored = [result for result in results if any(w.references.native for w in result.windows)]
    if not stored:
        return False
    chunks = {info.path for info in storage.list("chunks")}
    return any(
        chunk(ObjectId12(key)) not in chunks
        for result in stored
        for key in read_chunk_ids(job.record, result.number)
    )


def refuse_losses(plan: BuildPlan, results: list[WriteResult]) -> None:
    """Compare what was written with what was scanned, array by array.

    Raises:
        BuildError: References are missing.
    """
    written: Counter[bytes] = Counter()
    for result in results:
        for window in result.windows:
            written[window.node_id] += window.references.total + window.replaced
    for array in plan.arrays:
        if written[bytes(array.node_id)] != array.expected:
            raise BuildError(
                f"references of {array.path} were lost between scan and commit",
                do="Delete the catalog and build again; nothing was committed.",
                variable=array.path,
                scanned=array.expected,
                written=written[bytes(array.node_id)],
            )


def refuse_changed(files: Sequence[SourceFile]) -> None:
    """Look at the sources once more.

    Raises:
        SourcesChangedError: Some changed or are gone.
    """
    if changed := find_changes(files):
        raise SourcesChangedError(
            f"{len(changed)} of {len(files)} files changed since the scan",
            fixes=[
                build_fix("scans them again, a few times", commit_options={"rescan_changed": True})
            ],
            do="You can also build again when they no longer change; nothing was committed.",
            files=dict(islice(changed.items(), _SHOWN)),
        )


def commit(
    replacing: Replacing,
    arrays: Mapping[str, BuiltArray],
    files: Sequence[ManifestFile],
    *,
    message: str | None,
    metadata: Mapping[str, Any],
    allow_changes: bool,
    expected: Collection[str] = (),
    goes_on: bool = False,
    check: Callable[[str], None] | None = None,
) -> str:
    """Make written arrays visible in one step; return the id of the snapshot.

    A build that goes on from the files of a dataset must not pass over any commit about it, also
    one that changes no node: which files are held back, or where they lie now.

    Raises:
        ConflictError: Others changed the dataset meanwhile.
        PlanChangedError: What would stay has other labels now.
    """
    target, plan = replacing.target, replacing.plan
    replacing = replacing.mark_relabelled(arrays)
    replacing.refuse_losses(allowed=allow_changes, expected=expected)
    keep_record(target.storage, metadata[METADATA], groups=plan.groups, arrays=arrays)
    return BuildCommit(
        storage=target.storage,
        branch=target.branch,
        message=message or f"Build from {plural(len(plan.files), 'file')}",
        metadata=metadata,
        groups=plan.groups,
        arrays=arrays,
        manifest_files=files,
        claim=replacing.claim,
        containers=plan.containers,
        split_rules=plan.split_rules,
        expected_parent=str(target.tip),
        stands_on=(lambda each: is_about(each, target.group)) if goes_on else None,
        check=check,
    ).publish()


def arrays_of(plan: BuildPlan, results: Iterable[WriteResult]) -> dict[str, BuiltArray]:
    """Return the arrays of a plan with the manifests that were written, by path."""
    manifests = manifests_of(plan, results)
    return {
        array.path: BuiltArray(array.zarr_json, array.node_id, manifests[array.node_id])
        for array in plan.arrays
    }


def manifests_of(
    plan: BuildPlan, results: Iterable[WriteResult]
) -> dict[ObjectId8, list[ManifestRef]]:
    """Return the manifests that were written for each array of a plan."""
    found: dict[ObjectId8, list[ManifestRef]] = {array.node_id: [] for array in plan.arrays}
    for result in results:
        for window in (each for each in result.windows if not each.is_empty):
            key = ObjectId12(result.manifest_id or b"")
            ref = ManifestRef(object_id=key, extents=window.extents)
            found[ObjectId8(window.node_id)].append(ref)
    return found


def files_of(results: Iterable[WriteResult]) -> list[ManifestFile]:
    """Return what was written as snapshots list it."""
    return [
        ManifestFile(
            id=ObjectId12(result.manifest_id),
            size_bytes=result.size_bytes,
            num_chunk_refs=result.num_chunk_refs,
        )
        for result in results
        if result.manifest_id is not None
    ]


def publish_rewrite(
    target: Target,
    assets: Assets,
    rewrite: PendingCommit,
    *,
    own: Collection[str],
    containers: Sequence[VirtualChunkContainer],
    fits: Callable[[Snapshot], bool] = lambda _: True,
    objects: Mapping[str, bytes] = NOTHING,
    ready: Callable[[], None] = lambda: None,
    check: Callable[[str], None] | None = None,
) -> str:
    """Commit a rewrite of a dataset, however often others commit to other groups meanwhile.

    Args:
        target: Of the commit.
        assets: Writes the snapshot.
        rewrite: What to commit.
        own: Paths of the nodes that it stands on.
        containers: That the repository may lack.
        fits: Says whether it fits to what others put beside these nodes.
        objects: That the snapshot refers to, by path; they are written beside it.
        ready: Waits until all else is written that it refers to.
        check: Is given the snapshot while it is on no branch, and raises if it must not get on one.

    Raises:
        ConflictError: Others changed the dataset.
        BuildError: Garbage was collected while the snapshot was checked.
        StorageError: Others changed the repository before every attempt.
    """
    held = HeldObjects(assets.storage)
    for path, raw in objects.items():
        held.put(path, raw)
    is_detached, made = check is not None, dict[ObjectId12, Snapshot]()
    verified: str | None = None

    def decide(current: RepoState) -> tuple[str, Sequence[Edit]]:
        nonlocal rewrite
        if not is_detached:
            refuse_collected(current.info, verified)
        tip = lookup.branch_tip(current.info, target.branch)
        if tip != rewrite.base.id:
            now = assets.snapshot(tip)
            if _is_another(target, current.info, rewrite.base, now, own) or not fits(now):
                raise ConflictError(
                    "the branch moved meanwhile",
                    do="Do the same again, on what was committed.",
                    branch=target.branch,
                    planned_on=str(rewrite.base.id),
                    ours=rewrite.message,
                    theirs=repo_updates.line_of(now),
                )
            rewrite = rewrite.move_onto(now)
        if (snapshot := made.get(tip)) is None:
            snapshot = made[tip] = rewrite.write(target.head, assets, held)
        ready()
        settings = partial(with_settings, containers=containers, split_rules=())
        commit = rewrite.edit(snapshot, is_detached=is_detached)
        return str(snapshot.id), (repo_updates.set_config(settings), commit)

    do = "Do the same again when fewer processes write."
    if check is not None:
        verified = target.head.publish(decide, do=do, held=held, known=target.state)[0]
        check(verified)
        is_detached = False
        return target.head.publish(decide, do=do, held=held)[0]
    return target.head.publish(decide, do=do, held=held, known=target.state)[0]


def _is_another(
    target: Target, info: RepoInfo, base: Snapshot, now: Snapshot, own: Collection[str]
) -> bool:
    """Say whether a dataset is not what it was: a branch went elsewhere, or others changed it."""
    since = [*takewhile(lambda each: each.id != base.id, lookup.ancestry(info, now.id))]
    is_reset = base.id not in info.snapshots or base.id not in {each.parent_id for each in since}
    is_ours = any(is_about(each, target.group) for each in since)
    return is_reset or is_ours or any(base.find(path) != now.find(path) for path in own)


def commit_held(target: Target, files: Sequence[FileHeldBack]) -> str:
    """Commit which files are held back, and nothing else; return the id of the snapshot.

    Raises:
        ConflictError: Others changed the dataset meanwhile.
    """
    base, held = target.snapshot(), keep_held(target.storage, files) if files else ""
    rewrite = PendingCommit(
        base=base,
        branch=target.branch,
        message=f"Hold back {plural(len(files), 'file')}",
        nodes=base.nodes,
        written={},
        metadata={HOLDING: {"group": target.group, "held": held}},
    )
    return publish_rewrite(target, target.assets, rewrite, own=(), containers=())
