"""Write a version of a repository as a STAC collection, beside a table of its files.

Executors read the manifests and return a row for each file of theirs. The driver joins the rows
and the list of files that the build kept, both as columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from icevirt.api.dataset.files_held import files_of_build
from icevirt.api.dataset.records import newest_records
from icevirt.api.events import Clock, long_running
from icevirt.api.stac.collection import collection_of
from icevirt.api.stac.items import items_of
from icevirt.api.stac.space import space_of
from icevirt.api.stac.times import times_of
from icevirt.archive.reports.relocation import ExportReport
from icevirt.catalog.arrow_columns import text_column
from icevirt.errors import AlreadyExistsError, IcevirtError, InvalidInputError
from icevirt.execution.executor import describe_jobs, job_tags
from icevirt.execution.preflight import ClusterNeeds, check_before_first
from icevirt.execution.selection import executor_of
from icevirt.model.snapshot import GroupNode
from icevirt.redaction import without_secrets
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.repo import layout
from icevirt.tasks.export.source_boxes import (
    SourceBoxesTask,
    find_source_boxes,
    join_boxes,
    read_boxes,
)
from icevirt.versioning.manifest_splitting import along_arrays

if TYPE_CHECKING:
    from xarray import Dataset

    from icevirt.execution.selection import ExecutorChoice
    from icevirt.repo.repository import Repository
    from icevirt.repo.session import Session

pc: Any = pyarrow.compute  # whose overloads know no arrays of arrays

COLLECTION, ITEMS = "collection.json", "items.parquet"
_TASKS_PER_SLOT = 4
_FEW = 8  # manifests that are read before a process has started
_ROWS = 1 << 16  # of a row group
_WITH_MORE = r"://[^/]*@|[?#]"  # than a path


def write_stac(
    opened: Repository,
    session: Session,
    dataset: Dataset,
    path: Path,
    *,
    group: str,
    executor: ExecutorChoice,
    is_latest: bool,
) -> ExportReport:
    """Write ``collection.json`` and ``items.parquet`` into a new directory.

    Raises:
        AlreadyExistsError: It is there.
        InvalidInputError: The group has no variables.
    """
    if path.exists():
        raise AlreadyExistsError(
            "the directory is there already", do="Name another one, or remove it.", path=str(path)
        )
    if not dataset.variables:
        below = [each.path for each in session.snapshot.nodes if isinstance(each, GroupNode)]
        raise InvalidInputError(
            "the group has no variables, and a collection describes one dataset",
            do=write_remedy("Name a group with ", write_option("group"), "."),
            group=group,
            groups=below[:10],
        )
    space, times = space_of(dataset), times_of(dataset)
    dimensions = dict.fromkeys(space.dimensions)
    if times is not None:
        dimensions[times.dimension] = None
    files = _with_listing(
        _files(opened, session, group, tuple(dimensions), executor), opened, session, group
    )
    name = _name_of(opened.storage.url, group)
    items = items_of(files, collection=name, space=space, times=times)
    document = collection_of(
        dataset,
        name=name,
        storage=opened.storage,
        snapshot_id=session.snapshot_id,
        group=group,
        table=ITEMS if len(items) else None,
        space=space,
        times=times,
        items=len(items),
        is_latest=is_latest,
    )
    path.mkdir(parents=True)
    if len(items):
        pq.write_table(items, path / ITEMS, compression="zstd", row_group_size=_ROWS)
    (path / COLLECTION).write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    return ExportReport(
        repo=opened.storage.url,
        snapshot_id=session.snapshot_id,
        group=group,
        path=str(path),
        format="stac",
        zarr_format=3,
        arrays=len(dataset.variables),
        references=sum(count for _, count in _manifests(session, group)),
        files=len(items),
        chunks_embedded=0,
        bytes_embedded=0,
        notes=tuple(_notes(space.note, times, items)),
    )


def _manifests(session: Session, group: str) -> list[tuple[bytes, int]]:
    """Return the manifests of the arrays of a group, and how many references each has."""
    prefix = group.rstrip("/") + "/"
    nodes = [node for node in session.snapshot.arrays() if node.path.startswith(prefix)]
    found = ((key, session.snapshot.manifest(key)) for key in along_arrays(nodes))
    return [(bytes(key), info.num_chunk_refs) for key, info in found if info is not None]


def _files(
    opened: Repository,
    session: Session,
    group: str,
    dimensions: tuple[str, ...],
    executor: ExecutorChoice,
) -> pa.Table:
    """Return a row for each file that references lead to, with its box along the dimensions."""
    manifests = [key for key, _ in _manifests(session, group)]
    storage, clock = opened.storage, Clock()
    with (
        long_running("export", clock),
        job_tags(storage.url),
        executor_of(executor, work=0 if len(manifests) <= _FEW else None) as running,
    ):
        seen = layout.snapshot(session.snapshot.id)
        check_before_first(running, ClusterNeeds(read=((storage, seen),)))
        cut = -(-len(manifests) // (running.parallelism * _TASKS_PER_SLOT)) or 1
        tasks = [
            SourceBoxesTask(
                repo=storage,
                snapshot_id=session.snapshot_id,
                manifests=tuple(manifests[at : at + cut]),
                group=group,
                dimensions=dimensions,
            )
            for at in range(0, len(manifests), cut)
        ]
        with describe_jobs("export: files of references"):
            found = running.run(find_source_boxes, tasks) if tasks else []
    return join_boxes(map(read_boxes, found), dimensions)


def _with_listing(files: pa.Table, opened: Repository, session: Session, group: str) -> pa.Table:
    """Return absolute URLs and sizes, and files of which everything was copied, too."""
    urls = _absolute(files["url"], session)
    files = files.set_column(files.schema.get_field_index("url"), "url", urls)
    sizes: Any = pa.nulls(len(files), pa.int64())
    for listing in _listings(opened, session, group):
        place = pc.index_in(files["url"], value_set=listing["url"])
        sizes = pc.coalesce(listing["size"].take(place), sizes)
        rest = listing.filter(pc.invert(pc.is_in(listing["url"], value_set=_whole(files["url"]))))
        if len(rest):
            there = rest.schema.names
            empty = {
                each.name: rest[each.name] if each.name in there else pa.nulls(len(rest), each.type)
                for each in files.schema
            }
            files = pa.concat_tables([files, pa.table(empty).cast(files.schema)])
            sizes = pa.chunked_array([*_chunks(sizes), *_chunks(rest["size"])])
    found = files.append_column("size", sizes)
    found = found.set_column(
        found.schema.get_field_index("etag"),
        "etag",
        pc.if_else(pc.equal(found["etag"], ""), pa.scalar(None, pa.large_string()), found["etag"]),
    )
    modified = found["last_modified"]
    none = pa.scalar(None, pa.int64())
    at = found.schema.get_field_index("last_modified")
    found = found.set_column(at, "last_modified", pc.if_else(pc.equal(modified, 0), none, modified))
    return redact_urls(found.sort_by("url"))


def redact_urls(files: pa.Table) -> pa.Table:
    """Leave out passwords and signatures, which references that others wrote may have."""
    urls: Any = files["url"]
    if not pc.any(may_be := pc.match_substring_regex(urls, _WITH_MORE)).as_py():
        return files
    clean = [without_secrets(each).removesuffix("?...") for each in urls.filter(may_be).to_pylist()]
    urls = pc.replace_with_mask(_whole(urls), _whole(may_be), pa.array(clean, urls.type))
    return files.set_column(files.schema.get_field_index("url"), "url", urls)


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _whole(column: Any) -> Any:
    return column.combine_chunks()


def _absolute(urls: Any, session: Session) -> Any:
    """Return locations as URLs: those of named containers begin with the name."""
    containers = session.config.virtual_chunk_containers.values()
    for each in containers:
        if each.name is not None:
            pattern = f"^vcc://{re.escape(each.name)}/"
            urls = pc.replace_substring_regex(urls, pattern, each.url_prefix.replace("\\", r"\\"))
    return urls


def _listings(opened: Repository, session: Session, group: str) -> Iterator[pa.Table]:
    """Yield the files that builds of a group kept."""
    for record in newest_records(opened.head.read().info, session.snapshot.id):
        if str(record.get("group")) != group or "listing" not in record:
            continue
        try:
            files = files_of_build(opened.storage, record).files
        except IcevirtError:
            continue  # references say which files there are
        yield pa.table(
            {
                "url": text_column(files.urls),
                "etag": text_column(files.etags),
                "last_modified": pa.array(-(-files.times // 1_000_000_000)),
                "size": pa.array(files.sizes),
            }
        )


def _name_of(url: str, group: str) -> str:
    words = [url.rstrip("/").rpartition("/")[2], *filter(None, group.split("/"))]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("-") or "collection"


def _notes(space: str, times: Any, items: pa.Table) -> Iterator[str]:
    if space:
        yield f"no geometry: {space}; STAC asks for an extent, so it is the whole Earth"
    if times is None:
        yield "no dimension has times: items are without datetime, which catalogs refuse"
    elif times.note:
        yield times.note
    without = len(items) if times is None else pc.sum(pc.is_null(items["start_datetime"])).as_py()
    if times is not None and without:
        yield f"{without:,} files have no reference along {times.dimension}: without datetime"
