"""A version of a repository, to read, and with uncommitted changes where it is writable.

What a session sees is isolated: it never changes by what others commit. Its own changes are seen by
nobody else until `commit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError, ReadOnlyError, SessionStateError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.logic import coverage, nodes, tables
from icevirt.logic.changes import Diff, diff_of
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, Node, Snapshot
from icevirt.repo import commit, hook, validation
from icevirt.repo.assets import Assets
from icevirt.repo.head import Head
from icevirt.repo.reader import ArrayReader, Found, joined
from icevirt.repo.staging import Staging, check_grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a session takes over from its repository."""

    assets: Assets
    head: Head
    config: RepositoryConfig
    credentials: Mapping[str, Any]  # by authorised prefix
    commit_metadata: JSONObject


class Session:
    """Made by `Repository.readonly_session` and `Repository.writable_session`."""

    def __init__(self, context: Context, base: Snapshot, branch: str | None = None) -> None:
        self._context = context
        self._base = base
        self._branch = branch
        self._staging: Staging | None = None
        self._seen: Snapshot | None = None
        self._readers: dict[ObjectId8, ArrayReader] = {}

    def __repr__(self) -> str:
        if self._branch is None:
            return f"<icevirt.Session {self.snapshot_id} read-only>"
        changed = "with" if self.has_uncommitted_changes else "no"
        return f"<icevirt.Session {self._branch}@{self.snapshot_id} {changed} uncommitted changes>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._branch is not None:
            raise SessionStateError(
                "a writable session does not pickle",
                do="Commit it, or pickle a read-only session.",
            )
        return Session, (self._context, self._base)

    # -- what it is --------------------------------------------------------------------------

    @property
    def snapshot_id(self) -> str:
        """The snapshot it began with, or made by its commit."""
        return str(self._base.id)

    @property
    def branch(self) -> str | None:
        """The branch it will commit to; None for a read-only session."""
        return self._branch

    @property
    def read_only(self) -> bool:
        """Whether it takes no changes."""
        return self._branch is None

    @property
    def config(self) -> RepositoryConfig:
        """The configuration when the session began."""
        return self._context.config

    @property
    def assets(self) -> Assets:
        """The repository's objects."""
        return self._context.assets

    @property
    def authorized_prefixes(self) -> tuple[str, ...]:
        """URL prefixes whose virtual chunks may be read."""
        return tuple(self._context.credentials)

    @property
    def credentials(self) -> Mapping[str, Any]:
        """Credentials by authorised prefix."""
        return self._context.credentials

    @property
    def store(self) -> Any:
        """A zarr store over the session."""
        return hook.store_of(self)

    # -- nodes -------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The nodes as changed so far; manifests are those of the base until the commit."""
        if self._staging is None:
            return self._base
        if self._seen is None:
            self._seen = self._staging.snapshot()
        return self._seen

    def find(self, path: str) -> Node | None:
        """Return a node as changed so far, or None."""
        if self._staging is None:
            return self._base.find(paths.canonical(path))
        return self._staging.nodes.get(paths.canonical(path))

    def node(self, path: str) -> Node:
        """Return a node as changed so far. Raises ``NodeNotFoundError``."""
        path = paths.canonical(path)
        return self.find(path) or self.snapshot.node(path)

    def array(self, path: str) -> ArrayNode:
        """Return an array as changed so far.

        Raises:
            NodeNotFoundError: There is nothing.
            InvalidInputError: There is a group.
        """
        node = self.node(path)
        if not isinstance(node, ArrayNode):
            raise InvalidInputError("this is a group, not an array", path=node.path)
        return node

    def get_node_id(self, path: str) -> str:
        """Return the id that the node keeps for its lifetime. Raises ``NodeNotFoundError``."""
        return str(self.node(path).id)

    # -- references --------------------------------------------------------------------------

    def references(self, path: str, index: NDArray[np.integer]) -> Found:
        """Look up many chunks of an array at once.

        Args:
            path: Of the array.
            index: Chunk indices, shape (k, ndim), in any order.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The indices do not fit the array's number of dimensions.
        """
        node = self.array(path)
        ndim = len(node.num_chunks)
        index = np.asarray(index)
        if index.ndim != 2 or index.shape[1] != ndim:
            raise InvalidInputError(
                "chunk indices do not have the array's number of dimensions",
                do=f"Pass an integer array of shape (k, {ndim}).",
                path=node.path,
                shape=index.shape,
            )
        staged = self._staged(node)
        if staged is None:
            return joined(list(self._reader(node).parts(index)), len(index), ndim)
        rows = tables.RowFinder.of(staged).find(index)
        mine, others = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
        parts = [(others[at], part) for at, part in self._reader(node).parts(index[others])]
        parts.append((mine, staged.take(rows[mine])))
        return joined(parts, len(index), ndim)

    def array_table(self, path: str) -> ChunkTable:
        """Return all references of an array, sorted by index. Raises ``NodeNotFoundError``."""
        node = self.array(path)
        committed = self._reader(node).table()
        staged = self._staged(node)
        if staged is None:
            return committed
        return tables.stored(tables.overlay(committed, staged))

    # -- changes -----------------------------------------------------------------------------

    def add_group(self, path: str, zarr_json: bytes) -> None:
        """Add a group; parents that are missing are added too.

        A group that is there takes the new attributes, if they do not contradict its own.

        Raises:
            AlreadyExistsError: An array is there, or a group that says something else.
            InvalidInputError: The metadata is not that of a zarr v3 group.
            ReadOnlyError: The session takes no changes.
        """
        path = self._checked(path, zarr_json, "group")
        self._changed().add_group(path, zarr_json)

    def add_array(self, path: str, zarr_json: bytes, chunks: ChunkTable) -> None:
        """Add an array and its chunk references; parents that are missing are added too.

        Raises:
            AlreadyExistsError: Something is there.
            InvalidInputError: The metadata is not that of a zarr v3 array, a chunk lies outside the
                grid, or no virtual chunk container covers a location.
            ReadOnlyError: The session takes no changes.
        """
        path = self._checked(path, zarr_json, "array")
        self._check_chunks(path, chunks)
        self._changed().add_array(path, zarr_json, chunks)

    def set_metadata(self, path: str, zarr_json: bytes) -> None:
        """Replace the metadata of a node; chunks outside a smaller grid are dropped.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidInputError: The metadata is not that of the same kind of node.
            ReadOnlyError: The session takes no changes.
        """
        node = self.node(path)
        kind = "array" if isinstance(node, ArrayNode) else "group"
        self._checked(path, zarr_json, kind)
        staging = self._changed()
        nodes.set_metadata(staging.nodes, node, zarr_json)

    def set_chunks(self, path: str, chunks: ChunkTable) -> None:
        """Write chunk references over those that are there.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: A chunk lies outside the grid, or no container covers a location.
            ReadOnlyError: The session takes no changes.
        """
        node = self.array(path)
        self._check_chunks(node.path, chunks)
        self._changed().put(node, chunks)

    def set_chunk(self, path: str, index: Sequence[int], encoded: bytes) -> None:
        """Write the encoded bytes of one chunk: into the manifest if they are few, else an object.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The chunk lies outside the grid, or has no bytes.
            ReadOnlyError: The session takes no changes.
        """
        node = self.array(path)
        at = np.asarray(index, np.int64).reshape(1, -1)
        check_grid(node, at)
        staging = self._changed()
        if len(encoded) <= self.config.inline_chunk_threshold_bytes:
            chunks = ChunkTable.inlined(index=at, chunks=[encoded])
        else:
            chunks = _native(at, self.assets.put_chunk(encoded), len(encoded))
        self._check_chunks(path, chunks)
        staging.put(node, chunks)

    def delete(self, path: str) -> None:
        """Delete a node and everything below it; one that is not there is no error."""
        path = paths.canonical(path)
        self._changed().remove(path)

    def delete_chunks(self, path: str, index: NDArray[np.integer]) -> None:
        """Make chunks of an array, shape (k, ndim), unwritten. Raises as `set_chunks` does."""
        node = self.array(path)
        self._changed().forget(node, np.asarray(index))

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether there is something to commit."""
        return self._staging is not None and not self._staging.is_empty()

    def status(self) -> Diff:
        """Return what is uncommitted."""
        if self._staging is None:
            return Diff()
        return diff_of(self._base, self.snapshot, [self._staging.log(self._base.id)])

    def discard_changes(self) -> None:
        """Forget all uncommitted changes."""
        self._settle(self._base)

    def commit(
        self,
        message: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        allow_empty: bool = False,
    ) -> str:
        """Make the changes the new tip of the branch, all at once, and return the snapshot's id.

        Afterwards the session is read-only and shows that snapshot.

        Raises:
            SessionStateError: There is nothing to commit.
            ReadOnlyError: The session or the repository takes no changes.
            RefNotFoundError: The branch was deleted meanwhile.
            ConflictError: The branch moved since the session began; the changes are kept.
        """
        staging = self._changed()
        assert self._branch is not None
        if staging.is_empty() and not allow_empty:
            raise SessionStateError(
                "there is nothing to commit", do="Change something, or pass allow_empty=True."
            )
        made = commit.commit(
            self.assets,
            self._context.head,
            staging,
            branch=self._branch,
            message=message,
            metadata={**self._context.commit_metadata, **(metadata or {})},
            config=self.config,
        )
        self._branch = None
        self._settle(made)
        return str(made.id)

    # -- inside ------------------------------------------------------------------------------

    def _changed(self) -> Staging:
        """Return the staging area that is about to change."""
        if self._branch is None:
            raise ReadOnlyError(
                "this session takes no changes",
                do="Begin a new one with `repo.writable_session(branch)`;"
                " a session is read-only after its commit.",
                snapshot=self.snapshot_id,
            )
        if self._staging is None:
            self._staging = Staging(self._base)
        self._seen = None
        return self._staging

    def _settle(self, base: Snapshot) -> None:
        self._base = base
        self._staging = self._seen = None
        self._readers.clear()

    def _reader(self, node: ArrayNode) -> ArrayReader:
        if node.id not in self._readers:
            self._readers[node.id] = ArrayReader(self.assets, node)
        return self._readers[node.id]

    def _staged(self, node: ArrayNode) -> ChunkTable | None:
        """Return staged references; rows outside a grid that shrank are not seen."""
        return None if self._staging is None else self._staging.table(node.id)

    def _checked(self, path: str, zarr_json: bytes, kind: str) -> str:
        path = paths.canonical(path)
        found = validation.checked(path, zarr_json)
        if found != kind:
            raise InvalidInputError(f"this is the metadata of an {found}", path=path, wanted=kind)
        return path

    def _check_chunks(self, path: str, chunks: ChunkTable) -> None:
        check_chunks(self.config, path, chunks)


def check_chunks(config: RepositoryConfig, path: str, chunks: ChunkTable) -> None:
    """Check what holds for references whatever the array.

    Raises:
        InvalidInputError: One has no bytes, or no container covers a location.
    """
    empty = (chunks.length == 0) & (chunks.kind != ChunkType.uninitialized)
    if empty.any():
        raise InvalidInputError(
            "a chunk reference of no bytes cannot be read",
            do="Leave out the references of chunks that were never written.",
            path=path,
            chunk=tuple(chunks.index[int(empty.argmax())].tolist()),
        )
    if not chunks.count(ChunkType.virtual):
        return
    used = tables.compact(chunks).locations.url
    containers = config.virtual_chunk_containers.values()
    bad = coverage.first_uncovered(used, coverage.prefixes_of(containers))
    if bad is not None:
        raise InvalidInputError(
            "no virtual chunk container of this repository covers a location",
            do=_how_to_add(bad),
            path=path,
            location=bad,
            containers=[container.url_prefix for container in containers],
        )


def _how_to_add(url: str) -> str:
    prefix = url.rsplit("/", 1)[0] + "/"
    store = (
        f'local_filesystem_store("{prefix.removeprefix("file://")}")'
        if prefix.startswith("file://")
        else "ObjectStoreConfig(...)"
    )
    return (
        "Add one and begin a new session:"
        f' repo.config.set_virtual_chunk_container(VirtualChunkContainer("{prefix}", {store}));'
        " repo.save_config()"
    )


def _native(index: NDArray[np.int64], key: ObjectId12, length: int) -> ChunkTable:
    return ChunkTable(
        index=index.astype(np.uint32),
        kind=np.full(1, ChunkType.native, np.uint8),
        source=np.zeros(1, np.uint32),
        offset=np.zeros(1, np.uint64),
        length=np.full(1, length, np.uint64),
        chunk_ids=np.frombuffer(key, np.uint8).reshape(1, 12).copy(),
    )
