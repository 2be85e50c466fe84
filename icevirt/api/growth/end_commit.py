"""Record and commit what new files add to the end of a dataset, and report it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from icevirt.api.growth.after_build import ends_of
from icevirt.api.growth.appending import Appending, not_flat
from icevirt.api.growth.end_plan import beside
from icevirt.api.growth.stored_tail import StoredTail
from icevirt.api.growth.tail_state import TailState, described
from icevirt.api.pipeline.build_records import keep_record
from icevirt.api.pipeline.commit import publish_rewrite
from icevirt.api.pipeline.kept_recipe import keep_recipe
from icevirt.api.pipeline.outcome import data_type_of
from icevirt.api.pipeline.provenance import METADATA
from icevirt.api.pipeline.target import origin_of
from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import ArraySummary, BuildReport, ReferenceCounts
from icevirt.archive.reports.card import plural
from icevirt.catalog.listings import GrownListing
from icevirt.catalog.parts import MARK, mark
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.snapshot import ArrayNode, GroupNode, Snapshot, chunk_extents, document_of
from icevirt.objects.authorize import entry_of
from icevirt.planning.lengthened import Lengthened, OtherwiseError
from icevirt.planning.reader_support import readers_of_json
from icevirt.repo.commits.pending_commit import PendingCommit
from icevirt.repo.layout import WORK
from icevirt.repo.settings import as_json
from icevirt.storage.protocol import Below
from icevirt.versioning.merge.build_merge import BuiltArray
from icevirt.versioning.merge.kept_nodes import attributes_of, is_same, planned_attributes

_DROPPED = ("inputs", "asked", "plan", "record", "held", "tried")
"""What is true of a build alone."""
_TABLES = ("refs/", "arrays/", "more/")  # of a part, which counts once its files are there


def keep_listing(job: Appending, listing: GrownListing) -> list[Future[None]]:
    """Begin to write the list of the dataset's files."""
    work = Below(job.target.storage, f"{WORK[0]}/")

    def put() -> None:
        for path, raw in listing.objects.items():
            work.put(path, raw)

    return [job.pool.submit(put)]


def keep_made(
    job: Appending, plan: BuildPlan, tail: StoredTail, recorded: Mapping[str, Any]
) -> list[Future[None]]:
    """Begin to write the recipe, and the record of what the dataset is made of now."""
    storage, recipe = job.target.storage, job.request.recipe
    nodes = {
        each.path: tail.nodes.get(each.path) or job.tip.node(each.path) for each in plan.arrays
    }
    arrays = {
        path: BuiltArray(node.user_data, node.id, node.manifests)
        for path, node in nodes.items()
        if isinstance(node, ArrayNode)
    }
    found = [job.pool.submit(keep_record, storage, recorded, groups=plan.groups, arrays=arrays)]
    if recipe is not None:
        found.append(job.pool.submit(keep_recipe, storage, recipe))
    return found


def keep_scan(job: Appending) -> list[Future[None]]:
    """Begin to put what was scanned into the catalog of the dataset."""
    kept = job.request.catalog
    if kept is None:
        return []
    is_known = job.record.get("catalog") == kept.url
    new = {
        info.path: job.scratch.get(info.path)
        for info in job.scratch.list()
        if info.path not in job.state.described
        and info.path not in job.borrowed
        and info.path != MARK
    }
    if not is_known:
        mark(kept)
    first = [
        job.pool.submit(kept.put, path, raw)
        for path, raw in new.items()
        if path.startswith(_TABLES) or (path.startswith("scans/") and not is_known)
    ]

    def put_files() -> None:
        for each in first:
            each.result()
        for path, raw in new.items():
            if path.startswith("files/"):
                kept.put(path, raw)

    return [job.pool.submit(put_files)]


def next_state(
    job: Appending,
    facts: CatalogFacts,
    plan: BuildPlan,
    tail: StoredTail,
    pieces: tuple[tuple[str, int], ...],
) -> TailState:
    """Return what the next append goes on from."""
    ends = ends_of(plan, facts.files, facts.arrays)
    if ends is None:
        not_flat("too many files lie at the ends")
    longer = {path: node.shape for path, node in tail.nodes.items()}
    decided = {
        path: replace(each, shape=longer.get(path, each.shape))
        for path, each in job.state.decided.items()
    }
    _, files, objects = described(job.scratch, plan.files.take(ends), job.state.identity)
    return replace(
        job.state,
        decided=decided,
        ends=files,
        files=job.state.files + len(job.new),
        pieces=pieces,
        hot=tail.hot,
        described=objects,
    )


