"""Do what an update decided: scan, find out what fits, and commit it, or plan it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from icevirt.amounts import plural
from icevirt.api.dataset import transaction
from icevirt.api.dataset.differences import is_named
from icevirt.api.dataset.events import Clock, tell_committed
from icevirt.api.dataset.flat import FEW, NotFlat, flat_append
from icevirt.api.dataset.records import METADATA, digest_of, keep_recipe
from icevirt.api.dataset.replacing import OF_OTHERS, Carried
from icevirt.api.dataset.tail import describe_ends, ends_of, tail_of, write_tail
from icevirt.api.dataset.transaction import (
    ExecutorStarter,
    facts_of,
    until_unchanged,
    without_record,
    write_and_check,
)
from icevirt.api.dataset.trial import (
    MISFITS,
    UNTRIED,
    Trial,
    hold_back,
    is_misfit,
    kinds,
    misfits,
    plan_dataset,
    same_layout,
    scan_files_of,
    try_files,
)
from icevirt.api.dataset.update_work import UpdateWork, look, same
from icevirt.api.dataset.writing import (
    Job,
    arrays_of,
    commit_held,
    files_of,
    publish_rewrite,
)
from icevirt.api.storing import StoredArrays, StoringAgain
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import BadFile, BuildReport
from icevirt.archive.reports.upkeep import FileHeldBack, UpdateReport
from icevirt.archive.scanned import SourceFile, SourceFiles
from icevirt.errors import (
    IcevirtError,
    InvalidInputError,
    PlanChangedError,
    ScanError,
    SourcesChangedError,
)
from icevirt.execution.executor import Executor
from icevirt.ids import ObjectId8
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.objects.source_lists.listing import find_changes
from icevirt.planning.lengthened import decision_of
from icevirt.planning.remedies import build_fix, of_arguments
from icevirt.repo.assets import Assets
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.settings import as_json
from icevirt.versioning.merge.build_merge import array_of


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
        quick = self._append_few(clock)
        if isinstance(quick, UpdateReport):
            return quick
        count, held = self._scan(starter, clock)
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
            return self._plan(held, starter, clock)
        try:
            report = self._commit(held, starter, clock)
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
            report = self._commit(held, starter, clock)
        return replace(report, files_scanned=report.files_scanned + count)

    def _scan(self, starter: ExecutorStarter, clock: Clock) -> tuple[int, tuple[FileHeldBack, ...]]:
        """Scan the candidates; return how many were scanned, and which are bad."""
        candidates = self.work.found.candidates
        if not candidates:
            return 0, ()
        executor = starter.start(SourceFiles(candidates), self.work.request.storage)
        with clock.phase("scan"):
            again = [file for file in candidates if is_named(file.url, self.work.call.rescan)]
            count, bad = scan_files_of(executor, self.work.request, candidates, again)
            self.work.alike.update(self._same_layout(executor))
        return count, tuple(hold_back(candidates, bad))

    def _without_plan(self, held: tuple[FileHeldBack, ...], clock: Clock) -> UpdateReport | None:
        """Do what takes no plan of all files: nothing, or an append behind the last step."""
        refused = self.work.refused_before(held)
        if refused and not self.work.differs((*held, *refused)) and self.work.is_as_tried:
            return self._nothing((*held, *refused), clock)  # as they are, they are refused again
        return self._append_scanned(held, refused, clock)

    def _append_scanned(
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

    def _append_few(self, clock: Clock) -> UpdateReport | NotFlat:
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
        if (self.work.request.scan(found.added).settled().part >= 0).any():
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
                try_files(executor, self.work.request, self.work.files(accepted), self.work.target)
            except MISFITS as error:
                if not is_misfit(error):
                    raise
                return error
            return None

        return misfits(kinds(self.work.request, left), fits)

    def _commit(
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
        return self._with(report, until_unchanged(request, lambda: files, starter, clock))

    def _plan(
        self, held: tuple[FileHeldBack, ...], starter: ExecutorStarter, clock: Clock
    ) -> UpdateReport:
        work = self.work
        executor = starter.start(SourceFiles(work.found.candidates), work.request.storage)

        def attempt() -> Trial:
            return try_files(executor, work.request, work.files(work.left(held)), work.target)

        with clock.phase("plan"):
            try:
                trial = attempt()
            except MISFITS as error:
                if not work.left(held) or not is_misfit(error):
                    raise
                held = (*held, *self._misfits(held, starter))
                trial = attempt()
        return replace(work.report(held), plan=trial.plan, ends=work.ends(trial.ends))

    def _nothing(self, held: tuple[FileHeldBack, ...], clock: Clock) -> UpdateReport:
        """Return the report where nothing is committed, but perhaps what is held back."""
        report = self.work.report(held)
        if self.work.call.dry_run or same(held, self.work.before):
            return report
        with clock.phase("commit"):
            snapshot_id = commit_held(self.work.target, held)
        return replace(report, snapshot_id=snapshot_id)

    def _with(self, report: UpdateReport, made: BuildReport) -> UpdateReport:
        """Return the report of an update with what was committed."""
        tell_committed(made)
        return replace(
            report, **facts_of(made), ends=self.work.ends(look(self.work.call)[1].get("ends") or {})
        )

    def _same_layout(self, executor: Executor) -> frozenset[str]:
        """Return which of the corrected files are described as before they changed."""
        now = [
            f
            for f in self.work.found.corrected
            if f.url not in self.work.bad and f.url not in self.work.absent
        ]
        held = {file.url: file for file in self.work.listing.files} if now else {}
        return same_layout(executor, self.work.request, [held[file.url] for file in now], now)


_SHOWN = 5  # names in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesWork:
    """The variables that an update makes anew, and what it stands on."""

    work: UpdateWork
    base: Snapshot  # what the branch holds
    paths: tuple[str, ...]  # of the variables
    files: SourceFiles  # that are read
    carried: Carried

    @classmethod
    def begun(cls, work: UpdateWork) -> VariablesWork:
        """Look for the variables, and whether all files are as they were.

        Raises:
            InvalidInputError: The dataset has no such variable.
            SourcesChangedError: Files changed, or are gone.
            PlanChangedError: Others changed one of these variables.
        """
        target = work.target
        base, carried = target.snapshot(), Carried.of(target)
        own = [path for path, node in carried.made.items() if isinstance(node, ArrayNode)]
        there = {path for path in own if base.find(path) is not None}
        paths = tuple(dict.fromkeys(_find_paths(work.call.variables, there, target.group)))
        if taken := {path: carried.edited[path] for path in paths if path in carried.edited}:
            raise PlanChangedError(
                "others changed what would be made anew: "
                + "; ".join(f"{path} ({what})" for path, what in taken.items()),
                fixes=[
                    build_fix(
                        "makes the whole dataset anew; older snapshots keep what others changed",
                        mode="w",
                        commit_options={"allow_changes": True},
                    )
                ],
                group=target.group,
            )
        files = SourceFiles(
            file
            for file in work.listing.files
            if file.url not in work.absent and file.url not in work.bad
        )
        if changed := find_changes(files):
            raise SourcesChangedError(
                f"{plural(len(changed), 'file')} of the dataset changed since the last update",
                do="Update the dataset first, without variables; nothing was changed.",
                first=dict([*changed.items()][:_SHOWN]),
            )
        return cls(work=work, base=base, paths=paths, files=files, carried=carried)

    def done(self, starter: ExecutorStarter, clock: Clock) -> UpdateReport:
        """Scan, plan and commit.

        Raises:
            ScanError: Files cannot be scanned any more; nothing was changed.
            PlanChangedError: A variable would have another shape, or is in no file any more.
        """
        work = self.work
        request, patterns = work.request, work.call.rescan
        again = [f for f in self.files if not patterns or is_named(f.url, patterns)]
        report = replace(
            work.report(()),
            variables=self.paths,
            files_rescanned=len(again),
            findings=(f"only these are made anew, from {plural(len(self.files), 'file')}",),
        )
        if work.call.dry_run:
            size = sum(file.size for file in again)
            note = f"{plural(len(again), 'file')} would be scanned again, {size:,} bytes in all"
            return replace(report, findings=(*report.findings, note))
        executor = starter.start(self.files, request.storage)
        with clock.phase("scan"):
            count, bad = scan_files_of(executor, request, self.files, again)
            _refuse_bad(bad)
        with clock.phase("plan"):
            planned = plan_dataset(
                executor, request, work.listing.files, work.target, str(work.record["build_id"])
            )
            facts = planned.facts
            whole, moved = request.publish_plan(facts, planned.plan)
            plan = replace(whole, arrays=tuple(self._choose(whole)))
        build_id = str(work.record["build_id"])
        record = work.target.record(digest_of(build_id, str(self.base.id), list(self.paths)))
        job = Job(build_id=build_id, scan=planned.scan, target=work.target, record=record)
        sources = SourceFiles((*self.files, *moved))
        referring = facts.places is not facts.files.url
        results = write_and_check(executor, job, plan, sources, clock, referring=referring)
        storing = StoringAgain.of(work.target, plan)
        stored = storing.stored(executor, clock, arrays_of(plan, results), files_of(results))
        with clock.phase("commit"):
            snapshot_id = self._commit(job, facts, whole, plan, stored)
        made = transaction.report_of(
            job,
            plan,
            results,
            snapshot_id=snapshot_id,
            scanned=count,
            bad=(),
            findings=report.findings,
            executor=executor.name,
            seconds=clock.seconds,
        )
        made = stored.add_to_report(made)
        tell_committed(made)
        return without_record(replace(report, **facts_of(made)), record)

    # -- inside ------------------------------------------------------------------------------

    def _choose(self, plan: BuildPlan) -> Iterator[PlannedArray]:
        """Yield the arrays of the variables, each as long as it is."""
        arrays = {array.path: array for array in plan.arrays}
        for path in self.paths:
            array, node = arrays.get(path), self.base.node(path)
            assert isinstance(node, ArrayNode)
            if array is not None and array.shape == node.shape and array.node_id == node.id:
                yield array
                continue
            now = "no file has it any more" if array is None else f"its shape is {array.shape}"
            raise PlanChangedError(
                f"{path} does not fit the rest of the dataset any more: {now}, and it was"
                f" {node.shape}",
                fixes=[build_fix("makes the whole dataset anew", mode="w")],
                variable=path,
            )

    def _commit(
        self,
        job: Job,
        facts: CatalogFacts,
        whole: BuildPlan,
        plan: BuildPlan,
        stored: StoredArrays,
    ) -> str:
        work, target = self.work, self.work.target
        new = {path: array_of(path, *array) for path, array in stored.arrays.items()}
        nodes = tuple(new.get(node.path, node) for node in self.base.nodes)
        recorded = {**self.carried.record, **self._records(job, facts, whole, plan)}
        self.carried.keep(target.storage, recorded, nodes)
        message = work.call.message or f"Make anew: {', '.join(self.paths[:_SHOWN])}"
        rewrite = PendingCommit(
            base=self.base,
            branch=target.branch,
            message=message,
            nodes=nodes,
            written={info.id: info for info in stored.manifests},
            touched=frozenset(ObjectId8(array.node_id) for array in plan.arrays),
            metadata=as_json({**(work.request.commit.metadata or {}), METADATA: recorded}),
        )
        return publish_rewrite(
            target,
            Assets(target.storage),
            rewrite,
            own=(*whole.groups, *(array.path for array in whole.arrays)),
            containers=plan.containers,
        )

    def _records(
        self, job: Job, facts: CatalogFacts, whole: BuildPlan, plan: BuildPlan
    ) -> dict[str, Any]:
        """Return what the snapshot says of files, recipe and the end that appends go on from."""
        work, storage = self.work, self.work.target.storage
        found: dict[str, Any] = {}
        if held := work.target.find_held_back()[0]:
            found["held"] = held
        if (recipe := work.request.recipe) is not None:
            keep_recipe(storage, recipe)
            found["recipe"] = recipe.digest
        state, ends = tail_of(storage, work.record), ends_of(whole, facts.files, facts.arrays)
        if state is not None and ends is not None:
            _, files, objects = describe_ends(
                job.scan.catalog, whole.files.take(ends), state.identity
            )
            new = {array.path: decision_of(array) for array in plan.arrays}
            decided: Mapping[str, Any] = {**state.decided, **new}
            state = replace(state, decided=decided, ends=files, described=objects)
            found["tail"] = write_tail(storage, state)
        return found


def _find_paths(given: Sequence[str], there: Collection[str], group: str) -> Iterator[str]:
    """Yield the paths of variables by their names or paths.

    Raises:
        InvalidInputError: One is not there.
    """
    names: dict[str, list[str]] = {}
    for path in there:
        own = path.removeprefix(group.rstrip("/")).lstrip("/")
        for name in {path, own, own.rpartition("/")[2]}:
            names.setdefault(name, []).append(path)
    inner = sorted(path.removeprefix(group.rstrip("/")).lstrip("/") for path in there)
    for each in given:
        name = each if each in names else each.lstrip("/")
        if name not in names:
            near = difflib.get_close_matches(name.lstrip("/"), inner, n=3)
            raise InvalidInputError(
                f"the dataset has no variable {each!r}",
                do=f"Did you mean {' or '.join(map(repr, near))}?" if near else "Name one of them.",
                there=inner[:50],
            )
        yield from sorted(names[name])


def _refuse_bad(bad: Sequence[BadFile]) -> None:
    if bad:
        raise ScanError(
            f"{plural(len(bad), 'file')} of the dataset cannot be scanned any more; the first:"
            f" {bad[0].error.rstrip('.')}",
            do="Nothing was changed. Repair the files, or the scanner.",
            bad_files=[each.url for each in bad[:_SHOWN]],
        )
