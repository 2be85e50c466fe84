"""Edit a writable session: nodes, metadata and chunk references."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import (
    MetadataError,
    ReadOnlyError,
    RearrangingError,
    SessionStateError,
    check,
)
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.repo.view import SessionMode, View
from icevirt.versioning import chunk_tables
from icevirt.versioning.chunk_tables import index_row

if TYPE_CHECKING:  # readers share this module
    from icevirt.repo.commits.change_set import ChangeSet
    from icevirt.versioning.diff import Diff
    from icevirt.versioning.hierarchy import Reindex


class Editing(View):
    """The part of `Session` that changes things."""

    _any_codec: ClassVar[bool] = False  # whether metadata may name codecs that are unknown here

    def add_group(self, path: str, zarr_json: bytes) -> None:
        """Add a group; missing parents are added too.

        An existing group gets the new attributes, if they do not contradict its own.

        Raises:
            AlreadyExistsError: An array exists there, or a group with different metadata.
            InvalidInputError: The metadata is not that of a zarr v3 group.
            ReadOnlyError: The session is read-only.
        """
        path = self._check(path, zarr_json, "group")
        self._change().add_group(path, zarr_json)

    def add_array(self, path: str, zarr_json: bytes, chunks: ChunkTable) -> None:
        """Add an array and its chunk references; missing parents are added too.

        Raises:
            AlreadyExistsError: Something exists there.
            InvalidInputError: The metadata is not that of a zarr v3 array, a chunk lies outside the
                grid, or no virtual chunk container covers a location.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.repo.commits import validation

        path = self._check(path, zarr_json, "array")
        validation.check_chunks(self.config, path, chunks)
        self._change().add_array(path, zarr_json, chunks)

    def set_metadata(self, path: str, zarr_json: bytes) -> None:
        """Replace the metadata of a node; chunks outside a smaller grid are dropped.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidInputError: The metadata is not that of the same kind of node.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.versioning import hierarchy

        node = self.node(path)
        kind = "array" if isinstance(node, ArrayNode) else "group"
        self._check(path, zarr_json, kind)
        staging = self._change()
        changed = hierarchy.set_metadata(dict(staging.nodes), node, zarr_json)
        if isinstance(changed, ArrayNode) and isinstance(node, ArrayNode):
            # growing back later is no undo
            size = np.array(changed.num_chunks, np.int64)
            reaching = tuple(
                ref
                for ref in node.manifests
                if not ref.extents or any(np.array(ref.extents)[:, 1] > size)
            )
            whole = self._reader(node).table(reaching)
            with self._unchanging():
                staged = staging.table(node.id)
            if staged is not None:
                whole = chunk_tables.drop_deleted(chunk_tables.overlay(whole, staged))
            staging.forget(node, whole.index[np.any(whole.index >= size, axis=1)])
        staging.replace(changed)

    def set_chunks(self, path: str, chunks: ChunkTable, *, any_location: bool = False) -> None:
        """Write chunk references, replacing existing ones.

        Args:
            path: The array.
            chunks: The references.
            any_location: Accept locations that no container covers, which no client can read yet.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: A chunk lies outside the grid, or no container covers a location.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.repo.commits import validation

        node = self.array(path)
        validation.check_chunks(self.config, node.path, chunks, any_location=any_location)
        self._change().put(node, chunks)

    def set_chunk(self, path: str, index: Sequence[int], encoded: bytes) -> None:
        """Write the encoded bytes of one chunk: small chunks to the manifest, others to an object.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The chunk lies outside the grid, or has no bytes.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.repo.commits import validation
        from icevirt.repo.commits.change_set import check_grid

        node = self.array(path)
        at = index_row("index", index, len(node.num_chunks), node.path)
        encoded = check("encoded", encoded, bytes)
        staging = self._change()
        if len(encoded) <= self.config.inline_threshold:
            chunks = ChunkTable.of_inline(index=at, chunks=[encoded])
        else:
            check_grid(node, at)  # nothing is stored for a chunk that is refused
            chunks = chunk_tables.native(at, self.assets.put_chunk(encoded), len(encoded))
        validation.check_chunks(self.config, path, chunks)
        staging.put(node, chunks)

    def delete(self, path: str) -> None:
        """Delete a node and everything below it; a missing node is not an error."""
        path = paths.canonical(path)
        self._change().remove(path)

    def delete_chunks(self, path: str, index: NDArray[np.integer]) -> None:
        """Make chunks of an array, shape (k, ndim), unwritten. Raises as `set_chunks` does."""
        from icevirt.repo.commits.change_set import check_grid

        node = self.array(path)
        check_grid(node, np.asarray(index))
        self._change().forget(node, np.asarray(index))

    def shift_array(self, array_path: str, chunk_offset: Sequence[int]) -> None:
        """Shift all chunks of an array by so many chunks along each dimension; nothing is copied.

        Chunks that would leave the grid are dropped; indices that no chunk moved to become
        unwritten.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: Its grid is not regular, or has another number of dimensions.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.versioning import hierarchy

        node, table = self.array(array_path), self.array_table(array_path)
        self._change().put(node, hierarchy.shift(node, table, tuple(chunk_offset)))

    def reindex_array(
        self, array_path: str, forward: Reindex, backward: Reindex | None = None
    ) -> None:
        """Put each chunk of an array where ``forward`` says; nothing is copied.

        Args:
            array_path: Path of the array.
            forward: Called with the index of each chunk that was written, as a list; returns its
                new index, or None to leave it where it is.
            backward: The inverse. Without it, indices that no chunk moved to keep their chunks;
                with it they become unwritten.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: Its grid is not regular, a new index lies outside, or two are equal.
            ReadOnlyError: The session is read-only.
        """
        from icevirt.versioning import hierarchy

        node, table = self.array(array_path), self.array_table(array_path)
        self._change().put(node, hierarchy.reindex(node, table, forward, backward))

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether there is something to commit."""
        staging = self._staging
        return staging is not None and not staging.is_empty()

    def status(self) -> Diff:
        """Return what is uncommitted."""
        from icevirt.versioning.diff import Diff, diff_of

        with self._unchanging():
            if self._staging is None:
                return Diff()
            return diff_of(self._base, self.snapshot, [self._staging.log(self._base.id)])

    def discard_changes(self) -> None:
        """Discard all uncommitted changes, of a fork those since it began.

        Raises:
            ReadOnlyError: The session is read-only.
        """
        self._settle(self._base, self._area().undone())

    # -- inside ------------------------------------------------------------------------------

    def _area(self, refusal: type[ReadOnlyError] = ReadOnlyError) -> ChangeSet:
        """Return the staging area, which is about to change or to be committed."""
        from icevirt.repo.commits.change_set import ChangeSet

        if self.read_only:
            raise refusal(
                "this session is read-only",
                do="Open a new one with `repo.writable_session(branch)`; a session is read-only "
                "after its commit.",
                snapshot=self.snapshot_id,
            )
        if self._committer not in (None, threading.get_ident()):
            raise SessionStateError(
                "another thread is committing this session, so this change would be lost",
                do="Finish all writes before the commit; make later changes in a new session.",
                snapshot=self.snapshot_id,
            )
        if self._staging is None:
            self._staging = ChangeSet(self._base)
        self._seen = None
        return self._staging

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse changes of other threads meanwhile: a commit would lose them, or half of them."""
        with self.lock:  # waits for a change that is under way
            self._area().join_tables()  # so that the commit and those who read change nothing
            before, self._committer = self._committer, threading.get_ident()
        try:
            yield
        finally:
            self._committer = before

    def _change(self) -> ChangeSet:
        """Return the staging area for a change that is not a move."""
        area = self._area()
        if self._mode is SessionMode.rearrange:
            raise RearrangingError(
                "a rearrange session only moves nodes",
                do="Commit it, and make other changes in `repo.writable_session(branch)`.",
            )
        return area

    def _settle(self, base: Snapshot, staging: ChangeSet | None = None) -> None:
        with self.lock:
            self._base = base
            self._staging, self._seen = staging, None
            self._readers.clear()

    def _check(self, path: str, zarr_json: bytes, kind: str) -> str:
        from icevirt.repo.commits import validation

        path = paths.canonical(path)
        found = validation.check_metadata(path, zarr_json, any_codec=self._any_codec)
        if found != kind:
            raise MetadataError(
                f"the metadata belongs to another kind of node: {found}",
                do=f"Pass metadata whose node_type is {kind!r}.",
                path=path,
            )
        return path
