"""Recheck what was written and the sources, commit the build with one write, and promote it.

The branch that readers use moves by a conditional write, and only forward: from a snapshot that the
new one descends from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from shlex import quote
from typing import Any

from icevirt.api.pipeline.build_records import keep_record
from icevirt.api.pipeline.provenance import METADATA, is_about
from icevirt.api.pipeline.replacing import Replacing
from icevirt.api.pipeline.target import Target
from icevirt.archive.plan import BuildPlan, WriteResult
from icevirt.archive.reports.build import BuildReport
from icevirt.archive.reports.card import plural
from icevirt.archive.scanned import SourceFile
from icevirt.errors import (
    BuildError,
    ConflictError,
    SourcesChangedError,
    UnauthorizedError,
    VerificationError,
)
from icevirt.execution.selection import ExecutorChoice
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import ManifestFile, ManifestRef, Snapshot
from icevirt.objects.source_lists.listing import changed_since
from icevirt.planning.remedies import build_fix
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.build_commit import BuiltArray, publish, with_settings
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.repo_info_file import RepoState
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.repo_updates import Edit

_SHOWN = 10  # names in a message


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
    if changed := changed_since(files):
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
) -> str:
    """Make written arrays visible in one step; return the id of the snapshot.

    Raises:
        PlanChangedError: What would stay has other labels now.
    """
    target, plan = replacing.target, replacing.plan
    replacing = replacing.relabelled(arrays)
    replacing.refuse_losses(allowed=allow_changes, expected=expected)
    keep_record(target.storage, metadata[METADATA], groups=plan.groups, arrays=arrays)
    return publish(
        target.storage,
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
    )


def arrays_written(plan: BuildPlan, results: Iterable[WriteResult]) -> dict[str, BuiltArray]:
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


def files_written(results: Iterable[WriteResult]) -> list[ManifestFile]:
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
    ready: Callable[[], None] = lambda: None,
) -> str:
    """Commit a rewrite of a dataset, however often others commit to other groups meanwhile.

    Args:
        target: Of the commit.
        assets: Writes the snapshot.
        rewrite: What to commit.
        own: Paths of the nodes that it stands on.
        containers: That the repository may lack.
        fits: Says whether it fits to what others put beside these nodes.
        ready: Waits until all is written that the snapshot refers to.

    Raises:
        ConflictError: Others changed the dataset.
        StorageError: Others changed the repository before every attempt.
    """
    held = HeldObjects(assets.storage)

    def decide(current: RepoState) -> tuple[str, Sequence[Edit]]:
        nonlocal rewrite
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
            rewrite = rewrite.moved_onto(now)
        snapshot, commit = rewrite.put(target.head, assets, held)
        ready()
        settings = partial(with_settings, containers=containers, split_rules=())
        return str(snapshot.id), (repo_updates.set_config(settings), commit)

    do = "Do the same again when fewer processes write."
    return target.head.publish(decide, do=do, held=held, known=target.state)[0]


def _is_another(
    target: Target, info: RepoInfo, base: Snapshot, now: Snapshot, own: Collection[str]
) -> bool:
    """Say whether a dataset is not what it was: a branch went elsewhere, or others changed it."""
    since = [*takewhile(lambda each: each.id != base.id, lookup.ancestry(info, now.id))]
    is_reset = base.id not in info.snapshots or base.id not in {each.parent_id for each in since}
    is_ours = any(is_about(each, target.group) for each in since)
    return is_reset or is_ours or any(base.find(path) != now.find(path) for path in own)


def prepare(storage: Storage, branch: str, promote: str) -> None:
    """Make repository and branch where they are not there; the branch begins at ``promote``.

    Raises:
        RefNotFoundError: There is no branch ``promote``.
    """
    repo = Repository.open_or_create(storage)
    tip = repo.lookup_branch(promote)
    if branch not in repo.list_branches():
        repo.create_branch(branch, tip)


def refuse_differences[Report: BuildReport](
    storage: Storage,
    report: Report,
    *,
    values: int,
    executor: ExecutorChoice,
) -> Report:
    """Hold the new snapshot against its files, if its report may open them; else say so in it.

    Raises:
        VerificationError: Something differs; the snapshot stays on its branch, to be looked at.
    """
    from icevirt.api.verify import verify  # and zarr with it, which no other build should wait for

    try:
        found = verify(
            storage,
            snapshot_id=report.snapshot_id,
            references=True,
            values=values,
            authorize_virtual_chunk_access=report.opening.authorization,
            executor=executor,
        )
    except UnauthorizedError as error:  # the dataset has files elsewhere than the call names
        places = error.facts.get("containers", ())
        flags = "".join(f" --authorize {quote(each)}" for each in places)
        note = (
            f"not verified: the dataset also refers to files below {', '.join(places)}, which this"
            f" call did not name; if you trust them: icevirt verify {quote(storage.url)}"
            f" --snapshot-id {report.snapshot_id}{flags}, with the places of your own files"
        )
        return replace(report, findings=(*report.findings, note))
    if not found.ok:
        first = found.checked.differences[0]
        raise VerificationError(
            f"{len(found.checked.differences) + found.checked.more} differences between the new"
            f" snapshot and its files; the first: {first.what}",
            do="Look at all of them with `icevirt verify --snapshot-id"
            f" {report.snapshot_id} --seed {found.seed}`.",
            branch=report.branch,
            snapshot=report.snapshot_id,
            file=first.file,
            variable=first.array,
        )
    return report


def promoted(storage: Storage, report: BuildReport, promote: str) -> None:
    """Move the branch to the new snapshot.

    Raises:
        ConflictError: The branch holds commits that the new snapshot does not descend from.
    """
    repo = Repository.open(storage)
    tip = repo.lookup_branch(promote)
    if tip == report.snapshot_id:
        return
    if all(each.id != tip for each in repo.ancestry(snapshot_id=report.snapshot_id)):
        raise ConflictError(
            f"branch {promote!r} holds commits that the new snapshot does not descend from",
            do=f"Build again from a branch that begins at the tip of {promote!r}; the build is on"
            f" branch {report.branch!r}.",
            snapshot=report.snapshot_id,
            tip=tip,
        )
    repo.reset_branch(promote, report.snapshot_id, from_snapshot_id=tip)
