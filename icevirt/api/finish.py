"""Do what calls do around a transaction: prepare a branch, verify, and promote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote

from icevirt.api.commit_options import CommitOptions
from icevirt.api.dataset.transaction import ExecutorStarter
from icevirt.api.events import Clock
from icevirt.api.trust.readable_places import own_or_planned
from icevirt.archive.reports.build import BuildReport
from icevirt.errors import (
    ConflictError,
    UnauthorizedError,
    VerificationError,
)
from icevirt.objects.authorize import Prefix, entry_of
from icevirt.objects.source_access import in_force
from icevirt.repo.made_here import identify
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotVerification:
    """Holds a new snapshot against its files before it gets on a branch.

    Args:
        storage: Of the repository.
        branch: That the snapshot is for.
        values: How many chunks are compared.
        places: Returns what the caller named, URLs that end in a slash; a list says what it names
            once it was read.
        starter: Starts what runs tasks.
        clock: Times the phase.
        notes: What there is to say in the report.
    """

    storage: Storage
    branch: str
    values: int
    places: Callable[[], Iterable[str]]
    starter: ExecutorStarter
    clock: Clock
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        commit: CommitOptions,
        storage: Storage,
        *,
        places: Callable[[], Iterable[str]],
        starter: ExecutorStarter,
        clock: Clock,
    ) -> SnapshotVerification | None:
        """Return the verification that a commit is to pass, if any."""
        if commit.verify is None:
            return None
        return cls(
            storage=storage,
            branch=commit.branch,
            values=commit.verify,
            places=lambda: (*places(), *commit.places),
            starter=starter,
            clock=clock,
        )

    def __call__(
        self, snapshot_id: str, *, planned: Collection[Prefix], scanners: Mapping[str, str]
    ) -> None:
        """Compare; where the dataset has files elsewhere than the call names, say so in a note.

        Args:
            snapshot_id: On a branch or not.
            planned: Prefixes that the call refers to.
            scanners: That describe files, by group; of other groups those that are recorded.

        Raises:
            VerificationError: Something differs.
        """
        # and zarr with it, which no other build should wait for
        from icevirt.api.verify import verify_snapshot

        known = Repository.open(self.storage).config.virtual_chunk_containers.values()
        entries = own_or_planned(
            map(entry_of, known),
            planned=planned,
            places=self.places(),
            repo=identify(self.storage),
        )
        try:
            with self.clock.phase("verify"):
                found = verify_snapshot(
                    self.storage,
                    snapshot_id,
                    values=self.values,
                    access=in_force().authorization(entries),
                    scanners=scanners,
                    executor=self.starter.choice,
                )
        except UnauthorizedError as error:
            self.notes.append(self._note_on(error, snapshot_id))
            return
        if not found.ok:
            first = found.checked.differences[0]
            raise VerificationError(
                f"{len(found.checked.differences) + found.checked.more} differences between the new"
                f" snapshot and its files; the first: {first.what}",
                do=f"The branch {self.branch!r} is as it was. Look at all differences with"
                f" `{self._command(snapshot_id, entries, scanners)} --seed {found.seed}`.",
                branch=self.branch,
                snapshot=snapshot_id,
                file=first.file,
                variable=first.array,
            )

    def _command(
        self, snapshot_id: str, entries: Iterable[Prefix], scanners: Mapping[str, str]
    ) -> str:
        """Return the command that looks at the same again."""
        places = [each if isinstance(each, str) else each[0] for each in entries]
        words = ["icevirt", "verify", self.storage.url, "--snapshot-id", snapshot_id]
        words += ["--references", "--values", str(self.values)]
        words += [word for each in places for word in ("--authorize", each)]
        words += [word for each in {*scanners.values()} - {""} for word in ("--scanner", each)]
        return " ".join(map(quote, words))

    def _note_on(self, error: UnauthorizedError, snapshot_id: str) -> str:
        places = error.facts.get("containers", ())
        flags = "".join(f" --authorize {quote(each)}" for each in places)
        return (
            f"not verified: the dataset also refers to files below {', '.join(places)}, which this"
            f" call did not name; if you trust them: icevirt verify {quote(self.storage.url)}"
            f" --snapshot-id {snapshot_id}{flags}, with the places of your own files"
        )


def add_notes[R: BuildReport](report: R, verification: SnapshotVerification | None) -> R:
    """Return a report with what a verification has to say."""
    if verification is None or not verification.notes:
        return report
    return replace(report, findings=(*report.findings, *dict.fromkeys(verification.notes)))


def promote_branch(
    storage: Storage, report: BuildReport, promote: str, verification: SnapshotVerification | None
) -> None:
    """Move the branch to the new snapshot.

    Raises:
        VerificationError: It was to be verified, and could not be.
        ConflictError: The branch holds commits that the new snapshot does not descend from.
    """
    repo = Repository.open(storage)
    tip = repo.lookup_branch(promote)
    if verification is not None and verification.notes:
        note = verification.notes[-1]
        reset = ["icevirt", "reset", storage.url, report.snapshot_id, "--branch", promote]
        raise VerificationError(
            f"the snapshot on {report.branch!r} was {note}",
            do=f"The branch {promote!r} is as it was. If all is well, move it:"
            f" `{' '.join(map(quote, reset))} --expect {tip}`.",
            branch=promote,
            snapshot=report.snapshot_id,
        )
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
