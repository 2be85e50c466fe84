"""Plan new files with those at the ends of a dataset, and collect what they add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from icevirt.api.dataset.events import Clock
from icevirt.api.dataset.records import RecordedBuild, identity_by
from icevirt.api.dataset.replacing import kept_in
from icevirt.api.dataset.scanning import Scan, closed_catalog, scan_missing
from icevirt.api.dataset.stored_tail import ManifestReads
from icevirt.api.dataset.tail import TailState
from icevirt.api.dataset.target import Target, made_by
from icevirt.api.dataset.transaction import Request
from icevirt.archive.catalog import path_of
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan, FileRows
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.facts_beside import objects_of
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.errors import IcevirtError
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.ids import ObjectId8
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot
from icevirt.objects.source_access import in_force
from icevirt.planning.axes.axis_ends import new_gaps
from icevirt.planning.combine.combine import combined
from icevirt.planning.combine.prepare import prepare
from icevirt.planning.edits.checked_names import refuse_void_options
from icevirt.planning.lengthened import Lengthened, OtherwiseError, steps_behind
from icevirt.planning.schedule.write_tasks import bundle, few_drafts
from icevirt.repo.assets import Assets
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.source_values import Reading
from icevirt.tasks.write_manifests import AddedChunks, WriteTask, added_chunks
from icevirt.versioning.merge.kept_nodes import (
    Claim,
    attributes_of,
    losses,
    moved_manifests,
    planned_attributes,
    settled,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """One append, and what it stands on."""

    request: Request
    new: tuple[SourceFile, ...]
    target: Target
    clock: Clock
    last: SnapshotSummary  # of the last build or append
    record: Mapping[str, Any]  # that it left
    state: TailState
    assets: Assets
    scratch: MemoryStorage  # a catalog of the ends and the new files
    borrowed: frozenset[str]  # objects in it that come from the catalog of the dataset
    pool: Executor  # makes requests beside each other
    tip_read: Future[Snapshot]
    reads: ManifestReads

    @property
    def tip(self) -> Snapshot:
        """What the branch holds."""
        return self.tip_read.result()


def not_flat(why: str) -> NoReturn:
    """Leave an append to a plan of all files.

    Raises:
        OtherwiseError: Always.
    """
    raise OtherwiseError(why)


_SHOWN = 10  # paths in a line
_BORROWED = 1 << 28  # bytes of scans that are held in memory


def scan_of(job: Appending) -> Scan:
    """Return the scan of the new files, into a catalog that describes the ends.

    Raises:
        OtherwiseError: The ends were scanned with other options or scanners.
    """
    options = job.request.options
    scan = Scan(
        files=SourceFiles([*job.state.ends, *job.new]),
        options=options,
        catalog=job.scratch,
        max_bad_files=0,
        progress=job.request.progress,
        limits=job.request.choices.scan.limits,
        unopened=len(job.state.ends),
        also=tuple({job.state.identity, *job.request.also}),
    )
    before = identity_by(options, job.record.get("scanners") or {})
    if job.state.identity not in (scan.identity, before):
        not_flat("the options of the scan are not those before")
    return scan


def borrow(request: Request, new: Sequence[SourceFile], into: MemoryStorage) -> frozenset[str]:
    """Copy what the catalog of a dataset says of new files into memory; return its objects.

    Raises:
        OtherwiseError: It is more than a process should hold.
    """
    source, options = request.catalog, request.options
    if source is None or not source.exists():
        return frozenset()
    scan = Scan(
        files=SourceFiles(new),
        options=options,
        catalog=source,
        max_bad_files=0,
        progress=request.progress,
        limits=request.choices.scan.limits,
        also=request.also,
    )
    known = scan.settled()
    used = [known.parts[at] for at in np.unique(known.part[known.part >= 0]).tolist()]
    beside = objects_of(source, used)
    paths = [path for part in used for path in beside.get(part, ())]
    paths += [path_of(table, part) for part in used for table in ("refs", "arrays", "files")]
    left = _BORROWED
    for path in paths:
        raw = source.get(path)
        left -= len(raw)
        if left < 0:
            not_flat("the new files have too many references to be planned in one process")
        into.put(path, raw)
    return frozenset(paths)


def scanned_ends(scan: Scan, *, most: int) -> ClosedCatalog:
    """Scan the new files, unless these are more than a few; return their facts and the ends'.

    Raises:
        OtherwiseError: Files are bad, or facts are lacking of those that are not to be opened.
    """
    executor = InProcessExecutor()
    known = scan.settled()
    if (known.missing < scan.unopened).any():
        not_flat("the record of the end lacks files")
    if len(known.missing) > most:
        not_flat(f"more than {most:,} files are to be scanned")
    scan_missing(executor, scan)
    try:
        closed = closed_catalog(executor, scan)
    except IcevirtError as error:
        raise OtherwiseError(error.what) from error
    if closed.bad:
        not_flat("files cannot be scanned")
    return closed


def planned_ends(
    job: Appending, scan: Scan, closed: ClosedCatalog
) -> tuple[CatalogFacts, BuildPlan, int | None, tuple[str, ...]]:
    """Combine the files at the ends with the new ones.

    Returns:
        The facts that were combined, the plan, behind which step the new files lie where a person
        said how far apart steps are, and remarks on steps that are missing.

    Raises:
        OtherwiseError: By themselves they do not combine.
    """
    facts = replace(closed.facts, compare=_unread, values=_unread)
    if facts.places is not facts.files.url:
        not_flat("files refer to other files")
    build_id = str(job.record["build_id"])
    group = job.request.spec.group
    spec = replace(
        job.request.choices.spec(scan.options.concat_dims, group=group),
        build_id=build_id,
        kept=kept_in(job.tip.below(job.target.group), job.record, job.target.group),
    )
    try:
        facts, spec = job.request.choices.edits.applied(facts, spec)
        prepared = prepare(facts, spec)
        refuse_void_options(prepared.facts, spec, [each.name for each in prepared.new])
        # a plan with a step for each that lies between the ends would be as long as the dataset
        plan = combined(prepared, replace(spec, spacing={}))
        steps = steps_behind(prepared, spec, len(job.state.ends))
    except IcevirtError as error:
        raise OtherwiseError(f"by themselves they do not combine: {error.what}") from error
    if prepared.left_out or prepared.cuts:
        not_flat("files hold the same steps, and one of them counts")
    (axis,) = prepared.cells(replace(spec, spacing={})).axes
    ends, there = len(job.state.ends), _steps_there(job, plan)
    gaps = tuple(new_gaps(prepared.facts, axis, ends, there))
    plan = job.request.commit.named_containers.contained(facts, plan)
    return prepared.facts, plan, steps, gaps if steps is None else ()


def _steps_there(job: Appending, plan: BuildPlan) -> int | None:
    """Return how long the dataset is along its dimension."""
    (name,) = plan.concat_dim
    for array in plan.arrays:
        node = job.tip.find(array.path)
        if isinstance(node, ArrayNode) and name in (names := node.dimension_names or ()):
            return node.shape[names.index(name)]
    return None


def containers_lacking(job: Appending, plan: BuildPlan) -> tuple[VirtualChunkContainer, ...]:
    """Return the containers of the new files that the repository lacks."""
    known = job.target.config.virtual_chunk_containers
    return tuple(
        each
        for each in plan.containers
        if each.name is not None or not any(map(each.url_prefix.startswith, known))
    )


def look_at_others(
    job: Appending, plan: BuildPlan, growth: Lengthened
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Make sure that what others made fits; return what to say of it, and what they changed.

    Raises:
        OtherwiseError: An array of others has steps of the dataset, and would lack the new.
    """
    for path, raw in plan.groups.items():
        node = job.tip.find(path)
        there = attributes_of(node) if isinstance(node, GroupNode) else {}
        for name in planned_attributes(raw):
            if name not in there:
                not_flat(f"others removed the attribute {name} of {path}")
    notes = beside(job, plan, growth, job.tip)
    edited: dict[str, str] = dict(job.record.get("edited", {}))
    if job.last.id != job.target.tip or isinstance(job.last, RecordedBuild):
        edited |= _edited(job, plan)
    return notes, edited


