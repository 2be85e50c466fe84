"""Stage a build on its own branch, check it, and promote it in one step.

The branch that readers use moves by a conditional write, and only forward: from a snapshot that the
new one descends from.
"""

from __future__ import annotations

from icevirt.archive.reports.build import BuildReport
from icevirt.errors import ConflictError, VerificationError
from icevirt.execution.selection import ExecutorChoice
from icevirt.objects.source_access import in_force
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage


def prepare(storage: Storage, branch: str, promote: str) -> None:
    """Make repository and branch where they are not there; the branch begins at ``promote``.

    Raises:
        RefNotFoundError: There is no branch ``promote``.
    """
    repo = Repository.open_or_create(storage)
    tip = repo.lookup_branch(promote)
    if branch not in repo.list_branches():
        repo.create_branch(branch, tip)


def refuse_differences(
    storage: Storage,
    report: BuildReport,
    *,
    values: int,
    executor: ExecutorChoice,
) -> None:
    """Hold the new snapshot against its files.

    Raises:
        VerificationError: Something differs; the snapshot stays on its branch, to be looked at.
    """
    from icevirt.api.verify import verify  # and zarr with it, which no other build should wait for

    found = verify(
        storage,
        snapshot_id=report.snapshot_id,
        references=True,
        values=values,
        authorize_virtual_chunk_access=in_force().authorization(report.containers),
        executor=executor,
    )
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
