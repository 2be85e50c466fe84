"""Find the file and bytes that a value is decoded from, by labels, and the commit that wrote it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, product
from typing import Any

import numpy as np

from icevirt.access.references import ChunkSource, chunk_of, source_of_chunk
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.xarray.labels import LabeledPlace, places_of
from icevirt.archive.reports.value_source import ChunkOrigin, ValueSource, WrittenBy
from icevirt.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
)
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ArrayNode
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo.commits.build_commit import BUILD_ID
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.session import Session
from icevirt.versioning import lookup
from icevirt.versioning.history.timestamps import moment

_MOST = 1000  # chunks that are listed
_SEARCHED = 500  # commits, newest first, whose logs are read for the one that wrote a chunk


def value_source(
    session: Session, variable: str, at: Mapping[str, Any], *, nearest: bool = False
) -> ValueSource:
    """Return the chunks that hold the values with these labels.

    Args:
        session: A version of a repository; its coordinates are read.
        variable: Path of an array; in a group with eras without the era's name.
        at: A label for each dimension that has one; of the others all chunks are listed.
        nearest: Take the nearest label where there is none that is equal.

    Raises:
        NodeNotFoundError: There is no such array.
        InvalidInputError: A label is not there, or is ambiguous, or the values lie in too many
            chunks.
    """
    store = IcevirtStore(session)
    path = paths.canonical(variable)
    found = places_of(store, session.snapshot, path, dict(at), nearest=nearest)
    writers = Writers(session)
    chunks = tuple(
        _origin(source_of_chunk(session, node.path, chunk), node, writers)
        for node, chunk in _chunks(session, found)
    )
    return ValueSource(
        repo=session.assets.storage.url,
        snapshot_id=str(session.snapshot_id),
        variable=path,
        at=found.labels,
        index=found.index,
        chunks=chunks,
    )


def _chunks(session: Session, found: LabeledPlace) -> Iterator[tuple[ArrayNode, tuple[int, ...]]]:
    """Yield the chunks of an array at a place, all of them along other dimensions."""
    node, index = session.array(found.path), found.index
    if 0 in node.shape:
        return
    first = chunk_of(node, [index.get(name, 0) for name in found.dimensions])
    choices = [
        [at] if name in index else range(number)
        for at, name, number in zip(first, found.dimensions, node.num_chunks, strict=True)
    ]
    if (number := math.prod(map(len, choices))) > _MOST:
        raise InvalidInputError(
            f"these values lie in {number:,} chunks",
            do="Give labels for more dimensions.",
            variable=found.path,
            dimensions=list(found.dimensions),
            given=list(index),
        )
    yield from ((node, chunk) for chunk in product(*choices))


def _origin(source: ChunkSource, node: ArrayNode, writers: Writers) -> ChunkOrigin:
    modified = source.last_modified
    return ChunkOrigin(
        array=node.path,
        chunk=source.chunk,
        kind=source.kind.name,  # type: ignore[arg-type]
        location=source.url,
        offset=source.offset,
        length=source.length,
        etag=source.etag,
        last_modified=datetime.fromtimestamp(modified, UTC) if modified else None,
        written_by=writers.of(node.id, source.chunk),
    )


class Writers:
    """Finds the newest commit that wrote a chunk, from transaction logs, newest first.

    A log is read once, for however many chunks.
    """

    def __init__(self, session: Session) -> None:
        self._assets = session.assets
        self._info = RepoInfoFile(session.assets.storage).read().info
        self._ancestors: Iterator[SnapshotSummary] = islice(
            _ancestry(self._info, session.snapshot_id), _SEARCHED
        )
        self._read: list[tuple[TransactionLog, SnapshotSummary | None]] = []

    def of(self, node: ObjectId8, chunk: Sequence[int]) -> WrittenBy | None:
        """Return the commit; None if no log that is there lists the chunk or the array's birth."""
        for log, summary in self._logs():
            listed = log.updated_chunks.get(node)
            wrote = listed is not None and _holds(listed, chunk)
            if wrote or node in log.new_arrays:
                return _writer(log.id, summary)
        return None

    def _logs(self) -> Iterator[tuple[TransactionLog, SnapshotSummary | None]]:
        yield from self._read
        for summary in self._ancestors:
            keys = (summary.id, *reversed(summary.pruned_ancestor_tx_logs or ()))
            for key in keys:
                try:
                    log = self._assets.transaction_log(key)
                except ObjectNotFoundError:  # what older commits wrote may be overwritten by it
                    self._ancestors = iter(())
                    return
                self._read.append((log, summary if key == summary.id else None))
                yield self._read[-1]


def _ancestry(info: RepoInfo, key: str) -> Iterator[SnapshotSummary]:
    try:
        yield from lookup.ancestry(info, ObjectId12.parse(key))
    except SnapshotNotFoundError:  # it has expired since the session began
        return


def _holds(listed: np.ndarray, chunk: Sequence[int]) -> bool:
    if listed.shape[1] != len(chunk):
        return False
    return bool((listed == np.array(chunk, listed.dtype)).all(axis=1).any())


def _writer(key: ObjectId12, summary: SnapshotSummary | None) -> WrittenBy:
    if summary is None:
        return WrittenBy(snapshot_id=str(key))
    build = summary.metadata.get(BUILD_ID)
    return WrittenBy(
        snapshot_id=str(key),
        written_at=moment(summary.flushed_at),
        message=summary.message,
        build_id=build if isinstance(build, str) else None,
    )
