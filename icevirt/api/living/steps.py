"""Do what an update decided: scan, find out what fits, and commit it, or plan it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

from icevirt.api.growth.flat import FEW, NotFlat, flat_append
from icevirt.api.living.differences import (
    is_named,
)
from icevirt.api.living.trial import (
    MISFITS,
    UNTRIED,
    Trial,
    any_described,
    held_of,
    is_misfit,
    kinds,
    misfits,
    same_layout,
    scanned,
    tried,
)
from icevirt.api.living.work import Fixed, UpdateWork, recorded_ends, same
from icevirt.api.pipeline import held_back
from icevirt.api.pipeline.build_steps import ExecutorStarter, until_unchanged
from icevirt.api.pipeline.events import Clock, tell_committed
from icevirt.api.pipeline.replacing import OF_OTHERS
from icevirt.archive.reports.build import BuildReport
from icevirt.archive.reports.update import FileHeldBack, UpdateReport
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.errors import IcevirtError, InvalidInputError, PlanChangedError, ScanError
from icevirt.execution.executor import Executor
from icevirt.planning.remedies import of_arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSteps:
    """The steps of an update."""

    work: UpdateWork

    def done(self, starter: ExecutorStarter, clock: Clock) -> UpdateReport:
        """Scan, find out what fits, and commit it.

        Raises:
            PlanChangedError: What others did would be undone; nothing was changed.
        """
        try:
            return self._done(starter, clock)
        except PlanChangedError as error:
            if OF_OTHERS not in error.facts:
                raise
            error.fixes = (
                of_arguments({"drop_others": True}, "removes that; older snapshots keep it"),
            )
            raise

    def _done(self, starter: ExecutorStarter, clock: Clock) -> UpdateReport:
        quick = self._appended(clock)
        if isinstance(quick, UpdateReport):
            return quick
        count, held = self._scanned(starter, clock)
        count += quick.scanned
        made = self._without_plan(held, clock)
        if made is not None:
            return replace(made, files_scanned=count)
        if self.work.refused_before(held):
            # most likely they are refused again
            with clock.phase("plan"), suppress(ScanError):
                held = (*held, *self._misfits(held, starter))
        if not self.work.differs(held):
            return self._nothing(held, clock)
        if self.work.call.dry_run:
            return self._planned(held, starter, clock)
        try:
            report = self._committed(held, starter, clock)
        except MISFITS as error:
            if not self.work.left(held) or not is_misfit(error):
                raise
            with clock.phase("plan"):
                try:
                    held = (*held, *self._misfits(held, starter))
                except ScanError:  # of what the dataset holds: no catalog describes it any more
                    raise error from None
            if not self.work.differs(held):
                return self._nothing(held, clock)
            report = self._committed(held, starter, clock)
        return replace(report, files_scanned=report.files_scanned + count)

    def _scanned(
        self, starter: ExecutorStarter, clock: Clock
    ) -> tuple[int, tuple[FileHeldBack, ...]]:
        """Scan the candidates; return how many were scanned, and which are bad."""
        candidates = self.work.found.candidates
        if not candidates:
            return 0, ()
        executor = starter.start(SourceFiles(candidates), self.work.request.storage)
        with clock.phase("scan"):
            again = [file for file in candidates if is_named(file.url, self.work.call.rescan)]
            count, bad = scanned(executor, self.work.request, candidates, again)
            self.work.alike.update(self._same_layout(executor))
        return count, tuple(held_of(candidates, bad))

    def _without_plan(self, held: tuple[FileHeldBack, ...], clock: Clock) -> UpdateReport | None:
        """Do what takes no plan of all files: nothing, or an append behind the last step."""
        refused = self.work.refused_before(held)
        if refused and not self.work.differs((*held, *refused)) and self.work.is_as_tried:
            return self._nothing((*held, *refused), clock)  # as they are, they are refused again
        return self._appended_scanned(held, refused, clock)

    def _appended_scanned(
        self, held: Sequence[FileHeldBack], refused: Sequence[FileHeldBack], clock: Clock
    ) -> UpdateReport | None:
        """Append files behind the last step that were scanned, whatever else is held back.

        Those that did not fit before are tried with the others, and left out if that fails.
        """
        if self.work.call.dry_run or self.work.is_more_than_new:
            return None
        for out in ((*held,), (*held, *refused)) if refused else ((*held,),):
            accepted = self.work.left(out)
            if not accepted or self.work.superseded(accepted):
                return None
            report = self.work.report(out)
            made = flat_append(
                self.work.committing(report, out),
                accepted,
                target=self.work.target,
                clock=clock,
                scanned_before=True,
            )
            if not isinstance(made, NotFlat):
                return self._with(report, made)
        return None

    def _appended(self, clock: Clock) -> UpdateReport | NotFlat:
        """Append a few files behind the last step, if nothing else is to be done."""
        found = self.work.found
        is_more = (
            self.work.removed
            or self.work.absent
            or self.work.bad
            or self.work.before
            or found.corrected
        )
        is_few = 0 < len(found.added) <= FEW
        if self.work.call.dry_run or is_more or not is_few or self.work.superseded(found.added):
            return NotFlat("there is more to be done than to append a few files")
        if any_described(self.work.request, found.added):
            return NotFlat("files were scanned before")
        report = self.work.report(())
        request = self.work.committing(report, ())
        made = flat_append(request, found.added, target=self.work.target, clock=clock)
        return made if isinstance(made, NotFlat) else self._with(report, made)

    def _misfits(
        self, held: Sequence[FileHeldBack], starter: ExecutorStarter
    ) -> list[FileHeldBack]:
        """Return the candidates that the dataset cannot hold."""
        refused = {each.url for each in self.work.before if each.code != UNTRIED}
        left = sorted(self.work.left(held), key=lambda file: file.url in refused)
        executor = starter.start(SourceFiles(left), self.work.request.storage)

        def fits(accepted: Sequence[SourceFile]) -> IcevirtError | None:
            try:
                tried(executor, self.work.request, self.work.files(accepted), self.work.target)
            except MISFITS as error:
                if not is_misfit(error):
                    raise
                return error
            return None

        return misfits(kinds(self.work.request, left), fits)

    def _committed(
        self, held: Sequence[FileHeldBack], starter: ExecutorStarter, clock: Clock
    ) -> UpdateReport:
        accepted = self.work.left(held)
        files = self.work.files(accepted)
        if not files:
            raise InvalidInputError(
                "no file of the dataset is left",
                do="Check that the archive is there; delete the dataset by hand if it is to go.",
                repo=self.work.call.storage.url,
            )
        report = self.work.report(held)
        request = self.work.committing(report, held, held=self.work.held(accepted, files))
        return self._with(report, until_unchanged(request, Fixed(files), starter, clock))

    def _tried(self, executor: Executor, held: Sequence[FileHeldBack]) -> Trial:
        work = self.work
        return tried(executor, work.request, work.files(work.left(held)), work.target)

    def _planned(
        self, held: tuple[FileHeldBack, ...], starter: ExecutorStarter, clock: Clock
    ) -> UpdateReport:
        executor = starter.start(SourceFiles(self.work.found.candidates), self.work.request.storage)
        with clock.phase("plan"):
            try:
                trial = tried(
                    executor,
                    self.work.request,
                    self.work.files(self.work.left(held)),
                    self.work.target,
                )
            except MISFITS as error:
                if not self.work.left(held) or not is_misfit(error):
                    raise
                held = (*held, *self._misfits(held, starter))
                trial = tried(
                    executor,
                    self.work.request,
                    self.work.files(self.work.left(held)),
                    self.work.target,
                )
        report = self.work.report(held)
        return replace(report, plan=trial.plan, ends=self.work.ends(trial.ends))

    def _nothing(self, held: tuple[FileHeldBack, ...], clock: Clock) -> UpdateReport:
        """Return the report where nothing is committed, but perhaps what is held back."""
        report = self.work.report(held)
        if self.work.call.dry_run or same(held, self.work.before):
            return report
        with clock.phase("commit"):
            snapshot_id = held_back.commit_held(self.work.target, held)
        return replace(report, snapshot_id=snapshot_id)

    def _with(self, report: UpdateReport, made: BuildReport) -> UpdateReport:
        """Return the report of an update with what was committed."""
        tell_committed(made)
        values = {each.name: getattr(made, each.name) for each in fields(BuildReport)}
        return replace(report, **values, ends=self.work.ends(recorded_ends(self.work.call)))

    def _same_layout(self, executor: Executor) -> frozenset[str]:
        """Return which of the corrected files are described as before they changed."""
        now = [
            f
            for f in self.work.found.corrected
            if f.url not in self.work.bad and f.url not in self.work.absent
        ]
        held = {file.url: file for file in self.work.listing.files} if now else {}
        return same_layout(executor, self.work.request, [held[file.url] for file in now], now)
