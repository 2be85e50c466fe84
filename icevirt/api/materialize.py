"""Implement `icevirt.materialize`: store a variable, or a region of it, in the repository."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

import numpy as np

from icevirt.access.authorizing import refuse_unreadable
from icevirt.amounts import volume
from icevirt.api.events import Clock, long_running
from icevirt.api.storing import ArrayStorage, StoredIn, dataset_of, files_of, index_of
from icevirt.api.upkeep.copies import (
    StoredWork,
    blocks_of,
    new_groups,
    store_levels,
    twin_of,
)
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.reports.build import LayoutCost, Progress
from icevirt.archive.reports.relocation import MaterializeReport
from icevirt.errors import (
    ConflictError,
    InvalidInputError,
    StorageError,
    UnsupportedError,
)
from icevirt.execution.executor import job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import ExecutorChoice, executor_of
from icevirt.model import paths
from icevirt.model.json import JSONObject
from icevirt.model.multiscales import SAID
from icevirt.model.snapshot import (
    ArrayNode,
    Extents,
    Snapshot,
    chunk_shape,
    document_of,
)
from icevirt.planning.levels import Level, plan_level
from icevirt.planning.reader_support import can_encode
from icevirt.planning.schedule.twin_estimate import cost_of_layout, edges_of, steps_of
from icevirt.planning.stored_form import StoredForm, json_of_form, refuse_misfit
from icevirt.planning.twins import is_twin, rewritten_bytes
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.repo import layout
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.authorization import Authorization, authorize
from icevirt.repo.commits.pending_commit import MAX_LISTED, PendingCommit
from icevirt.repo.made_here import identify, own_or
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState, refuse_read_only
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.repo.summary import array_summary
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Storage
from icevirt.tasks.copy_chunks import Copied, CopyTask
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.repo_updates import Edit
from icevirt.versioning.v1_migration import refuse_v1
from icevirt.wire.manifests.encoding import ManifestEncoding

_FEW = 200  # chunks, that are stored faster than processes start


def materialize(
    repo: StorageLike,
    variable: str,
    *,
    chunks: Mapping[str, int] | None = None,
    where: Where | None = None,
    codec: Literal["zstd"] | None = None,
    beside: bool = False,
    coarsen: Mapping[str, int] | None = None,
    levels: int = 1,
    branch: str = "main",
    authorize_virtual_chunk_access: Authorization = None,
    message: str | None = None,
    dry_run: bool = False,
    executor: ExecutorChoice = None,
    progress: Callable[[Progress], None] | None = None,
) -> MaterializeReport:
    """Store a variable, or a region of it, in the repository; everything else stays virtual.

    Chunks that keep their shape and codecs are copied as they are. Other chunks are decoded, cut
    and encoded. Every source file has to be what was scanned, and each stored chunk is read again
    and compared before the commit. Values do not change. Called again, it stores what is left. A
    whole variable of a dataset stays stored, in its chunks and codecs, when the dataset grows or is
    made anew.

    Args:
        repo: Path or URL of the repository.
        variable: Path of the array, like "tas" or "/group/tas".
        chunks: New chunk lengths by dimension, like ``{"time": 365}``; other dimensions keep
            theirs. Only for whole variables.
        where: A region, by labels of coordinates: ``{"time": "2024"}``,
            ``{"time": slice("2020", "2024"), "y": slice(10, 20)}``. It is extended to whole chunks.
        codec: "zstd" instead of the array's codecs; by default where chunks get another shape and
            the array's codec has no encoder, as that of GRIB. Only for whole variables.
        beside: Store a second array in the other chunks, NAME_twin, and leave the variable as it
            is. Appends and updates keep both in step, and the engine reads for each selection the
            one that costs less.
        coarsen: With ``beside``: store means of blocks instead, of so many elements along each
            dimension, like ``{"lat": 2, "lon": 2}``: overviews for maps, in groups below
            ``coarsened``. Missing values are left out, and the last block of a dimension may have
            less elements. Values are weighed by the cosine of their latitude where the grid is
            one of latitudes and longitudes. ``chunks`` is for the chunks of the copies then.
        levels: How many coarser copies: each has blocks that are as many times larger again.
        branch: The branch that the commit goes to.
        authorize_virtual_chunk_access: As for `Repository.open`: prefixes to read below; left out:
            what builds of this user on this machine referred to.
        message: The commit message.
        dry_run: Only say what would be read and stored.
        executor: What runs tasks, as for `build`; by default this process where there is little to
            do, else the active session of Spark, or processes of this machine.
        progress: Called with every step of the long phases.

    Raises:
        InvalidInputError: A dimension, a label or a chunk length is wrong, or a region shall get
            other chunks.
        NodeNotFoundError: There is no such array.
        UnauthorizedError: Files lie below a prefix that was not authorized.
        StaleReferenceError: A source file changed after the scan.
        ConflictError: Another writer changed the array meanwhile.
        UnsupportedError: Values of this type cannot be encoded anew.
        AlreadyExistsError: Another array has the name of the twin.
        StorageError: The disk has too little space.

    Examples:
        >>> chunks = {"time": 12, "lat": 10}
        >>> icevirt.materialize(
        ...     "repo", "tas", chunks=chunks, authorize_virtual_chunk_access=["archive"]
        ... )
        <MaterializeReport /tas on main  30 chunks stored  1.6 MiB>
    """
    clock = Clock(progress)
    storage = storage_of(repo)
    access = authorize(own_or(authorize_virtual_chunk_access, identify(storage)))
    opened = Repository.open(storage, authorize_virtual_chunk_access=access)
    head = opened.head
    refuse_v1(head.read().info, "materializing a variable")
    if not dry_run:
        refuse_read_only(head.read().info)
    session = opened.readonly_session(branch)
    node = session.array(paths.canonical(variable))
    dataset = dataset_of(head, head.read(), branch, node)
    _refuse_twin(node, dataset)
    works, main, found, (region, is_widened) = _plan_works(
        session,
        node,
        dataset,
        access=access,
        chunks=chunks,
        where=where,
        codec=codec,
        beside=beside,
        blocks=blocks_of(node, dataset, coarsen, levels, is_apart=beside and not (where or codec)),
    )
    growing = () if dataset is None else dataset.growing
    if not dry_run:
        refuse_unreadable(session, [node], access)
    with long_running("materialize", clock), job_tags(storage.url), ExitStack() as stack:
        with clock.phase("executor"):
            work_size = 0 if _count(session, node) <= _FEW else None
            running = stack.enter_context(executor_of(executor, work=work_size, phase=clock.phase))
        seen = (storage, layout.snapshot(session.snapshot.id))
        check_before_first(
            running, ClusterNeeds(read=(seen,)) if dry_run else ClusterNeeds(written=(storage,))
        )
        with clock.phase("count"):
            counted = [
                each for work in works.values() for each in work.storage.count(running, clock)
            ]
        if not dry_run:
            _refuse_full(storage, sum(each.bytes_stored for each in counted), node.path)
        is_new = main.storage.zarr_json is not None
        is_needed = bool(sum(each.chunks for each in counted)) or is_new
        stored: dict[str, list[Copied]] = {}
        snapshot_id = None
        if not dry_run and is_needed:
            with clock.phase("store"):
                stored = {path: work.storage.store(running, clock) for path, work in works.items()}
            with clock.phase("commit"):
                snapshot_id = _commit(
                    head,
                    Assets(storage, manifests=main.storage.copy.encoding),
                    before=node,
                    seen=session.snapshot,
                    works=works,
                    stored=stored,
                    groups=tuple(level.group for level in found),
                    branch=branch,
                    message=message or f"Materialize {node.path}{' beside' * beside}",
                )
    made, copied = main.storage.made, [*chain.from_iterable(stored.values())] or counted
    is_counted = bool(stored) or not is_new
    grids = [each.storage.made for each in works.values()]
    return MaterializeReport(
        repo=storage.url,
        branch=branch,
        variable=made.path,
        is_plan=dry_run,
        snapshot_id=snapshot_id,
        region=region,
        is_widened=is_widened,
        chunk_shape=chunk_shape(made) or (),
        is_reencoded=is_new,
        chunks=sum(math.prod(each.num_chunks) for each in grids)
        if is_new
        else sum(each.chunks for each in copied),
        bytes_read=sum(each.bytes_read for each in counted),
        bytes_stored=sum(each.bytes_stored for each in copied)
        if is_counted
        else sum(map(_bytes, grids)),
        tasks=sum(len(each.storage.tasks(running)) for each in works.values()) if is_needed else 0,
        bytes_rewritten=sum(_bytes_rewritten(each, growing) for each in grids) if beside else 0,
        levels=tuple(level.path for level in found),
        **(_layouts(session, node, made, growing) if beside and not found else {}),
        executor=running.name,
        seconds=clock.seconds,
    )


def _plan_works(
    session: Session,
    node: ArrayNode,
    dataset: StoredIn | None,
    *,
    access: Mapping[str, Any],
    chunks: Mapping[str, int] | None,
    where: Where | None,
    codec: str | None,
    beside: bool,
    blocks: Sequence[Mapping[str, int]],
) -> tuple[
    dict[str, StoredWork], StoredWork, list[Level], tuple[tuple[tuple[int, int], ...], bool]
]:
    """Return what is stored by path, the first of it, coarser copies, and the region."""
    twin, before = None, StoredForm()
    if beside and not blocks:
        twin = twin_of(session.snapshot, node, dataset, chunks, where)
        before = StoredForm(of=node.path)
    elif dataset is not None:
        before = dataset.forms.get(node.path, before)
    form = before if blocks else form_of(node, chunks, codec, before)
    if (chunks or codec) and where:
        raise InvalidInputError(
            "a region keeps the chunks and codecs of its variable",
            do=write_remedy(
                "Leave out ",
                write_option("where"),
                ", or ",
                write_code("chunks and codec", "--chunks and --codec"),
                ".",
            ),
            variable=node.path,
        )
    region, box, is_widened = region_of(session, node, where or {})
    config = session.config
    base = CopyTask(
        repo=session.assets.storage,
        node=node,
        access=access,
        beside=twin,
        region=box,
        inline_threshold=config.inline_threshold,
        encoding=ManifestEncoding.of_config(config.document),
        is_listed=_count(session, node) <= MAX_LISTED,
    )
    found = [plan_level(session.snapshot, node, each, chunks or {}) for each in blocks]
    if dataset is not None and found:
        works = store_levels(base, session, dataset, found)
        main = works[found[0].path]
    else:
        zarr_json = json_of_form(form, node.user_data, node.path)
        growing = () if dataset is None else dataset.growing
        storing = ArrayStorage(copy=base, zarr_json=zarr_json, growing=growing)
        main = StoredWork(storing, None if where else form)
        works = {storing.made.path: main}
    return works, main, found, (region, is_widened)


def _refuse_twin(node: ArrayNode, dataset: StoredIn | None) -> None:
    """Refuse to store an array that is a twin.

    Raises:
        InvalidInputError: It is.
    """
    if dataset is not None and is_twin(dataset.forms, node.path):
        raise InvalidInputError(
            "this array is the twin of a variable, and is stored already",
            do=write_remedy(
                "For other chunks, name the variable, with ",
                write_code("beside=True", "--beside"),
                ".",
            ),
            variable=dataset.forms[node.path].of,
            twin=node.path,
        )


def _refuse_full(storage: Storage, needed: int, path: str) -> None:
    """Refuse to store more than a local disk has space for.

    Raises:
        StorageError: It has less space than the chunks have bytes in their files.
    """
    free = storage.free_bytes() if isinstance(storage, LocalStorage) else needed
    if needed > free:
        raise StorageError(
            f"the chunks need about {volume(needed)}, and the disk of the repository has"
            f" {volume(free)} left",
            do="Free some space, and run this again; nothing was changed.",
            variable=path,
        )


def _bytes_rewritten(made: ArrayNode, growing: Collection[str]) -> int:
    """Return how many bytes of values an append writes again at most: the last chunks."""
    shape, data_type = made.shape, document_of(made)["data_type"]
    edges, names = chunk_shape(made) or shape, made.dimension_names or (None,) * len(shape)
    return rewritten_bytes(shape, edges, names, growing, data_type)


def _layouts(
    session: Session, node: ArrayNode, made: ArrayNode, growing: Collection[str]
) -> dict[str, LayoutCost]:
    """Return what reading takes in the chunks of a variable and in the chunks of its twin."""
    array = array_summary(session.assets, node, lambda _: None)
    axis = steps_of(array, growing)
    edges = {"own": edges_of(array), "twin": chunk_shape(made) or made.shape}
    return {name: cost_of_layout(array, each, axis) for name, each in edges.items()}


def _bytes(node: ArrayNode) -> int:
    """Return the bytes of the values of an array that is encoded."""
    dtype = find_fixed_dtype(document_of(node)["data_type"])
    return 0 if dtype is None else math.prod(node.shape) * dtype.itemsize


def _count(session: Session, node: ArrayNode) -> int:
    found = (session.snapshot.manifest(ref.object_id) for ref in node.manifests)
    return sum(info.num_chunk_refs for info in found if info is not None)


def _commit(
    head: RepoInfoFile,
    assets: Assets,
    *,
    before: ArrayNode,
    seen: Snapshot,
    works: Mapping[str, StoredWork],
    stored: Mapping[str, list[Copied]],
    groups: Sequence[str],
    branch: str,
    message: str,
) -> str:
    made = {path: works[path].storage.node(each) for path, each in stored.items()}
    files = files_of([each for parts in stored.values() for each in parts])
    indices = {made[path].id: index_of(parts) for path, parts in stored.items()}
    chunks = {key: index for key, index in indices.items() if index is not None}
    forms = {path: work.form for path, work in works.items()}
    held = HeldObjects(assets.storage)

    def decide(current: RepoState) -> tuple[str, Sequence[Edit]]:
        base = assets.snapshot(lookup.branch_tip(current.info, branch))
        is_moved = any(base.find(path) != seen.find(path) for path in made)
        if base.find(before.path) != before or is_moved:
            raise ConflictError(
                "another writer changed the array while its chunks were stored",
                do="Run the command again: it begins with the array as it is now.",
                path=before.path,
                branch=branch,
                ours=message,
                theirs=repo_updates.line_of(base),
            )
        kept = tuple(node for node in base.nodes if node.path not in made)
        nodes = (*kept, *made.values(), *new_groups(base, groups))
        dataset = dataset_of(head, current, branch, before)
        metadata: JSONObject = {}
        if dataset is not None:
            top = paths.parent(before.path)
            said = {top: SAID} if groups else {}
            metadata = dataset.metadata(nodes, forms, said)
        pending = PendingCommit(
            base=base,
            branch=branch,
            message=message,
            nodes=nodes,
            metadata=metadata,
            written=files,
            chunks=chunks,
            touched=frozenset(indices.keys() - chunks.keys()),
        )
        snapshot, commit = pending.put(head, assets, held)
        return str(snapshot.id), (commit,)

    do = "Run the command again when fewer processes write."
    return head.publish(decide, do=do, held=held)[0]


type Where = Mapping[str, Any]
"""By dimension: a label, text like "2024" for all times in it, or a slice of labels."""


def form_of(
    node: ArrayNode,
    chunks: Mapping[str, int] | None,
    codec: str | None,
    before: StoredForm,
) -> StoredForm:
    """Return in which chunks and codecs a variable is to be stored.

    Args:
        node: The variable.
        chunks: New lengths of chunks, by dimension.
        codec: The new codec; None: the array's codecs, or zstd if these have no encoder.
        before: The form in which it is stored already.

    Raises:
        InvalidInputError: A name or a length is wrong, or a chunk would be too large.
        UnsupportedError: Values of this type cannot be encoded anew.
    """
    if codec not in (None, "zstd"):
        raise InvalidInputError(
            "unknown codec",
            do=write_remedy("Pass ", write_code('codec="zstd"', "--codec zstd"), ", or None."),
            codec=codec,
        )
    if not chunks and codec is None:
        return before
    document = document_of(node)
    form = replace(
        before,
        chunk_shape=_edges(node, chunks or {}),
        codec=before.codec if codec is None and can_encode(document["codecs"]) else "zstd",
    )
    refuse_misfit(form, node.path, document)
    return form


def _edges(node: ArrayNode, chunks: Mapping[str, int]) -> tuple[int, ...]:
    """Return the lengths of new chunks."""
    edges, names = chunk_shape(node), list(node.dimension_names or ())
    if edges is None:
        raise UnsupportedError(
            "the chunks of this array differ in length, and only regular ones are encoded anew",
            do=write_remedy(
                "Leave out ",
                write_code("chunks and codec", "--chunks and --codec"),
                ": chunks are copied as they are.",
            ),
            variable=node.path,
        )
    wanted = list(edges)
    for name, length in chunks.items():
        if name not in names or isinstance(length, bool) or not isinstance(length, int):
            raise InvalidInputError(
                "this is not a chunk length of a dimension",
                do=write_remedy(
                    "Pass ",
                    write_code('chunks={"time": 365}', "--chunks time=365"),
                    ", with names of dimensions.",
                ),
                variable=node.path,
                dimensions=names,
                found=f"{name}={length}",
            )
        axis = names.index(name)
        wanted[axis] = max(1, node.shape[axis]) if length == -1 else length
    if any(length < 1 for length in wanted):
        raise InvalidInputError("a chunk has no elements", do="Pass 1 or more; -1 means all.")
    return tuple(wanted)


def region_of(
    session: Session, node: ArrayNode, where: Where
) -> tuple[tuple[tuple[int, int], ...], Extents, bool]:
    """Return a region in elements and in chunks, and whether it was extended to whole chunks."""
    whole = tuple((0, length) for length in node.shape)
    every = tuple((0, count) for count in node.num_chunks)
    if not where:
        return whole, every, False
    edges, names = chunk_shape(node), list(node.dimension_names or ())
    unknown = [name for name in where if name not in names]
    if unknown or edges is None:
        raise InvalidInputError(
            "this variable has no such dimension"
            if unknown
            else "regions of arrays whose chunks differ in length are not supported",
            do=write_remedy(
                "Name dimensions of the variable, or leave out ", write_option("where"), "."
            ),
            variable=node.path,
            dimensions=names,
            found=unknown,
        )
    region, box, is_widened = list(whole), list(every), False
    for name, labels in where.items():
        axis = names.index(name)
        low, high = _span(session, node, name, labels)
        first, last = low // edges[axis], -(-high // edges[axis])
        box[axis] = (first, last)
        region[axis] = (first * edges[axis], min(last * edges[axis], node.shape[axis]))
        is_widened |= region[axis] != (low, high)
    return tuple(region), tuple(box), is_widened


def _spell(labels: Any) -> str:
    return f"{labels.start}:{labels.stop}" if isinstance(labels, slice) else str(labels)


def _ends(places: Any, name: str) -> dict[str, str]:
    """Return the first and the last label of a coordinate, as facts."""
    if name not in places.coords or not places.size:
        return {}
    first, last = (str(places[name].values[at]).removesuffix(".000000000") for at in (0, -1))
    return {"begins": first, "ends": last}


def _span(session: Session, node: ArrayNode, name: str, labels: Any) -> tuple[int, int]:
    """Return the first element with one of some labels, and the one after the last."""
    import xarray as xr

    group = paths.parent(node.path)
    storage, access = session.assets.storage, session.credentials
    with xr.open_dataset(
        storage,  # type: ignore[arg-type]  # the engine takes storages
        engine="icevirt",
        group=group,
        snapshot_id=session.snapshot_id,
        authorize_virtual_chunk_access=access,
    ) as dataset:
        length = dataset.sizes[name]
        places = xr.DataArray(np.arange(length), dims=name)
        if name in dataset.coords:
            places = places.assign_coords({name: dataset[name]})
        try:
            kind = dataset[name].dtype.kind if name in dataset.coords else "i"
            found = np.atleast_1d(places.sel({name: _as_numbers(labels, kind)}).values)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise InvalidInputError(
                "the coordinate has no such label",
                do=write_remedy(
                    "Pass labels of the coordinate: ",
                    write_code('where={"time": "2024"}', "--where time=2024"),
                    ", or ",
                    write_code("a slice", "a slice, --where time=2020:2024"),
                    ".",
                ),
                dimension=name,
                label=_spell(labels),
                **_ends(places, name),
            ) from error
    if not len(found):
        raise InvalidInputError(
            "no element has one of these labels",
            do="Pass labels between the first and the last of the coordinate.",
            dimension=name,
            label=_spell(labels),
            **_ends(places, name),
        )
    return int(found.min()), int(found.max()) + 1


def _as_numbers(labels: Any, kind: str) -> Any:
    """Return labels of coordinates that are numbers as numbers."""
    if isinstance(labels, slice):
        return slice(_as_numbers(labels.start, kind), _as_numbers(labels.stop, kind))
    if isinstance(labels, str) and kind in "iuf":
        return int(labels) if kind != "f" else float(labels)
    return labels
