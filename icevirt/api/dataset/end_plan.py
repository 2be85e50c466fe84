"""Scan the files at the ends of a dataset and new ones, and collect what these add to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from icevirt.api.dataset.change import Request
from icevirt.api.dataset.planning import Planned
from icevirt.api.dataset.records import RecordedBuild, identity_by
from icevirt.api.dataset.replacing import find_undone
from icevirt.api.dataset.scanning import Scan, close_catalog, scan_missing
from icevirt.api.dataset.stored_tail import ManifestReads, read_whole
from icevirt.api.dataset.tail import TailState
from icevirt.api.dataset.target import Target, nodes_of
from icevirt.api.events import Clock
from icevirt.archive.catalog import path_of
from icevirt.archive.plan import BuildPlan, FileRows
from icevirt.archive.sources import SourceFile
from icevirt.catalog.facts_beside import objects_of
from icevirt.catalog.facts_reader import ClosedCatalog
from icevirt.errors import IcevirtError
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.ids import ObjectId8
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot
from icevirt.planning.filled_cells import CubeGrowth, coordinate_along, labels_of, place_along
from icevirt.planning.lengthened import Lengthened, OtherwiseError
from icevirt.planning.schedule.write_tasks import bundle, few_drafts
from icevirt.planning.stored_form import forms_of
from icevirt.planning.twins import find_unmarked, leave_behind
from icevirt.repo.assets import Assets
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.source_values import Reading
from icevirt.tasks.write_manifests import AddedChunks, WriteTask, add_chunks
from icevirt.versioning.merge.kept_nodes import (
    Claim,
    attributes_of,
    read_planned_attributes,
    settle_base,
)

_SHOWN = 10  # paths in a line
_BORROWED = 1 << 28  # bytes of scans that are held in memory


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
    kept: dict[str, Future[None]] = field(default_factory=dict)  # of scans, on their way

    @property
    def tip(self) -> Snapshot:
        """What the branch holds."""
        return self.tip_read.result()


def scan_of(job: Appending) -> Scan:
    """Return the scan of the new files, into a catalog that describes the ends.

    Raises:
        OtherwiseError: The ends were scanned with other options or scanners.
    """
    options, ends = job.request.options, job.state.ends
    scan = replace(
        job.request.scan([*ends, *job.new], catalog=job.scratch),
        unopened=len(ends),
        also=tuple({job.state.identity, *job.request.also}),
    )
    before = identity_by(options, job.record.get("scanners") or {})
    if job.state.identity not in (scan.identity, before):
        raise OtherwiseError("the options of the scan are not those before")
    return scan


def borrow(request: Request, new: Sequence[SourceFile], into: MemoryStorage) -> frozenset[str]:
    """Copy what the catalog of a dataset says of new files into memory; return its objects.

    Raises:
        OtherwiseError: It is more than a process should hold.
    """
    source = request.catalog
    if source is None or not source.exists():
        return frozenset()
    known = request.scan(new).settled()
    used = [known.parts[at] for at in np.unique(known.part[known.part >= 0]).tolist()]
    beside = objects_of(source, used)
    paths = [path for part in used for path in beside.get(part, ())]
    paths += [path_of(table, part) for part in used for table in ("refs", "arrays", "files")]
    left = _BORROWED
    for path in paths:
        raw = source.get(path)
        left -= len(raw)
        if left < 0:
            raise OtherwiseError(
                "the new files have too many references to be planned in one process"
            )
        into.put(path, raw)
    return frozenset(paths)


def scan_ends(scan: Scan, *, most: int) -> ClosedCatalog:
    """Scan the new files, unless these are more than a few; return their facts and the ends'.

    Raises:
        OtherwiseError: Files are bad, or facts are lacking of those that are not to be opened.
    """
    executor = InProcessExecutor()
    known = scan.settled()
    if (known.missing < scan.unopened).any():
        raise OtherwiseError("the record of the end lacks files")
    if len(known.missing) > most:
        raise OtherwiseError(f"more than {most:,} files are to be scanned")
    scan_missing(executor, scan)
    try:
        closed = close_catalog(executor, scan)
    except IcevirtError as error:
        raise OtherwiseError(error.what) from error
    if closed.bad:
        raise OtherwiseError("files cannot be scanned")
    return closed


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
        for name in read_planned_attributes(raw):
            if name not in there:
                raise OtherwiseError(f"others removed the attribute {name} of {path}")
    notes = beside(job, plan, growth, job.tip)
    edited: dict[str, str] = dict(job.record.get("edited", {}))
    if job.last.id != job.target.tip or isinstance(job.last, RecordedBuild):
        changed = _find_edited(job, plan)
        edited = leave_behind(job.record, {**edited, **changed}, changed)
    else:
        nodes = {node.path: node for node in job.tip.nodes}
        edited |= find_unmarked(job.record, job.last.metadata, nodes)
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
    found = settle_base(tip, claim, groups=plan.groups, arrays=arrays)
    if found.unfit:
        path, why = next(iter(sorted(found.unfit.items())))
        raise OtherwiseError(f"{path} was made by others, and {why}")
    kept = sorted(path for path in found.kept if isinstance(tip.find(path), ArrayNode))
    note = f"kept, because the last build did not make it: {', '.join(kept[:_SHOWN])}"
    return (note,) if kept else ()


def _find_edited(job: Appending, plan: BuildPlan) -> dict[str, str]:
    """Return what others changed of the dataset's arrays since the last append, by path."""
    claim = Claim(
        group=job.target.group,
        replaces=True,
        made=nodes_of(job.assets, job.last, plan.group),
    )
    arrays = {array.path: job.tip.node(array.path).user_data for array in plan.arrays}
    groups, last = plan.groups, job.last
    undone = find_undone(job.target, last, job.tip, claim, groups=groups, arrays=arrays)
    found = {each.path: each.what for each in undone if each.path in arrays}
    if not isinstance(last, RecordedBuild):
        found |= find_unmarked(job.record, last.metadata, claim.made)
    return found


