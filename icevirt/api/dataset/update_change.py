"""Update a dataset: compare it with its archive, find out what fits, and commit the change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from icevirt.amounts import plural
from icevirt.api.dataset import left_out
from icevirt.api.dataset.change import Dataset, DatasetChange, Request
from icevirt.api.dataset.differences import (
    Relisted,
    UpdateCall,
    Vanished,
    find_superseded,
    is_named,
    list_and_compare,
    look,
    options_of,
    refuse_many,
)
from icevirt.api.dataset.files_held import FileDifferences
from icevirt.api.dataset.flat import FEW, NotFlat, flat_append
from icevirt.api.dataset.recipes import Followed
from icevirt.api.dataset.records import TRIED
from icevirt.api.dataset.replacing import OF_OTHERS
from icevirt.api.dataset.reports import facts_of, report_unchanged
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.transaction import (
    ExecutorStarter,
    commit_change,
)
from icevirt.api.dataset.trial import (
    MISFITS,
    UNTRIED,
    find_same_layout,
    hold_back,
    is_misfit,
    kinds,
    misfits,
    scan_files_of,
    try_files,
)
from icevirt.api.dataset.writing import commit_held
from icevirt.api.events import Clock, tell_committed
from icevirt.api.finish import SnapshotVerification
from icevirt.api.trust.readable_places import remark_on_elsewhere
from icevirt.archive.reports.build import GROWN, OTHERS, BuildReport
from icevirt.archive.reports.upkeep import FileHeldBack, UpdateReport
from icevirt.archive.sources import SourceFile, SourceFiles, source_of_url
from icevirt.catalog.lookup import CatalogTables, known_tables, list_tables
from icevirt.errors import IcevirtError, InvalidInputError, PlanChangedError, ScanError
from icevirt.execution.executor import Executor
from icevirt.model.json import JSON
from icevirt.planning.axes.axis_ends import labels_at_ends
from icevirt.planning.remedies import of_arguments
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.kept_objects import keeping
from icevirt.repo.made_here import identify
from icevirt.threads import Threads
from icevirt.version import __version__

type _Held = tuple[FileHeldBack, ...]

_SHOWN = 5  # files in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetUpdate:
    """What an update found, and what it makes of it."""

    call: UpdateCall
    dataset: Dataset
    how: Followed
    relisted: Relisted
    found: FileDifferences
    before: tuple[FileHeldBack, ...]  # what was held back until now
    absent: frozenset[str]  # URLs of files whose steps read as missing, from now on
    removed: frozenset[str]  # URLs of files that leave the dataset
    request: Request
    verification: SnapshotVerification | None
    starter: ExecutorStarter
    clock: Clock
    alike: set[str] = field(default_factory=set)  # URLs of files that are described as before
    listed: CatalogTables | None = None  # what the catalog held when the sources were listed
    give_back: Callable[[], None] = lambda: None  # the lease, as soon as nothing takes long

    @classmethod
    def begin(  # noqa: PLR0917 - an update, and where it begins
        cls,
        call: UpdateCall,
        dataset: Dataset,
        how: Followed,
        unsettled: frozenset[str],
        starter: ExecutorStarter,
        clock: Clock,
    ) -> DatasetUpdate:
        """List and compare.

        Raises:
            InvalidInputError: Too many files are gone, or files lie elsewhere than was named.
        """
        options = options_of(call, dataset, how)
        # bad files are held back before; files that change begin a new attempt
        commit = replace(options.commit, branch=call.branch, promote=None, rescan_changed=False)
        known = known_tables(identify(call.storage))
        with clock.phase("list"), Threads(3, "icevirt-update") as pool:  # else lists wait in turn
            alike = pool.submit(dataset.scans_alike, options)
            count = int(dataset.record.get("files") or 0)
            tables = pool.submit(list_tables, keeping(dataset.catalog), count)
            dataset = dataset.excluding(pool)
            if call.variables:  # which are made of the same files
                held = {file.url: file for file in dataset.listing.files}
                how.places.refuse_others(held.values(), repo=call.storage.url, what="update")
                relisted = Relisted(files=held, gone=frozenset(), unlisted=0)
                found = FileDifferences(known=len(held))
            else:
                relisted, found = list_and_compare(call, dataset, how, options, unsettled)
            also, listed = alike.result(), tables.result()
        gone = frozenset(file.url for file in found.vanished)
        if gone:
            refuse_many(len(gone), len(dataset.listing.files), call.max_vanished)
            _refuse_vanished(found.vanished, call.vanished)
        removed = gone if call.vanished == "remove" else frozenset()
        corrected = frozenset(file.url for file in found.corrected)
        absent = (dataset.absent | (gone - removed)) - corrected
        verification = SnapshotVerification.of(
            commit, call.storage, places=lambda: how.places.prefixes, starter=starter, clock=clock
        )
        request = dataset.request(
            replace(options, commit=commit),
            check=verification,
            progress=clock.step,
            recipe=how.recipe,
            absent=absent,
            also=also,
            known=known,
            expected=frozenset(
                ({"steps"} if removed or call.rules else set())
                | ({OTHERS} if call.drop_others else set())
                | ({"fill value"} if absent or dataset.absent else set())
                | ({GROWN} if corrected else set())
            ),
        )
        return cls(
            call=call,
            dataset=dataset,
            how=how,
            relisted=relisted,
            found=found,
            before=left_out.read_held(call.storage, dataset.target.find_held_back()[0]),
            absent=absent,
            removed=removed,
            request=request,
            verification=verification,
            starter=starter,
            clock=clock,
            listed=listed,
        )

    def run(self) -> UpdateReport:
        """Scan, find out what fits, and commit it.

        Raises:
            PlanChangedError: What others did would be undone; nothing was changed.
        """
        try:
            return self._run()
        except PlanChangedError as error:
            if OF_OTHERS in error.facts:
                why = "removes that; older snapshots keep it"
                error.fixes = (of_arguments({"drop_others": True}, why),)
            raise

    def _run(self) -> UpdateReport:
        few = self._append(()) if self._is_few else NotFlat("there is more to be done")
        if isinstance(few, UpdateReport):
            return few
        count, held = self._scan()
        count += few.scanned
        refused = self._find_refused(held)
        made = self._commit_without_plan(held, refused)
        if made is not None:
            return replace(made, files_scanned=count)
        if refused:  # most likely they are refused again
            with self.clock.phase("plan"), suppress(ScanError):
                held = (*held, *self._misfits(held))
        if not self._differs(held):
            return self._commit_held(held)
        if self.call.dry_run:
            return self._without_misfits(held, self._plan)
        report = self._without_misfits(held, self._commit)
        return (
            report
            if report.already_built
            else replace(report, files_scanned=report.files_scanned + count)
        )

    def _without_misfits(self, held: _Held, make: Callable[[_Held], UpdateReport]) -> UpdateReport:
        """Make the change; where files do not fit, find out which, and make it without them."""
        try:
            return make(held)
        except MISFITS as error:
            if not self._pick_accepted(held) or not is_misfit(error):
                raise
            with self.clock.phase("plan"):
                try:
                    held = (*held, *self._misfits(held))
                except ScanError:  # of what the dataset holds: no catalog describes it any more
                    raise error from None
        return make(held)

    def _commit_without_plan(self, held: _Held, refused: _Held) -> UpdateReport | None:
        """Do what takes no plan of all files: nothing, or an append behind the last step.

        Files that did not fit before are tried with the others, and left out if that fails.
        """
        if refused and not self._differs((*held, *refused)) and self._is_as_tried:
            return self._commit_held((*held, *refused))  # as they are, they are refused again
        outs = [held, (*held, *refused)] if refused else [held]
        for out in outs if not self._find_superseded(self._pick_accepted(held)) else ():
            made = self._append(out, scanned_before=True)
            if isinstance(made, UpdateReport):
                return made
        return None

    # -- steps -----------------------------------------------------------------------------------

    @property
    def _is_few(self) -> bool:
        """Whether nothing is to be done but to append a few files, which were not scanned."""
        added = self.found.added
        is_few = 0 < len(added) <= FEW and not self.before and not self._is_more_than_new
        if not is_few:
            return False
        scan = self.request.scan(added, catalog=keeping(self.request.kept_catalog))
        return not (scan.settled(self.listed).part >= 0).any()

    @property
    def _is_more_than_new(self) -> bool:
        """Whether anything is to be done beside adding files."""
        return bool(self.removed or self.absent or self.dataset.bad or self.found.corrected)

    def _append(self, out: _Held, *, scanned_before: bool = False) -> UpdateReport | NotFlat:
        """Append files behind the last step, if nothing else is to be done."""
        accepted = self._pick_accepted(out)
        is_more = self.call.dry_run or self._is_more_than_new or not accepted
        if is_more or self._find_superseded(accepted):
            return NotFlat("there is more to be done than to append files")
        report = self.report(out)
        made = flat_append(
            self._ask_for(report, out),
            accepted,
            target=self.dataset.target,
            clock=self.clock,
            scanned_before=scanned_before,
            about_to_commit=self.give_back,
        )
        if isinstance(made, NotFlat):
            return made
        target = self.dataset.target
        return self._with(report, made, replace(target, info=target.head.known().info))

    def _scan(self) -> tuple[int, tuple[FileHeldBack, ...]]:
        """Scan the candidates; return how many were scanned, and which are bad."""
        candidates = self.found.candidates
        if not candidates:
            return 0, ()
        executor = self._start(candidates)
        with self.clock.phase("scan"):
            again = [file for file in candidates if is_named(file.url, self.call.rescan)]
            count, bad = scan_files_of(executor, self.request, candidates, again)
            out = self.dataset.bad | self.absent
            now = [file for file in self.found.corrected if file.url not in out]
            held = {file.url: file for file in self.dataset.listing.files} if now else {}
            before = [held[file.url] for file in now]
            self.alike.update(find_same_layout(executor, self.request, before, now))
        return count, tuple(hold_back(candidates, bad))

    def _misfits(self, held: Sequence[FileHeldBack]) -> list[FileHeldBack]:
        """Return the candidates that the dataset cannot hold."""
        refused = {each.url for each in self.before if each.code != UNTRIED}
        left = sorted(self._pick_accepted(held), key=lambda file: file.url in refused)
        executor = self._start(left)

        def fits(accepted: Sequence[SourceFile]) -> IcevirtError | None:
            files = self._change(accepted).files()
            try:
                try_files(executor, self.request, files, self.dataset.target)
            except MISFITS as error:
                if not is_misfit(error):
                    raise
                return error
            return None

        return misfits(kinds(self.request, left), fits)

    def _commit(self, held: _Held) -> UpdateReport:
        if not self._differs(held):
            return self._commit_held(held)
        change = self._change(self._pick_accepted(held))
        if not len(change.kept.files) and not change.files():
            raise InvalidInputError(
                "no file of the dataset is left",
                do="Check that the archive is there; delete the dataset by hand if it is to go.",
                repo=self.call.storage.url,
            )
        report = self.report(held)
        request = self._ask_for(report, held)
        made = commit_change(request, lambda: change, self.starter, self.clock)
        return self._with(report, made, look(self.call).target)

    def _plan(self, held: _Held) -> UpdateReport:
        executor = self._start(self.found.candidates)
        files = self._change(self._pick_accepted(held)).files()
        with self.clock.phase("plan"):
            trial = try_files(executor, self.request, files, self.dataset.target)
        return replace(
            self.report(held),
            plan=trial.plan,
            ends=self._ends(labels_at_ends(trial.plan, trial.facts)),
        )

    def _commit_held(self, held: _Held) -> UpdateReport:
        """Return the report where nothing is committed, but perhaps what is held back."""
        report = self.report(held)
        if self.call.dry_run or _stamps(held) == _stamps(self.before):
            return report
        with self.clock.phase("commit"):
            snapshot_id = commit_held(self.dataset.target, held)
        return replace(report, snapshot_id=snapshot_id)

    def _with(self, report: UpdateReport, made: BuildReport, now: Target) -> UpdateReport:
        """Return the report of an update with what was committed, given the dataset as it is."""
        tell_committed(made)
        ends = (now.last_record() or {}).get("ends") or {}
        return replace(report, **facts_of(made), ends=self._ends(ends))

    def _start(self, files: Sequence[SourceFile]) -> Executor:
        return self.starter.start(SourceFiles(files), self.call.storage)

    # -- what is decided -------------------------------------------------------------------------

    def _find_refused(self, held: Sequence[FileHeldBack]) -> tuple[FileHeldBack, ...]:
        """Return what did not fit before, of the files that could be scanned and are the same."""
        left = {(file.url, file.size, file.last_modified) for file in self._pick_accepted(held)}
        return tuple(
            each
            for each in self.before
            if each.code != UNTRIED and (each.url, each.size, each.last_modified) in left
        )

    @property
    def _is_as_tried(self) -> bool:
        """Whether the last commit of the dataset was by an update that tried what is held back."""
        is_same = not self.how.is_own and self.dataset.record.get("icevirt") == __version__
        return is_same and self.dataset.target.find_held_back()[1]

    def _ask_for(self, report: UpdateReport, out: Sequence[FileHeldBack]) -> Request:
        """Return the request of a commit that says what is held back."""
        about: dict[str, JSON] = {}
        if out:
            about = {"held": left_out.keep_held(self.call.storage, out), TRIED: True}
        message = self.call.message or f"Update: {report.summary}"
        commit = replace(self.request.commit, message=message)
        return replace(self.request, about=about, commit=commit)

    def _pick_accepted(self, held: Sequence[FileHeldBack]) -> list[SourceFile]:
        """Return the candidates that are not held back."""
        out = {each.url for each in held}
        return [file for file in self.found.candidates if file.url not in out]

    def _differs(self, held: Sequence[FileHeldBack]) -> bool:
        """Say whether there is anything to commit beside what is held back."""
        accepted = self._pick_accepted(held)
        is_more = accepted or self.removed or self._find_superseded(accepted)
        return bool(is_more) or self.absent != self.dataset.absent

    def _find_superseded(self, accepted: Sequence[SourceFile]) -> dict[str, str]:
        """Return the files that leave the dataset for their final versions."""
        if not self.call.rules:
            return {}
        urls = [*self.dataset.listing.files.urls, *(file.url for file in accepted)]
        now = {file.url for file in accepted}
        out = self.removed | self.absent | (self.dataset.bad - now)
        return find_superseded(urls, (url for url in urls if url not in out), self.call.rules)

    def _change(self, accepted: Sequence[SourceFile]) -> DatasetChange:
        """Return what is to become of the files with some of the candidates.

        Raises:
            InvalidInputError: Some of those that stay may not be looked at.
        """
        dataset, added = self.dataset, {file.url for file in self.found.added}
        gone = self.removed | (dataset.bad - {file.url for file in accepted})
        change = DatasetChange(
            dataset=dataset,
            added=[file for file in accepted if file.url in added],
            replaced=[file for file in accepted if file.url not in added],
            removed=gone.union(self._find_superseded(accepted)),
        )
        if others := [file for file in self._elsewhere if file.url not in change.removed]:
            raise self.how.places.refusal(others, repo=self.call.storage.url, what="update")
        return change

    @property
    def _elsewhere(self) -> Sequence[SourceFile]:
        """The files of the dataset that may not be looked at."""
        urls = self.relisted.elsewhere
        return [file for file in self.dataset.listing.files if file.url in urls] if urls else []

    def report(self, held: Sequence[FileHeldBack]) -> UpdateReport:
        """Return what is known before anything is committed."""
        left = self._pick_accepted(held)
        accepted = {file.url for file in left}
        added = sum(file.url in accepted for file in self.found.added)
        gone = self._find_superseded(left).keys() & {*self.dataset.listing.files.urls}
        return report_nothing(
            self.call,
            self.dataset,
            findings=tuple(self._notes(held)),
            files_added=added,
            files_corrected=len(accepted) - added,
            files_same_layout=len(accepted & self.alike),
            files_rescanned=sum(file.url in accepted for file in self.found.rescanned),
            files_vanished=len(self.found.vanished),
            files_superseded=len(gone),
            files_waiting=len(self.found.waiting),
            files_known=self.found.known,
            files_excluded=self.found.excluded,
            files_elsewhere=len(self.relisted.elsewhere),
            held=tuple(held),
        )

    def _notes(self, held: Sequence[FileHeldBack]) -> Iterable[str]:
        if not self._differs(held):
            same = "nothing was committed: the dataset is as its archive"
            if self.relisted.elsewhere:
                same = "nothing was committed: the files that were looked at are as they were"
            yield "the dataset stays as it was; files are held back" if held else same
        if changing := [each.url for each in held if each.code == PlanChangedError.code]:
            name, options = source_of_url(changing[0]), "--on-changed replace --allow-changes"
            chosen = 'on_changed="replace", commit_options={"allow_changes": True}'
            yield write_remedy(
                "what the dataset holds is not changed so much unasked; to replace it, where older"
                " snapshots keep it: ",
                write_code(
                    f"icevirt.append({name!r}, repo, {chosen})",
                    f"icevirt append {quote(name)} REPO {options}",
                ),
            )
        if waiting := self.found.waiting:
            yield f"{plural(len(waiting), 'file')} may still be written: the next update takes them"
        if self.relisted.unlisted:
            yield (
                f"{plural(self.relisted.unlisted, 'file')} of the dataset that the sources do not"
                " name are there, and stay"
            )
        if elsewhere := [file.url for file in self._elsewhere]:
            yield remark_on_elsewhere(elsewhere)

    def _ends(self, now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Return the last labels before and now, by dimension."""
        before = self.dataset.record.get("ends") or {}
        return {
            name: (str(before[name][-1]), str(found[-1]))
            for name, found in now.items()
            if before.get(name) and found
        }


