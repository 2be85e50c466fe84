"""Commit a data frame of references, whose manifests the executors write.

A shuffle of Spark sorts rows into cells, as `SparkExecutor.shuffle` does for tasks. Rows cross it
in compressed blocks; an error of icevirt comes back as itself.
"""

from __future__ import annotations

import json
import math
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from icevirt.api.events import Clock, long_running
from icevirt.errors import InvalidInputError
from icevirt.execution.executor import Executor, describe_jobs, job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.containers import VirtualChunkContainer, prefixes_of
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, ManifestFile, ManifestRef
from icevirt.objects.source_lists.rows import is_spark_frame
from icevirt.planning.schedule.write_tasks import split_rules
from icevirt.repo import layout
from icevirt.repo.commits.build_commit import with_settings
from icevirt.repo.commits.reference_commit import ReferenceCommit
from icevirt.repo.creation import refuse_foreign
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks.references import (
    COLUMNS,
    OPTIONAL,
    CellWriter,
    Incoming,
    RestTask,
    TargetArray,
    WrittenCell,
    send_blocks,
    write_blocks,
    write_rest,
)
from icevirt.versioning.repo_updates import as_json
from icevirt.wire.manifests.encoding import ManifestEncoding

if TYPE_CHECKING:
    import xarray as xr
    from pyspark.sql import DataFrame


type ArrayMetadata = Mapping[str, Any] | str | bytes
"""zarr.json of an array, as a mapping or as JSON."""