def collect_added(job: Appending, plan: BuildPlan, growth: Lengthened) -> AddedChunks:
    """Return the references and values of the new files.

    Raises:
        OtherwiseError: References that were scanned are missing, or there are others.
    """
    limits = job.request.choices.scan.limits
    task = WriteTask(
        parcels=(),
        catalog=job.scratch,
        repo=job.target.storage,
        record=job.scratch,
        inline_threshold=job.target.config.inline_threshold,
        encoding=job.assets.manifests,
        named=tuple((each.url_prefix, each.name) for each in plan.containers if each.name),
        reading=Reading.of(job.request.options, limits),
    )
    added, rows = growth.plan_added(plan), FileRows.of(plan.files)
    found = add_chunks(task, (bundle(added, [draft], rows) for draft in few_drafts(added)))
    counts: Counter[ObjectId8] = Counter()
    for key, table in found.references:
        counts[key] += len(table)
    for each in (*growth.references, *growth.stored):
        if each.expected is not None and counts[each.node.id] != each.expected:
            raise OtherwiseError(f"references of {each.node.path} do not lie as they were scanned")
    given = {
        each.node.id: each.added.values for each in growth.values if each.added.values is not None
    }
    return replace(found, values={**found.values, **given})


def fill_cube(job: Appending, planned: Planned) -> Lengthened:
    """Return what the new files add to a dataset whose files lie along several dimensions.

    Raises:
        OtherwiseError: They change something else, too, or no labels say where they belong.
    """
    plan, new = planned.plan, {file.url for file in job.new}
    if forms_of(job.record):
        raise OtherwiseError("variables of files along several dimensions are stored")
    is_new = np.array([plan.files.url[row] in new for row in range(len(plan.files))], np.bool_)
    named = [coordinate_along(plan, name) for name in plan.concat_dim]
    axes = {}
    for each in named:
        node = job.tip.find(each.path)
        if not isinstance(node, ArrayNode) or node.id != each.node_id:
            raise OtherwiseError(f"{each.path} is no longer there, or another array")
        keys = [ref.object_id for ref in node.manifests]
        manifests = {key: future.result() for key, future in job.reads.of(keys).items()}
        held = read_whole(job.assets, node, manifests)
        (name,) = each.schema.dimension_names
        axes[str(name)] = place_along(each, labels_of(each, plan, planned.facts), held, is_new)
    cube = CubeGrowth(
        plan=plan,
        facts=planned.facts,
        ends=len(job.state.ends),
        is_new=is_new,
        axes=axes,
        is_reserving=job.request.spec.options.missing == "reserve",
    )
    return cube.find(job.state.decided, job.state.groups, job.tip)
