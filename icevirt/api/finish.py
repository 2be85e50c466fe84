"""Do what calls do around a transaction: prepare a branch, verify, and promote."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from icevirt.api.events import Clock
from icevirt.archive.reports.build import BuildReport
from icevirt.errors import (
    ConflictError,
    UnauthorizedError,
    VerificationError,
)
from icevirt.execution.selection import ExecutorChoice
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


def refuse_differences[Report: BuildReport](
    storage: Storage, report: Report, *, values: int | None, executor: ExecutorChoice, clock: Clock
) -> Report:
    """Hold the new snapshot against its files, if its report may open them; else say so in it.

    Args:
        storage: Of the repository.
        report: Of what was committed.
        values: How many chunks are compared; None: nothing is.
        executor: Runs the tasks.
        clock: Times the phase.

    Raises:
        VerificationError: Something differs; the snapshot stays on its branch, to be looked at.
    """
    if values is None:
        return report
    from icevirt.api.verify import verify  # and zarr with it, which no other build should wait for

    try:
        with clock.phase("verify"):
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


def promote_branch(storage: Storage, report: BuildReport, promote: str) -> None:
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
