"""Read one version of a repository, with a session's changes on top.

Other threads that change or commit the session hold its lock, as does what looks at several parts.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import NotAnArrayError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Node, Snapshot
from icevirt.objects.answers import OnStale, Staleness
from icevirt.repo.assets import Assets
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import chunk_tables
from icevirt.versioning.chunk_tables import index_row
from icevirt.versioning.lookup import ancestry

if TYPE_CHECKING:
    from icevirt.model.config.containers import VirtualChunkContainer
    from icevirt.model.config.document import RepositoryConfig
    from icevirt.model.json import JSONObject
    from icevirt.repo.commits.change_set import ChangeSet
    from icevirt.repo.reader import ArrayReader, FoundChunks


_locks: WeakSet[Any] = WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryOptions:
    """How one program uses a repository: chosen when opening it, not persisted."""

    on_stale: OnStale = "raise"
    content_addressed_chunks: bool = False

    def __post_init__(self) -> None:
        Staleness(self.on_stale)  # refuses other words


DEFAULT = RepositoryOptions()


class Context(NamedTuple):
    """What a session takes over from its repository."""

    assets: Assets
    head: RepoInfoFile
    config: RepositoryConfig
    credentials: Mapping[str, Any]  # by authorized prefix
    commit_metadata: JSONObject
    options: RepositoryOptions = DEFAULT


class SessionMode(Enum):
    """What a session may change; names and numbers are icechunk's."""

    readonly = 0
    writable = 1
    rearrange = 2


