"""Append files behind the last step of a dataset, without a look at the rest of it.

A plan of the new files and of the files at both ends of the dataset stands for a plan of all. If it
decides what the last build decided and puts the new files last, arrays become longer: one small
manifest holds the references of all appends, and stored values are written again from the last
chunk on. Otherwise all files are planned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from icevirt.amounts import plural
from icevirt.api.dataset.change import Request
from icevirt.api.dataset.end_plan import (
    Appending,
    beside,
    borrow,
    collect_added,
    fill_cube,
    look_at_others,
    scan_ends,
    scan_of,
)
from icevirt.api.dataset.planning import plan_ends
from icevirt.api.dataset.records import keep_recipe
from icevirt.api.dataset.replacing import carry_record, describe_made, find_kept, rules_in
from icevirt.api.dataset.reports import report_on, summarize_array
from icevirt.api.dataset.stored_tail import ManifestReads, StoredTail, StoredVariables, store_tail
from icevirt.api.dataset.tail import (
    TailState,
    describe_ends,
    ends_of,
    keep_tail,
    name_of,
    pack,
    path_of_tail,
    tail_of,
)
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.writing import publish_rewrite, refuse_changed
from icevirt.api.events import Clock, tell
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import BuildReport, ReferenceCounts
from icevirt.archive.sources import SourceFile
from icevirt.catalog.listings import grow_listing
from icevirt.catalog.parts import MARK, mark
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.ids import ObjectId12
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.objects.authorize import entry_of
from icevirt.objects.source_access import carrying, in_force
from icevirt.planning.axes.axis_ends import labels_at_ends
from icevirt.planning.combine.known_decisions import KnownDecisions
from icevirt.planning.lengthened import (
    Growing,
    Lengthened,
    LengthenedArray,
    OtherwiseError,
    lengthen,
)
from icevirt.planning.records import METADATA
from icevirt.planning.stored_form import forms_of
from icevirt.planning.twins import is_twin, with_twins
from icevirt.repo.assets import Assets
from icevirt.repo.authorization import authorize
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.kept_objects import KeptObjects, cache_of, keeping
from icevirt.repo.layout import WORK
from icevirt.threads import Threads
from icevirt.versioning.merge.kept_nodes import read_planned_attributes
from icevirt.versioning.repo_updates import as_json
from icevirt.wire.manifests.encoding import ManifestEncoding

FEW = 64
"""New files that this process scans one by one; an executor scans more of them before."""

_AT_ONCE = 16  # requests
_DECIDING = (
    *("combine", "combine_attrs", "data_vars", "duplicates", "edits", "float_variables"),
    *("missing", "on_mismatch", "pad", "spacing", "tolerance", "chunk_grid", "labels"),
    *("rebase_indices", "index_of", "split_contiguous"),
)
"""Options that decide how files combine, as a snapshot records them."""


@dataclass(frozen=True, slots=True)
class NotFlat:
    """An append that has to be planned from all files."""

    why: str
    scanned: int = 0  # files, which the catalog of the request describes now


def flat_append(
    request: Request,
    new: Sequence[SourceFile],
    *,
    target: Target,
    clock: Clock,
    tail: TailState | None = None,
    scanned_before: bool = False,
    scanned: Callable[[], None] = lambda: None,
    about_to_commit: Callable[[], None] = lambda: None,
) -> BuildReport | NotFlat:
    """Append files that a dataset does not hold, if they only make it longer.

    Args:
        request: As for a build of all files; its sources and what it says of held files are not
            looked at.
        new: The files, none of which the dataset holds.
        target: The branch, as it was when the new files were looked for in the dataset.
        clock: Times the phases.
        tail: What the last build recorded of its end, where it was read already.
        scanned_before: Whether the request's catalog describes the files.
        scanned: Is called behind the scan, before anything is written.
        about_to_commit: Is called before the last requests, which do not take long.

    Returns:
        The report of what was committed; or why nothing was, so that all files have to be planned.

    Raises:
        ConflictError: Others changed the dataset meanwhile; plan again on what they committed.
        SourcesChangedError: New files changed since their scan.
        IcevirtError: As for `icevirt.build`.
    """
    count = 0
    try:
        with _begin(request, new, target, clock, tail, scanned_before=scanned_before) as job:
            try:
                return _append(job, scanned, about_to_commit)
            except OtherwiseError:
                _keep_scan(job)  # for the plan of all files
                _await_all(job.kept.values())
                count = len(new) if job.kept and not scanned_before else 0
                raise
    except OtherwiseError as error:
        tell("append-not-flat", why=str(error))
        return NotFlat(str(error), count)


@contextmanager
def _begin(
    request: Request,
    new: Sequence[SourceFile],
    target: Target,
    clock: Clock,
    tail: TailState | None,
    *,
    scanned_before: bool,
) -> Iterator[Appending]:
    """Begin to read what an append stands on.

    Raises:
        OtherwiseError: It is not there, or does not fit the request.
    """
    last = target.last_build()
    record = target.last_record()
    if last is None or record is None:
        raise OtherwiseError("the group holds nothing that a build made")
    _refuse_unfit(request, record)
    with clock.phase("list"):
        state = tail_of(target.storage, record) if tail is None else tail
    if state is None:
        raise OtherwiseError("the last build recorded no end that files can follow")
    forms = forms_of(record)
    decided = with_twins(state.decided, forms)
    for path, form in forms.items():
        if path in decided and form.of in decided:  # a plan of all files has it as its variable
            decided[path] = replace(decided[path], shape=form.shape(decided[form.of].shape))
    state = replace(state, decided=decided)
    scratch = state.catalog()
    with clock.phase("list"):
        borrowed = borrow(request, new, scratch) if scanned_before else frozenset[str]()
    encoding = ManifestEncoding.of_config(target.config.document)
    kept = cache_of(target.storage)
    assets = Assets(target.storage, manifests=encoding, compares=True, cache=kept)
    with Threads(_AT_ONCE, "icevirt-append") as pool:
        reads = ManifestReads(assets, pool, kept)
        if state.hot:
            reads.of([ObjectId12.parse(state.hot)])
        yield Appending(
            request=request,
            new=tuple(new),
            target=target,
            clock=clock,
            last=last,
            record=record,
            state=state,
            assets=assets,
            scratch=scratch,
            borrowed=borrowed,
            pool=pool,
            tip_read=pool.submit(_read_tip, target, assets, state, reads),
            reads=reads,
        )


def _read_tip(target: Target, assets: Assets, state: TailState, reads: ManifestReads) -> Snapshot:
    """Read what the branch holds, and begin to read the manifests of stored values."""
    tip = assets.snapshot(target.tip)
    for path, each in state.decided.items():
        node = tip.find(path)
        if each.kind is Growing.by_values and isinstance(node, ArrayNode):
            reads.of(ref.object_id for ref in node.manifests)
    return tip


def _append(
    job: Appending, scanned: Callable[[], None], about_to_commit: Callable[[], None]
) -> BuildReport:
    """Scan, plan, write and commit.

    What does not depend on the plan is written while this process plans.
    """
    state, storage, clock = job.state, job.target.storage, job.clock
    work = KeptObjects(storage, f"{WORK[0]}/")
    cache, key = cache_of(storage), ("decided", job.target.branch, job.target.group)
    growing = job.pool.submit(grow_listing, work, state.pieces, state.files, job.new)
    with clock.phase("scan"):
        scan = scan_of(job)
        closed = scan_ends(scan, most=FEW)
        scanned()
        _keep_scan(job)
    with clock.phase("plan"):
        nodes, group = job.tip.below(job.target.group), job.target.group
        planned = plan_ends(
            job.request,
            scan,
            closed,
            record=job.record,
            kept=rules_in(nodes, job.record, group),
            tip=job.tip,
            known=(decisions := cache.find(key) or KnownDecisions()),
        )
        cache.put(key, decisions, decisions.nbytes)
        facts, plan, steps = planned.facts, planned.plan, planned.steps
        forms, ends = forms_of(job.record), len(state.ends)
        if len(plan.concat_dim) > 1:
            growth = fill_cube(job, planned)
        else:
            growth = lengthen(plan, facts, ends, state.decided, state.groups, job.tip, steps, forms)
        kept_notes, edited = look_at_others(job, plan, growth)
        known = job.target.config.virtual_chunk_containers
        containers = tuple(
            each
            for each in plan.containers
            if each.name is not None or not any(map(each.url_prefix.startswith, known))
        )
    with clock.phase("write"):
        listing = growing.result()
        writes = [job.pool.submit(work.put, path, raw) for path, raw in listing.objects.items()]
        writes.append(job.pool.submit(carrying(refuse_changed), job.new))
        if (recipe := job.request.recipe) is not None:
            writes.append(job.pool.submit(keep_recipe, storage, recipe))
        _keep_scan(job)  # what planning found
        added = collect_added(job, plan, growth)
        config = job.target.config
        for each in containers:
            config.set_virtual_chunk_container(each)
        # it reads files where the new ones lie, and no others
        access = authorize(in_force().authorization(map(entry_of, plan.containers)))
        stored = store_tail(
            job.assets,
            job.tip,
            growth,
            added,
            hot=state.hot,
            read=job.reads,
            variables=StoredVariables(
                storage=storage, head=job.target.head, config=config, access=access, tip=job.tip
            ),
            pool=job.pool,
        )
    grown = _Grown(job=job, facts=facts, plan=plan, growth=growth, tail=stored, edited=edited)
    with clock.phase("commit"):
        state = grown.next_state(listing.pieces)
        raw = pack(state)
        name = name_of(raw)
        own = {each.node.id for each in grown.variables}
        count = sum(len(table) for key, table in added.references if key in own)
        record = grown.record(tail=name, listing=listing.pieces[-1][0], references=count)
        path, made = grown.describe_made(record)
        objects = {**stored.objects, path_of_tail(name): raw, path: made}
        writes += [*stored.writes, *job.kept.values()]
        about_to_commit()
        snapshot_id = grown.commit(containers, record, objects, writes)
        keep_tail(storage, name, state, len(raw))
    return grown.report(snapshot_id, (*closed.findings, *kept_notes, *planned.gaps))


def _refuse_unfit(request: Request, record: Mapping[str, Any]) -> None:
    """Refuse what is planned from all files in any case.

    Raises:
        OtherwiseError: It is.
    """
    choices, recorded = request.choices, record.get("combine", {})
    if request.absent or recorded.get("absent"):
        raise OtherwiseError("steps of files that are gone read as missing")
    if not request.options.concat_dims:
        raise OtherwiseError("the last build grew along no dimension")
    if record.get("eras", 1) != 1 or choices.combine.on_mismatch == "eras":
        raise OtherwiseError("files may become several eras")
    if request.nest is not None or request.commit.publish_as:
        raise OtherwiseError("files are published elsewhere, or placed by nested lists")
    if any(not isinstance(each, str) for each in choices.labels.values()):
        raise OtherwiseError("labels of all files are listed")
    asked = {name: value for name, value in request.recorded.items() if name in _DECIDING}
    before = {name: recorded[name] for name in recorded if name in _DECIDING}
    if json.dumps(asked, sort_keys=True) != json.dumps(before, sort_keys=True):
        raise OtherwiseError("files are combined with other options than before")


_TABLES = ("refs/", "arrays/", "more/")  # of a part, which counts once its files are there


def _keep_scan(job: Appending) -> None:
    """Begin to put what was scanned, and is not on its way, into the catalog of the dataset."""
    kept = job.request.catalog
    if kept is None:
        return
    is_known = job.record.get("catalog") == kept.url
    there = {*job.state.described, *job.borrowed, *job.kept, MARK}
    paths = [info.path for info in job.scratch.list() if info.path not in there]
    new = {path: job.scratch.get(path) for path in paths}
    if not is_known and not job.kept:
        mark(kept)
    first = {
        path: job.pool.submit(kept.put, path, raw)
        for path, raw in new.items()
        if path.startswith(_TABLES) or (path.startswith("scans/") and not is_known)
    }

    def put_files(path: str, raw: bytes) -> None:
        _await_all(first.values())
        keeping(kept).put(path, raw)

    job.kept.update(first)
    for path, raw in new.items():
        if path.startswith("files/"):
            job.kept[path] = job.pool.submit(put_files, path, raw)


def _await_all(writes: Iterable[Future[None]]) -> None:
    """Wait until all is written; raise what went wrong."""
    for each in writes:
        each.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """A dataset with what new files add to its end, about to be committed."""

    job: Appending
    facts: CatalogFacts
    plan: BuildPlan
    growth: Lengthened
    tail: StoredTail
    edited: Mapping[str, str]  # what others changed of arrays, by path

    @property
    def variables(self) -> list[LengthenedArray]:
        """The arrays that become longer, without twins, which hold nothing new."""
        forms = forms_of(self.job.record)
        return [each for each in self.growth.arrays if not is_twin(forms, each.node.path)]

    def _node(self, path: str) -> ArrayNode:
        node = self.tail.nodes.get(path) or self.job.tip.node(path)
        assert isinstance(node, ArrayNode)
        return node

    def next_state(self, pieces: tuple[tuple[str, int], ...]) -> TailState:
        """Return the state that the next append reads; ``pieces`` make the list of files."""
        job, plan = self.job, self.plan
        ends = ends_of(plan, self.facts.files, self.facts.arrays)
        if ends is None:
            raise OtherwiseError("too many files lie at the ends")
        longer = {path: node.shape for path, node in self.tail.nodes.items()}
        decided = {
            path: replace(each, shape=longer.get(path, each.shape))
            for path, each in job.state.decided.items()
        }
        _, files, objects = describe_ends(job.scratch, plan.files.take(ends), job.state.identity)
        return replace(
            job.state,
            decided=decided,
            ends=files,
            files=job.state.files + len(job.new),
            pieces=pieces,
            hot=self.tail.hot,
            described=objects,
        )

    def record(self, *, tail: str, listing: str, references: int) -> dict[str, Any]:
        """Return what the snapshot says of the dataset."""
        job, groups = self.job, self.plan.groups
        own = {path: read_planned_attributes(raw) for path, raw in groups.items()}
        kept = dict(find_kept(job.tip, own))
        found = carry_record(job.last, job.record, kept=kept, edited=self.edited)
        found |= job.request.about
        if job.request.recipe is not None:
            found["recipe"] = job.request.recipe.digest
        if ends := labels_at_ends(self.plan, self.facts):
            found["ends"] = dict(ends)
        if "bytes" in found:
            added = [each.added.written for each in self.variables]
            referenced, stored = found["bytes"]
            found["bytes"] = [
                referenced + sum(each.bytes_referenced for each in added),
                stored + sum(each.bytes_stored for each in added),
            ]
        found |= {
            "files": job.state.files + len(job.new),
            "references": int(job.record.get("references", 0)) + references,
            "listing": listing,
            "tail": tail,
        }
        if job.request.catalog is not None:
            found["catalog"] = job.request.catalog.url
        return found

    def describe_made(self, record: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the record of what the dataset is made of now: its path, and its bytes."""
        nodes = [self._node(each.path) for each in self.plan.arrays]
        return describe_made(record, self.plan.groups, nodes)

    def commit(
        self,
        containers: Sequence[VirtualChunkContainer],
        record: Mapping[str, Any],
        objects: Mapping[str, bytes],
        writes: Sequence[Future[None]],
    ) -> str:
        """Make it visible in one step, once all writes have ended.

        Raises:
            ConflictError: Others changed the dataset meanwhile.
        """
        job, plan, tail = self.job, self.plan, self.tail

        def fits(tip: Snapshot) -> bool:
            try:
                beside(job, plan, self.growth, tip)
            except OtherwiseError:
                return False
            return True

        commit = job.request.commit
        rewrite = PendingCommit(
            base=job.tip,
            branch=commit.branch,
            message=commit.message or f"Append {plural(len(job.new), 'file')}",
            nodes=tuple(tail.nodes.get(node.path, node) for node in job.tip.nodes),
            written=tail.written,
            chunks=tail.chunks,
            touched=tail.touched,
            metadata=as_json({**(commit.metadata or {}), METADATA: dict(record)}),
        )
        return publish_rewrite(
            job.target,
            job.assets,
            rewrite,
            own=(*plan.groups, *(array.path for array in plan.arrays)),
            containers=containers,
            fits=fits,
            objects=objects,
            ready=lambda: _await_all(writes),
            check=job.request.check_of(),
        )

    def report(self, snapshot_id: str, findings: tuple[str, ...]) -> BuildReport:
        """Return the report of an append that was committed."""
        job, longer = self.job, {each.added.path for each in self.growth.arrays}
        # of stored values those that were written
        counts = {each.added.path: each.added.references for each in self.growth.references}
        counts |= self.tail.values
        arrays = tuple(
            summarize_array(
                array,
                (node := self._node(array.path)).user_data,
                references=counts.get(array.path, ReferenceCounts()),
                manifests=len(node.manifests) if array.path in longer else 0,
            )
            for array in self.plan.arrays
        )
        known = {each.url_prefix: each for each in self.plan.containers}
        known |= job.target.config.virtual_chunk_containers
        return report_on(
            BuildReport,
            job.target,
            snapshot_id=snapshot_id,
            build_id=str(job.record["build_id"]),
            files_scanned=len(job.new),
            files_reused=job.state.files,
            arrays=arrays,
            manifests=len(self.tail.written),
            manifest_bytes=sum(info.size_bytes for info in self.tail.written.values()),
            containers=tuple(map(entry_of, known.values())),
            findings=findings,
            executor=InProcessExecutor.name,
            seconds=job.clock.seconds,
        )