def _refuse_vanished(vanished: Sequence[SourceFile], how: Vanished) -> None:
    if how != "refuse":
        return
    are, its = ("is", "its") if len(vanished) == 1 else ("are", "their")
    raise InvalidInputError(
        f"{plural(len(vanished), 'file')} of the dataset {are} gone",
        fixes=[
            of_arguments({"vanished": "missing"}, f"{its} steps read as missing values"),
            of_arguments({"vanished": "remove"}, f"{its} steps are removed"),
        ],
        do="Nothing was changed; readers refuse what refers to these files.",
        files=[file.url for file in vanished[:_SHOWN]],
    )


def _stamps(files: Sequence[FileHeldBack]) -> set[tuple[str, int, int]]:
    return {(each.url, each.last_modified, each.size) for each in files}


def report_nothing(call: UpdateCall, dataset: Dataset, **said: Any) -> UpdateReport:
    """Return the report of an update that committed nothing, and what else is said of it."""
    counts = ("added", "corrected", "vanished", "superseded", "waiting", "known")
    none: dict[str, Any] = dict.fromkeys([f"files_{each}" for each in counts], 0)
    none |= {"vanished": call.vanished, "is_dry_run": call.dry_run}
    return report_unchanged(UpdateReport, dataset.target, dataset.record, **(none | said))