def beside(job: Appending, plan: BuildPlan, growth: Lengthened, tip: Snapshot) -> tuple[str, ...]:
    """Make sure that what others made beside the dataset fits; return what to say of it.

    Args:
        job: The append.
        plan: Of the ends.
        growth: What becomes longer.
        tip: In which the dataset is as the append found it.

    Raises:
        OtherwiseError: An array of others has steps of the dataset, and would lack the new.
    """
    own: dict[str, Node] = {array.path: tip.node(array.path) for array in plan.arrays}
    own |= {path: node for path in plan.groups if (node := tip.find(path)) is not None}
    claim = Claim(group=job.target.group, replaces=True, made=own)
    arrays = {array.path: tip.node(array.path).user_data for array in plan.arrays}
    arrays |= {e.added.path: e.zarr_json for e in growth.arrays}
    found = settled(tip, claim, groups=plan.groups, arrays=arrays)
    if found.unfit:
        path, why = next(iter(sorted(found.unfit.items())))
        not_flat(f"{path} was made by others, and {why}")
    kept = sorted(path for path in found.kept if isinstance(tip.find(path), ArrayNode))
    note = f"kept, because the last build did not make it: {', '.join(kept[:_SHOWN])}"
    return (note,) if kept else ()


def _document(job: Appending, path: str) -> bytes:
    return job.tip.node(path).user_data