def record_of(  # noqa: PLR0917 - what a snapshot says
    job: Appending,
    plan: BuildPlan,
    tail: str,
    pieces: tuple[tuple[str, int], ...],
    references: int,
    edited: Mapping[str, str],
    growth: Lengthened,
    ends: Mapping[str, list[str]],
) -> dict[str, Any]:
    """Return what the snapshot says of the dataset."""
    found = {name: value for name, value in job.record.items() if name not in _DROPPED}
    found |= job.request.about
    if job.request.recipe is not None:
        found["recipe"] = job.request.recipe.digest
    if ends:
        found["ends"] = dict(ends)
    if "bytes" in found:
        added = [each.added.written for each in growth.arrays]
        referenced, stored = found["bytes"]
        found["bytes"] = [
            referenced + sum(each.bytes_referenced for each in added),
            stored + sum(each.bytes_stored for each in added),
        ]
    found.pop("born", None)
    found |= origin_of(job.last, job.record) | {
        "files": job.state.files + len(job.new),
        "references": int(job.record.get("references", 0)) + references,
        "listing": pieces[-1][0],
        "tail": tail,
    }
    if job.request.catalog is not None:
        found["catalog"] = job.request.catalog.url
    kept = {path: names for path in plan.groups if (names := _others(job, plan, path))}
    return found | {"kept": kept} | ({"edited": dict(edited)} if edited else {})


def _others(job: Appending, plan: BuildPlan, path: str) -> list[str]:
    """Return the attributes of a group that are not as the build would give them."""
    node = job.tip.find(path)
    if not isinstance(node, GroupNode):
        return []
    planned = planned_attributes(plan.groups[path])
    there = attributes_of(node)
    return sorted(
        name
        for name, value in there.items()
        if name not in planned or not is_same(value, planned[name])
    )


def commit_tail(  # noqa: PLR0917 - what is committed
    job: Appending,
    plan: BuildPlan,
    growth: Lengthened,
    tail: StoredTail,
    containers: Sequence[VirtualChunkContainer],
    recorded: Mapping[str, Any],
    writes: Sequence[Future[None]],
) -> str:
    """Make it visible in one step, once all writes have ended.

    Raises:
        ConflictError: Others changed the dataset meanwhile.
    """

    def fits(tip: Snapshot) -> bool:
        try:
            beside(job, plan, growth, tip)
        except OtherwiseError:
            return False
        return True

    commit = job.request.commit
    nodes = tuple(tail.nodes.get(node.path, node) for node in job.tip.nodes)
    rewrite = PendingCommit(
        base=job.tip,
        branch=commit.branch,
        message=commit.message or f"Append {plural(len(job.new), 'file')}",
        nodes=nodes,
        written=tail.written,
        chunks=tail.chunks,
        touched=tail.touched,
        metadata=as_json({**(commit.metadata or {}), METADATA: dict(recorded)}),
    )
    return publish_rewrite(
        job.target,
        job.assets,
        rewrite,
        own=(*plan.groups, *(array.path for array in plan.arrays)),
        containers=containers,
        fits=fits,
        ready=lambda: await_all(writes),
    )


def await_all(writes: Sequence[Future[None]]) -> None:
    """Wait until all is written; raise what went wrong."""
    for each in writes:
        each.result()


def report_of(  # noqa: PLR0917 - what a report says
    job: Appending,
    plan: BuildPlan,
    growth: Lengthened,
    tail: StoredTail,
    snapshot_id: str,
    findings: tuple[str, ...],
) -> BuildReport:
    """Return the report of an append that was committed."""
    longer = {each.added.path: each for each in growth.arrays}
    counts = _references(growth, tail)
    arrays = []
    for array in plan.arrays:
        node = tail.nodes.get(array.path) or job.tip.node(array.path)
        assert isinstance(node, ArrayNode)
        document = document_of(node)
        arrays.append(
            ArraySummary(
                path=array.path,
                data_type=data_type_of(array),
                shape=node.shape,
                chunk_shape=chunk_extents(document["chunk_grid"]),
                dimension_names=array.schema.dimension_names,
                references=counts.get(array.path, ReferenceCounts()),
                manifests=len(node.manifests) if array.path in longer else 0,
                readers=readers_of_json(node.user_data),
            )
        )
    known = job.target.config.virtual_chunk_containers
    return BuildReport(
        repo=job.target.storage.url,
        branch=job.target.branch,
        group=job.target.group,
        snapshot_id=snapshot_id,
        build_id=str(job.record["build_id"]),
        already_built=False,
        files_scanned=len(job.new),
        files_reused=job.state.files,
        bad_files=(),
        arrays=tuple(arrays),
        manifests=len(tail.written),
        manifest_bytes=sum(info.size_bytes for info in tail.written.values()),
        containers=tuple(
            map(entry_of, {**{e.url_prefix: e for e in plan.containers}, **known}.values())
        ),
        findings=findings,
        executor=InProcessExecutor.name,
        seconds=job.clock.seconds,
    )


def _references(growth: Lengthened, tail: StoredTail) -> dict[str, ReferenceCounts]:
    """Return the references that were added, by path; of stored values those that were written."""
    counts = {each.added.path: each.added.references for each in growth.references}
    return {**counts, **tail.values}