class View:
    """What `Session` lets be read."""

    def __init__(
        self,
        context: Context,
        base: Snapshot,
        branch: str | None = None,
        mode: SessionMode = SessionMode.readonly,
    ) -> None:
        self._context = context
        self._base = base
        self._branch = branch
        self._mode = mode
        self.lock = threading.RLock()
        """Hold it while you change a writable session in threads."""
        _locks.add(self.lock)
        self._committer: int | None = None  # the thread that is committing
        self._staging: ChangeSet | None = None
        self._seen: Snapshot | None = None
        self._readers: dict[ObjectId8, ArrayReader] = {}

    # -- what it is --------------------------------------------------------------------------

    @property
    def snapshot_id(self) -> str:
        """The snapshot it started from, or that its commit made."""
        return str(self._base.id)

    @property
    def branch(self) -> str | None:
        """The branch it will commit to; None for a read-only session."""
        return self._branch

    @property
    def read_only(self) -> bool:
        """Whether it is read-only."""
        return self._mode is SessionMode.readonly

    @property
    def mode(self) -> SessionMode:
        """What it may change."""
        return self._mode

    @property
    def config(self) -> RepositoryConfig:
        """The configuration when the session started."""
        return self._context.config

    @property
    def assets(self) -> Assets:
        """The repository's objects."""
        return self._context.assets

    @property
    def credentials(self) -> Mapping[str, Any]:
        """Credentials by authorized prefix."""
        return self._context.credentials

    @property
    def virtual_chunk_containers(self) -> dict[str, VirtualChunkContainer]:
        """Virtual chunk containers of the configuration, by their url_prefix."""
        return self._context.config.virtual_chunk_containers

    @property
    def on_stale(self) -> OnStale:
        """How its store handles source files that changed after the scan."""
        return self._context.options.on_stale

    @property
    def store(self) -> Any:
        """A zarr store over the session.

        The one upward reference of the package, resolved by name on first use: users expect
        `session.store`, and nothing below `icevirt.access` depends on zarr's stores.
        """
        access = importlib.import_module("icevirt.access.store.zarr_store")
        return access.IcevirtStore(self, on_stale=self.on_stale)

    def history(self) -> Iterator[JSONObject]:
        """Yield the metadata of the version and of those before it, as far as they are known."""
        yield self._base.metadata
        info = self._context.head.known().info
        if self._base.id in info.snapshots:
            yield from (each.metadata for each in ancestry(info, self._base.id))

    # -- nodes -------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The nodes as changed so far; manifests stay the base's until the commit."""
        with self._unchanging():
            if self._staging is None:
                return self._base
            if self._seen is None:
                self._seen = self._staging.snapshot()
            return self._seen

    def find(self, path: str) -> Node | None:
        """Return a node as changed so far, or None."""
        path, staging = paths.canonical(path), self._staging
        return self._base.find(path) if staging is None else staging.nodes.get(path)

    def node(self, path: str) -> Node:
        """Return a node as changed so far. Raises ``NodeNotFoundError``."""
        path = paths.canonical(path)
        return self.find(path) or self.snapshot.node(path)

    def array(self, path: str) -> ArrayNode:
        """Return an array as changed so far.

        Raises:
            NodeNotFoundError: No such node.
            InvalidInputError: The node is a group.
        """
        node = self.node(path)
        if not isinstance(node, ArrayNode):
            raise NotAnArrayError(
                "this is a group, not an array",
                do="Pass the path of an array below it.",
                path=node.path,
            )
        return node

    def get_node_id(self, path: str) -> str:
        """Return the id that the node keeps for its lifetime. Raises ``NodeNotFoundError``."""
        return str(self.node(path).id)

    # -- references --------------------------------------------------------------------------

    def references(self, path: str, index: NDArray[np.integer]) -> FoundChunks:
        """Look up many chunks of an array at once.

        Args:
            path: Path of the array.
            index: Chunk indices, shape (k, ndim), in any order.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The indices do not fit the array's number of dimensions.
        """
        from icevirt.repo.commits.change_set import check_index
        from icevirt.repo.reader import join

        node, staged = self._array_now(path)
        ndim = len(node.num_chunks)
        index = np.asarray(index)
        check_index(node, index)
        if staged is None:
            return join([*self._reader(node).parts(index)], len(index), ndim)
        rows = chunk_tables.RowFinder.of(staged).find(index)
        mine, others = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
        parts = [(others[at], part) for at, part in self._reader(node).parts(index[others])]
        parts.append((mine, staged.take(rows[mine])))
        return join(parts, len(index), ndim)

    def array_table(self, path: str) -> ChunkTable:
        """Return all references of an array, sorted by index. Raises ``NodeNotFoundError``."""
        node, staged = self._array_now(path)
        committed = self._reader(node).table()
        if staged is None:
            return committed
        return chunk_tables.drop_deleted(chunk_tables.overlay(committed, staged))

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Return where the bytes of one chunk lie. Raises as `references`."""
        node = self.array(array_path)
        ndim = len(node.num_chunks)
        index = index_row("chunk_coordinates", chunk_coordinates, ndim, node.path)
        return ChunkType(int(self.references(array_path, index).kind[0]))

    def chunk_coordinates(self, array_path: str) -> NDArray[np.uint32]:
        """Return the indices of all chunks that were written, shape (n, ndim), sorted."""
        return self.array_table(array_path).index

    def refs_table(self, array_path: str) -> Any:
        """Return the references of an array as an Arrow table. Raises ``NodeNotFoundError``."""
        return self.store.refs_table(array_path)

    def source_of(
        self,
        array_path: str,
        index: Sequence[int] | None = None,
        *,
        labels: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the object and the byte range that a value is decoded from.

        Args:
            array_path: The array.
            index: Index of the value along each dimension; negative numbers count from the end.
            labels: Instead of an index: a label of its coordinate for each dimension.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The array has no such value.
        """
        return self.store.source_of(array_path, index, labels=labels)

    def all_virtual_chunk_locations(self) -> list[str]:
        """Return the URL of every object that virtual references point into, each once."""
        found: set[str] = set()
        for node in self.snapshot.arrays():
            table = self.array_table(node.path)
            virtual = table.take(table.kind == ChunkType.virtual)
            found.update(chunk_tables.compact(virtual).locations.url)
        return sorted(found)

    # -- inside ------------------------------------------------------------------------------

    def _unchanging(self) -> AbstractContextManager[object]:
        """Keep other threads from changing the session meanwhile."""
        return nullcontext() if self.read_only else self.lock

    def _array_now(self, path: str) -> tuple[ArrayNode, ChunkTable | None]:
        """Return an array and what is staged of it, both of one moment."""
        with self._unchanging():  # tables that were staged one by one are joined for this
            node = self.array(path)
            return node, None if self._staging is None else self._staging.table(node.id)

    def _reader(self, node: ArrayNode) -> ArrayReader:
        from icevirt.repo.reader import ArrayReader

        found = self._readers.get(node.id)
        if found is None or found.manifests is not node.manifests:  # of before a commit
            found = self._readers[node.id] = ArrayReader(self.assets, node)
        return found


def _unlock_in_child() -> None:
    """Let a forked child not wait for a thread of its parent that held a lock."""
    for lock in list(_locks):
        if not lock._is_owned():  # noqa: SLF001 - by the thread that forked and goes on
            lock._at_fork_reinit()  # noqa: SLF001 - as the locks of the standard library


os.register_at_fork(after_in_child=_unlock_in_child)
