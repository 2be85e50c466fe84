"""Make some variables of a dataset anew, from the files that it is made of."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from icevirt.amounts import plural
from icevirt.api.dataset.differences import is_named
from icevirt.api.dataset.planning import Planned
from icevirt.api.dataset.records import digest_of, keep_recipe
from icevirt.api.dataset.replacing import Carried
from icevirt.api.dataset.reports import facts_of, report_of
from icevirt.api.dataset.tail import describe_ends, ends_of, tail_of, write_tail
from icevirt.api.dataset.transaction import without_record, write_plan
from icevirt.api.dataset.trial import plan_dataset, scan_files_of
from icevirt.api.dataset.update_change import DatasetUpdate
from icevirt.api.dataset.writing import Job, publish_rewrite
from icevirt.api.events import tell_committed
from icevirt.api.storing import StoredArrays, StoringAgain
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import BadFile
from icevirt.archive.reports.upkeep import UpdateReport
from icevirt.archive.sources import SourceFiles
from icevirt.errors import InvalidInputError, PlanChangedError, ScanError, SourcesChangedError
from icevirt.ids import ObjectId8
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.objects.source_lists.listing import find_changes
from icevirt.planning.lengthened import decision_of
from icevirt.planning.records import METADATA
from icevirt.planning.remedies import build_fix
from icevirt.planning.stored_form import StoredForm, forms_of
from icevirt.planning.twins import own_twins, with_copied
from icevirt.remedy_notation import change, write_remedy
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.versioning.merge.build_merge import array_of
from icevirt.versioning.repo_updates import as_json

_SHOWN = 5  # names in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesUpdate:
    """The variables that an update makes anew, and what it stands on."""

    update: DatasetUpdate
    base: Snapshot  # what the branch holds
    paths: tuple[str, ...]  # of the variables
    files: SourceFiles  # that are read
    carried: Carried

    @classmethod
    def begin(cls, update: DatasetUpdate) -> VariablesUpdate:
        """Look for the variables, and whether all files are as they were.

        Raises:
            InvalidInputError: The dataset has no such variable.
            SourcesChangedError: Files changed, or are gone.
            PlanChangedError: Others changed one of these variables.
        """
        dataset, target = update.dataset, update.dataset.target
        base, carried = target.snapshot(), Carried.of(target)
        own = [path for path, node in carried.made.items() if isinstance(node, ArrayNode)]
        there = {path for path in own if base.find(path) is not None}
        paths = tuple(_find_paths(update.call.variables, there, target.group))
        paths = with_copied(paths, own_twins(dataset.record, base))
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
        out = update.absent | dataset.bad
        files = SourceFiles(file for file in dataset.listing.files if file.url not in out)
        if changed := find_changes(files):
            raise SourcesChangedError(
                f"{plural(len(changed), 'file')} of the dataset changed since the last update",
                do="Update the dataset first, without variables; nothing was changed.",
                first=dict([*changed.items()][:_SHOWN]),
            )
        return cls(update=update, base=base, paths=paths, files=files, carried=carried)

    def run(self) -> UpdateReport:
        """Scan, plan and commit.

        Raises:
            ScanError: Files cannot be scanned any more; nothing was changed.
            PlanChangedError: A variable would have another shape, or is in no file any more.
        """
        update, target = self.update, self.update.dataset.target
        request, patterns, clock = update.request, update.call.rescan, update.clock
        again = [f for f in self.files if not patterns or is_named(f.url, patterns)]
        report = replace(
            update.report(()),
            variables=self.paths,
            files_rescanned=len(again),
            findings=(f"only these are made anew, from {plural(len(self.files), 'file')}",),
        )
        if update.call.dry_run:
            size = sum(file.size for file in again)
            note = f"{plural(len(again), 'file')} would be scanned again, {size:,} bytes in all"
            return replace(report, findings=(*report.findings, note))
        executor = update.starter.start(self.files, request.storage)
        with clock.phase("scan"):
            count, bad = scan_files_of(executor, request, self.files, again)
            _refuse_bad(bad)
        build_id = str(update.dataset.record["build_id"])
        with clock.phase("plan"):
            all_files = update.dataset.listing.files
            planned = plan_dataset(executor, request, all_files, target, build_id)
            whole, moved = request.publish_plan(planned.facts, planned.plan)
            planned = replace(planned, plan=whole)
            plan = replace(whole, arrays=tuple(self._choose(whole)))
        record = target.record(digest_of(build_id, str(self.base.id), list(self.paths)))
        job = Job(build_id=build_id, scan=planned.scan, target=target, record=record)
        sources, storing = SourceFiles((*self.files, *moved)), StoringAgain.of(target, plan)
        results, stored = write_plan(
            executor, job, sources, clock, referring=planned.is_referring, storing=storing
        )
        with clock.phase("commit"):
            snapshot_id = self._commit(planned, plan, stored)
        made = report_of(
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
        forms = forms_of(self.update.dataset.record)
        for path in self.paths:
            array, node = arrays.get(path), self.base.node(path)
            assert isinstance(node, ArrayNode)
            form = forms.get(path, StoredForm())
            shape = None if array is None else form.shape(array.shape)
            if array is not None and shape == node.shape and array.node_id == node.id:
                yield array
                continue
            now = "no file has it any more" if array is None else f"its shape is {array.shape}"
            raise PlanChangedError(
                f"{path} does not fit the rest of the dataset any more: {now}, and it was"
                f" {node.shape}",
                fixes=[build_fix("makes the whole dataset anew", mode="w")],
                variable=path,
            )

    def _commit(self, planned: Planned, plan: BuildPlan, stored: StoredArrays) -> str:
        """Commit arrays of the whole plan in the place of those that are there."""
        update, target, whole = self.update, self.update.dataset.target, planned.plan
        new = {path: array_of(path, *array) for path, array in stored.arrays.items()}
        nodes = tuple(new.get(node.path, node) for node in self.base.nodes)
        recorded = {**self.carried.record, **self._records(planned, plan)}
        self.carried.keep(target.storage, recorded, nodes)
        rewrite = PendingCommit(
            base=self.base,
            branch=target.branch,
            message=update.call.message or f"Make anew: {', '.join(self.paths[:_SHOWN])}",
            nodes=nodes,
            written={info.id: info for info in stored.manifests},
            touched=frozenset(ObjectId8(array.node_id) for array in plan.arrays),
            metadata=as_json({**(update.request.commit.metadata or {}), METADATA: recorded}),
        )
        return publish_rewrite(
            target,
            target.assets,
            rewrite,
            own=(*whole.groups, *(array.path for array in whole.arrays)),
            containers=plan.containers,
            check=update.request.check_of(plan.containers),
        )

    def _records(self, planned: Planned, plan: BuildPlan) -> dict[str, Any]:
        """Return what the snapshot says of files, recipe and the end that appends go on from."""
        target, recipe = self.update.dataset.target, self.update.request.recipe
        storage, whole, facts = target.storage, planned.plan, planned.facts
        found: dict[str, Any] = {}
        if held := target.find_held_back()[0]:
            found["held"] = held
        if recipe is not None:
            keep_recipe(storage, recipe)
            found["recipe"] = recipe.digest
        state = tail_of(storage, self.update.dataset.record)
        ends = ends_of(whole, facts.files, facts.arrays)
        if state is not None and ends is not None:
            files = whole.files.take(ends)
            _, ending, objects = describe_ends(planned.scan.catalog, files, state.identity)
            new = {array.path: decision_of(array) for array in plan.arrays}
            decided: Mapping[str, Any] = {**state.decided, **new}
            state = replace(state, decided=decided, ends=ending, described=objects)
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
            write_remedy(
                f"{plural(len(bad), 'file')} of the dataset cannot be scanned any more; the first:",
                " ",
                change(bad[0].error, lambda text: text.removesuffix(".")),
            ),
            do="Nothing was changed. Repair the files, or the scanner.",
            bad_files=[each.url for each in bad[:_SHOWN]],
        )
