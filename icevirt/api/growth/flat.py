"""Append files behind the last step of a dataset, without a look at the rest of it.

The new files are planned with those at both ends of the dataset, which stand for all. If the plan
decides what the last build decided and puts the new files last, arrays become longer: references
join those of earlier appends in one small manifest, and stored values are written again from their
last chunk on. Anything else is left to a plan of all files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from icevirt.api.growth.appending import Appending, not_flat
from icevirt.api.growth.end_commit import (
    await_all,
    commit_tail,
    keep_listing,
    keep_made,
    keep_scan,
    next_state,
    record_of,
    report_of,
)
from icevirt.api.growth.end_plan import (
    added_by,
    borrow,
    containers_lacking,
    look_at_others,
    planned_ends,
    refuse_lost,
    scan_of,
    scanned_ends,
)
from icevirt.api.growth.stored_tail import ManifestReads, store_tail
from icevirt.api.growth.stored_variables import StoredVariables
from icevirt.api.growth.tail_state import TailState, name_of, packed, path_of_tail, tail_of
from icevirt.api.pipeline.build_steps import Request
from icevirt.api.pipeline.commit import refuse_changed
from icevirt.api.pipeline.events import Clock, tell
from icevirt.api.pipeline.provenance import provenance_of
from icevirt.api.pipeline.target import Target
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import BuildReport
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.listings import grown_listing
from icevirt.ids import ObjectId12
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.objects.authorize import entry_of
from icevirt.objects.source_access import carrying, in_force
from icevirt.planning.axes.axis_ends import labels_at_ends
from icevirt.planning.lengthened import Growing, OtherwiseError, lengthened
from icevirt.planning.stored_form import forms_of
from icevirt.repo.assets import Assets
from icevirt.repo.authorization import authorized
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Below
from icevirt.wire.manifests.encoding import ManifestEncoding

FEW = 64
"""New files that this process scans one by one; an executor scans more of them before."""

_AT_ONCE = 16  # requests
_DECIDING = (
    *("combine", "combine_attrs", "data_vars", "duplicates", "edits", "float_variables"),
    *("missing", "on_mismatch", "pad", "spacing", "tolerance", "chunk_grid", "labels"),
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
) -> BuildReport | NotFlat:
    """Append files that a dataset does not hold, if they only make it longer.

    Args:
        request: As for a build of all files; its sources and what it says of held files are not
            looked at.
        new: The files, none of which the dataset holds.
        target: The branch, as it was when the files were compared with those of the dataset.
        clock: Times the phases.
        tail: What the last build recorded of its end, where it was read already.
        scanned_before: Whether the request's catalog describes the files.

    Returns:
        The report of what was committed; or why nothing was, so that all files have to be planned.

    Raises:
        ConflictError: Others changed the dataset meanwhile; plan again on what they committed.
        SourcesChangedError: New files changed since their scan.
        IcevirtError: As for `icevirt.build`.
    """
    scanned = 0
    try:
        with _begun(request, new, target, clock, tail, scanned_before=scanned_before) as job:
            try:
                return _appended(job)
            except OtherwiseError:
                writes = keep_scan(job)  # for the plan of all files
                await_all(writes)
                scanned = len(new) if writes and not scanned_before else 0
                raise
    except OtherwiseError as error:
        tell("append-not-flat", why=str(error))
        return NotFlat(str(error), scanned)


@contextmanager
def _begun(
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
    record = None if last is None else provenance_of(last, target.group)
    if last is None or record is None:
        not_flat("the group holds nothing that a build made")
    _refuse_unfit(request, record)
    with clock.phase("list"):
        state = tail_of(target.storage, record) if tail is None else tail
    if state is None:
        not_flat("the last build recorded no end that files can follow")
    scratch = state.catalog()
    with clock.phase("list"):
        borrowed = borrow(request, new, scratch) if scanned_before else frozenset[str]()
    encoding = ManifestEncoding.of_config(target.config.document)
    assets = Assets(target.storage, manifests=encoding, compares=True)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="icevirt-append") as pool:
        reads = ManifestReads(assets, pool)
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


def _appended(job: Appending) -> BuildReport:
    """Scan, plan, write and commit."""
    state, storage, clock = job.state, job.target.storage, job.clock
    work = Below(storage, f"{WORK[0]}/")
    growing = job.pool.submit(grown_listing, work, state.pieces, state.files, job.new)
    with clock.phase("scan"):
        scan = scan_of(job)
        closed = scanned_ends(scan, most=FEW)
    with clock.phase("plan"):
        facts, plan, steps, gaps = planned_ends(job, scan, closed)
        growth = lengthened(
            plan,
            facts,
            len(state.ends),
            state.decided,
            state.groups,
            job.tip,
            steps,
            forms_of(job.record),
        )
        kept_notes, edited = look_at_others(job, plan, growth)
        containers = containers_lacking(job, plan)
    with clock.phase("write"):
        listing = growing.result()
        writes = [*keep_listing(job, listing), *keep_scan(job)]
        writes.append(job.pool.submit(carrying(refuse_changed), job.new))
        added = added_by(job, plan, growth)
        refuse_lost(growth, added)
        stored = store_tail(
            job.assets,
            job.tip,
            growth,
            added,
            hot=state.hot,
            read=job.reads,
            variables=_stored_variables(job, plan, containers),
            pool=job.pool,
        )
    with clock.phase("commit"):
        raw = packed(next_state(job, facts, plan, stored, listing.pieces))
        writes += [*stored.writes, job.pool.submit(storage.put, path_of_tail(name_of(raw)), raw)]
        count = sum(len(table) for _, table in added.references)
        ends = labels_at_ends(plan, facts)
        recorded = record_of(job, plan, name_of(raw), listing.pieces, count, edited, growth, ends)
        writes += keep_made(job, plan, stored, recorded)
        snapshot_id = commit_tail(job, plan, growth, stored, containers, recorded, writes)
    findings = (*closed.findings, *kept_notes, *gaps)
    return report_of(job, plan, growth, stored, snapshot_id, findings)


def _stored_variables(
    job: Appending, plan: BuildPlan, lacking: Sequence[VirtualChunkContainer]
) -> StoredVariables:
    """Return what stores variables; it reads files where the new ones lie, and no others."""
    config = job.target.config
    for each in lacking:
        config.set_virtual_chunk_container(each)
    return StoredVariables(
        storage=job.target.storage,
        head=job.target.head,
        config=config,
        access=authorized(in_force().authorization(map(entry_of, plan.containers))),
    )


def _refuse_unfit(request: Request, record: Mapping[str, Any]) -> None:
    """Refuse what is planned from all files in any case.

    Raises:
        OtherwiseError: It is.
    """
    choices, recorded = request.choices, record.get("combine", {})
    if request.absent or recorded.get("absent"):
        not_flat("steps of files that are gone read as missing")
    if len(request.options.concat_dims) != 1:
        not_flat("the last build grew along no dimension, or along several")
    if record.get("eras", 1) != 1 or choices.combine.on_mismatch == "eras":
        not_flat("files may become several eras")
    if request.nest is not None or request.commit.publish_as:
        not_flat("files are published elsewhere, or placed by nested lists")
    if any(not isinstance(each, str) for each in choices.labels.values()):
        not_flat("labels of all files are listed")
    asked = {name: value for name, value in request.recorded.items() if name in _DECIDING}
    before = {name: recorded[name] for name in recorded if name in _DECIDING}
    if json.dumps(asked, sort_keys=True) != json.dumps(before, sort_keys=True):
        not_flat("files are combined with other options than before")