def _edited(job: Appending, plan: BuildPlan) -> dict[str, str]:
    """Return what others changed of the dataset's arrays since the last append, by path."""
    made = made_by(job.assets, job.last, plan.group)
    claim = Claim(group=job.target.group, replaces=True, made=made)
    moved = job.target.rearranged(job.last, moved_manifests(job.tip, claim))
    arrays = {array.path: _document(job, array.path) for array in plan.arrays}
    found = settled(job.tip, claim, groups=plan.groups, arrays=arrays)
    undone = losses(job.tip, claim, found, groups=plan.groups, arrays=arrays, rearranged=moved)
    return {each.path: each.what for each in undone if each.path in arrays}


def added_by(job: Appending, plan: BuildPlan, growth: Lengthened) -> AddedChunks:
    """Return the references and values of the new files."""
    config = job.target.config
    added = growth.added(plan)
    task = WriteTask(
        parcels=(),
        catalog=job.scratch,
        repo=job.target.storage,
        record=job.scratch,
        inline_threshold=config.inline_threshold,
        encoding=job.assets.manifests,
        named=tuple((each.url_prefix, each.name) for each in plan.containers if each.name),
        reading=Reading(
            group=job.request.options.group,
            limits=job.request.choices.scan.limits,
            access=in_force(),
        ),
    )
    rows = FileRows.of(plan.files)
    found = added_chunks(task, (bundle(added, [draft], rows) for draft in few_drafts(added)))
    given = {
        each.node.id: each.added.values for each in growth.values if each.added.values is not None
    }
    return replace(found, values={**found.values, **given})


def _unread(*_: Any, **__: Any) -> NoReturn:
    """Stand for the values of files that are not opened."""
    not_flat("values of files have to be compared")


def refuse_lost(growth: Lengthened, added: AddedChunks) -> None:
    """Compare what is added with what was scanned, array by array.

    Raises:
        OtherwiseError: References are missing, or there are others.
    """
    found: Counter[ObjectId8] = Counter()
    for key, table in added.references:
        found[key] += len(table)
    for each in (*growth.references, *growth.stored):
        if each.expected is not None and found[each.node.id] != each.expected:
            not_flat(f"references of {each.node.path} do not lie as they were scanned")