_TASKS_PER_SLOT = 4
_MOST_TASKS = 4096
_IGNORED = ("manifest_id",)  # of the table of references
_FITTING = {
    "string": ("string",),
    "bigint": ("bigint", "int", "smallint", "tinyint"),
    "array<bigint>": ("array<bigint>", "array<int>", "array<smallint>", "array<tinyint>"),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReferences:
    """What `write_references` committed."""

    snapshot_id: str
    branch: str
    references: int
    """Rows of the data frame, each of which is a chunk now."""
    manifests: int
    """Manifests that hold them."""
    manifest_bytes: int
    arrays: Mapping[str, int] = field(default_factory=dict)
    """References by path of the array."""
    seconds: float = 0.0


def write_references(
    references: DataFrame,
    repo: StorageLike,
    *,
    arrays: Mapping[str, ArrayMetadata] | None = None,
    template: xr.Dataset | None = None,
    group: str = "/",
    containers: Iterable[VirtualChunkContainer] = (),
    branch: str = "main",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> WrittenReferences:
    """Write a data frame of chunk references into arrays of a repository, in one commit.

    Executors check the rows, sort them and write manifests; the driver holds names of manifests.
    Chunks that the arrays have already are replaced, others stay. Retried tasks do no harm, and a
    second call with the same rows changes nothing.

    Args:
        references: A row for each chunk. Columns: ``path`` of the array (string), ``index`` of the
            chunk (array<int> or array<bigint>), ``location`` (string, a URL), ``offset`` and
            ``length`` in bytes; and optionally ``etag`` (string) and ``last_modified`` (timestamp)
            of the file, by which readers notice that it changed, and ``kind``, which must be
            "virtual". The table ``references`` of `icevirt.spark.table` has such columns.
        repo: Path or URL of the repository, or a storage; it is created if there is none.
        arrays: Metadata of new arrays by path: their zarr.json.
        template: A dataset whose variables become new arrays below ``group``. Variables of dask are
            described only; values of others, coordinates above all, are written too.
        group: Where the variables of the template go.
        containers: Virtual chunk containers that the repository gets. Each location must lie below
            the ``url_prefix`` of one of them, or of one that the repository has.
        branch: The branch to commit to.
        message: The commit message.
        metadata: Metadata of the snapshot.

    Raises:
        InvalidInputError: A column is missing or of another type; a row has no place in an array,
            names impossible bytes, or a location without a container; two rows are for one chunk.
            The row is named, and nothing is committed.
        AlreadyExistsError: A new array exists already.
        RefNotFoundError: There is no such branch.
        ConflictError: Others changed the same arrays while manifests were written.
        SparkJobError: Spark failed.
    """
    begin = time.perf_counter()
    if not is_spark_frame(references):
        raise InvalidInputError(
            "the references are no data frame of Spark",
            do="Make one: spark.createDataFrame(rows).",
            references=type(references).__name__,
        )
    frame = _columns(references)
    storage = storage_of(repo)
    wanted = tuple(containers)
    executor = SparkExecutor(references.sparkSession)
    check_before_first(executor, ClusterNeeds(written=(storage,)))
    there = Repository.exists(storage)
    if not there:
        refuse_foreign(storage)
    # a new repository begins in memory, as every new one begins with the same snapshot: where
    # rows are wrong, there is none afterwards
    opened = Repository.open(storage) if there else Repository.create(MemoryStorage())
    session = opened.writable_session(branch)
    _stage(session, arrays or {}, template, group)
    config = RepositoryConfig.from_document(with_settings(session.config.document, wanted, ()))
    targets = tuple(TargetArray.of(node, config) for node in session.snapshot.arrays())
    writer = CellWriter(
        repo=storage,
        level=config.compression_level,
        encoding=ManifestEncoding.of_config(config.document),
    )
    incoming = Incoming(
        targets=targets, prefixes=prefixes_of(config.virtual_chunk_containers.values())
    )
    with long_running("write-references", Clock()), job_tags(storage.url):
        with describe_jobs("write: references"):
            count = sum(math.prod(target.grid.counts) for target in targets)
            tasks = max(1, min(executor.parallelism * _TASKS_PER_SLOT, _MOST_TASKS, count))
            send = partial(send_blocks, pickle.dumps(incoming), tasks)
            work = pickle.dumps((writer, targets))
            done_by = executor.shuffle_frame(frame, send, write_blocks, [work] * tasks)
            cells = [cell for written in done_by for cell in written]
            if not cells:
                raise InvalidInputError(
                    "the data frame has no rows", do="Check its filters: references.count() is 0."
                )
            done = _finish(executor, writer, {each.node.path: each for each in targets}, cells)
        _refuse_values(session, done)
        for each in () if there else opened.storage.list(layout.CHUNKS):  # values of a template
            storage.put(each.path, opened.storage.get(each.path))
        files = {
            cell.manifest_id: ManifestFile(
                id=cell.manifest_id, size_bytes=cell.size_bytes, num_chunk_refs=cell.num_chunk_refs
            )
            for array in done
            for cell in array.cells
            if cell.manifest_id is not None
        }
        cuts = {  # by which other writers keep the manifests as they are
            array.node.path: (array.target.grid.num_chunks, array.target.grid.steps, 0)
            for array in done
            if array.target.is_cut
        }
        snapshot_id = ReferenceCommit(
            assets=writer.assets,
            head=RepoInfoFile(storage),
            staging=session.fork().changes,
            config=config,
            branch=branch,
            message=message or f"Write {sum(cell.written for cell in cells)} references",
            metadata=as_json(metadata or {}),
            arrays={array.target.node.path: array.node for array in done},
            files=tuple(files.values()),
            settings=partial(with_settings, containers=wanted, split_rules=split_rules(cuts)),
        ).publish()
    counts: Counter[str] = Counter()
    for cell in cells:
        counts[cell.path] += cell.written
    return WrittenReferences(
        snapshot_id=snapshot_id,
        branch=branch,
        references=counts.total(),
        manifests=len(files),
        manifest_bytes=sum(file.size_bytes for file in files.values()),
        arrays=dict(sorted(counts.items())),
        seconds=time.perf_counter() - begin,
    )


def _columns(references: DataFrame) -> DataFrame:
    """Return the columns that are needed, in the types that tasks expect.

    Raises:
        InvalidInputError: One is missing, of another type, or not known.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users name it

    there = {each.name: each.dataType.simpleString() for each in references.schema.fields}
    known = COLUMNS | OPTIONAL
    missing = [name for name in COLUMNS if name not in there]
    unknown = [name for name in there if name not in known and name not in _IGNORED]
    wrong = {
        name: there[name]
        for name, kind in known.items()
        if name in there and there[name] not in _FITTING[kind]
    }
    if missing or unknown or wrong:
        raise InvalidInputError(
            "the data frame does not have the columns of references",
            do="Rename and cast columns: "
            + ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            + "; and if you have them "
            + ", ".join(f"{name} {kind}" for name, kind in OPTIONAL.items())
            + ".",
            missing=missing,
            unknown=unknown,
            of_another_type=wrong,
        )
    return references.select(
        *(F.col(name).cast(kind).alias(name) for name, kind in known.items() if name in there)
    )


def _stage(
    session: Session,
    arrays: Mapping[str, ArrayMetadata],
    template: xr.Dataset | None,
    group: str,
) -> None:
    """Add new arrays to a session."""
    for path, given in arrays.items():
        document = given if isinstance(given, str | bytes) else json.dumps(dict(given))
        raw = document.encode() if isinstance(document, str) else document
        there = session.find(path)
        if isinstance(there, ArrayNode) and json.loads(there.user_data) == json.loads(raw):
            continue  # an earlier call wrote it
        ndim = len(json.loads(raw).get("shape", ()))
        session.add_array(path, raw, ChunkTable.empty(ndim))
    if template is not None:
        if not hasattr(template, "to_zarr"):
            raise InvalidInputError(
                "the template is not a dataset",
                do="Pass an xarray.Dataset, as xarray.open_dataset(path) returns it.",
                template=template,
            )
        template.to_zarr(
            session.store, group=group, mode="a", compute=False, consolidated=False, zarr_format=3
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """An array with its new manifests."""

    target: TargetArray
    node: ArrayNode
    cells: tuple[WrittenCell, ...]


def _finish(
    executor: Executor,
    writer: CellWriter,
    targets: Mapping[str, TargetArray],
    cells: Sequence[WrittenCell],
) -> tuple[_Done, ...]:
    """Return the arrays that got references; what lies in manifests that go is written too."""
    by_path: dict[str, list[WrittenCell]] = defaultdict(list)
    for cell in cells:
        by_path[cell.path].append(cell)
    gone: dict[str, frozenset[ObjectId12]] = {}
    rest: list[RestTask] = []
    for path, own in by_path.items():
        there = {cell.cell for cell in own}
        every, gone[path] = targets[path].rewritten(there)
        rest += [
            RestTask(writer=writer, target=targets[path], cell=cell)
            for cell in sorted(every - there)
        ]
    for cell in executor.run(write_rest, rest):
        by_path[cell.path].append(cell)
    done = []
    for path, own in sorted(by_path.items()):
        node = targets[path].node
        refs = [ref for ref in node.manifests if ref.object_id not in gone[path]]
        refs += [
            ManifestRef(object_id=cell.manifest_id, extents=cell.extents)
            for cell in own
            if cell.manifest_id is not None
        ]
        refs.sort(key=lambda ref: tuple(low for low, _ in ref.extents))
        node = node._replace(manifests=tuple(refs))
        done.append(_Done(target=targets[path], node=node, cells=tuple(own)))
    return tuple(done)


def _refuse_values(session: Session, done: Sequence[_Done]) -> None:
    """Refuse a template with values where references go, one of which would be lost."""
    staged = session.fork().changes.tables()
    for array in done:
        if array.target.node.id in staged:
            raise InvalidInputError(
                "the template holds values of an array that references are written to",
                do="Give it a variable without values: ds.chunk() makes variables of dask, which"
                " are described only.",
                path=array.target.node.path,
            )
