"""Make some variables of a dataset anew from all of its files; everything else stays as it is.

The files are scanned again, for a scanner was mended, say. All of them are planned as ever. Of that
plan only the arrays of these variables are written, under the ids that they have.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from icevirt.api.growth.after_build import ends_of
from icevirt.api.growth.tail_state import described, tail_of, write_tail
from icevirt.api.living.differences import is_named
from icevirt.api.living.trial import planned, scanned
from icevirt.api.living.work import UpdateWork
from icevirt.api.pipeline import held_back, outcome
from icevirt.api.pipeline.build_steps import ExecutorStarter, without_record, written
from icevirt.api.pipeline.carried import Carried
from icevirt.api.pipeline.commit import arrays_written, files_written, publish_rewrite
from icevirt.api.pipeline.events import Clock, tell_committed
from icevirt.api.pipeline.kept_recipe import keep_recipe
from icevirt.api.pipeline.provenance import METADATA
from icevirt.api.pipeline.stages import Job
from icevirt.api.pipeline.target import digest_of
from icevirt.api.sources.reader_urls import published
from icevirt.api.storing.again import StoredArrays, StoringAgain
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import BadFile, BuildReport
from icevirt.archive.reports.card import plural
from icevirt.archive.reports.update import UpdateReport
from icevirt.archive.sources import SourceFiles
from icevirt.errors import InvalidInputError, PlanChangedError, ScanError, SourcesChangedError
from icevirt.ids import ObjectId8
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.objects.source_lists.listing import changed_since
from icevirt.planning.lengthened import decided_of
from icevirt.planning.remedies import build_fix
from icevirt.repo.assets import Assets
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.settings import as_json
from icevirt.versioning.merge.build_merge import array_of

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
        paths = tuple(dict.fromkeys(_found(work.call.variables, there, target.group)))
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
        if changed := changed_since(files):
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
            count, bad = scanned(executor, request, self.files, again)
            _refuse_bad(bad)
        with clock.phase("plan"):
            scan, facts, whole = planned(
                executor, request, work.listing.files, work.target, str(work.record["build_id"])
            )
            moved = request.commit.publication.targets(facts, whole)
            whole = request.commit.named_containers.contained(facts, published(whole, moved))
            plan = replace(whole, arrays=tuple(self._chosen(whole)))
        build_id = str(work.record["build_id"])
        record = work.target.record(digest_of(build_id, str(self.base.id), list(self.paths)))
        job = Job(build_id=build_id, scan=scan, target=work.target, record=record)
        sources = SourceFiles((*self.files, *moved))
        referring = facts.places is not facts.files.url
        led = tuple(each.url_prefix for each in plan.containers) if referring else ()
        writing = replace(job, led=led)
        results = written(executor, writing, plan, sources, clock, referring=referring)
        storing = StoringAgain.of(work.target, plan)
        stored = storing.stored(
            executor, clock, arrays_written(plan, results), files_written(results)
        )
        with clock.phase("commit"):
            snapshot_id = self._commit(job, facts, whole, plan, stored)
        made = outcome.report(
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
        made = stored.reported(made)
        tell_committed(made)
        values = {each.name: getattr(made, each.name) for each in fields(BuildReport)}
        return without_record(replace(report, **values), record)

    # -- inside ------------------------------------------------------------------------------

    def _chosen(self, plan: BuildPlan) -> Iterator[PlannedArray]:
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
        if held := held_back.name_of(work.target):
            found["held"] = held
        if (recipe := work.request.recipe) is not None:
            keep_recipe(storage, recipe)
            found["recipe"] = recipe.digest
        state, ends = tail_of(storage, work.record), ends_of(whole, facts.files, facts.arrays)
        if state is not None and ends is not None:
            _, files, objects = described(job.scan.catalog, whole.files.take(ends), state.identity)
            new = {array.path: decided_of(array) for array in plan.arrays}
            decided: Mapping[str, Any] = {**state.decided, **new}
            state = replace(state, decided=decided, ends=files, described=objects)
            found["tail"] = write_tail(storage, state)
        return found


def _found(given: Sequence[str], there: Collection[str], group: str) -> Iterator[str]:
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
