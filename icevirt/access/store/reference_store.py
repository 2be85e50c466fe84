"""Show the store's references as data: batches, an Arrow table, and the source of one value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icevirt.access import references
from icevirt.access.references import Batch, ChunkSource
from icevirt.access.store.session_store import SessionStore
from icevirt.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa


class ReferenceStore(SessionStore):
    """A store that shows the references it reads by."""

    async def array_chunk_iterator(
        self, array_path: str, batch_size: int = 100_000
    ) -> AsyncIterator[Batch]:
        """Yield the references of an array in batches of columns, as icechunk does.

        Each batch is (coordinates, kinds, paths, offsets, lengths, inline bytes by row).

        Raises:
            NodeNotFoundError: There is no such array.
        """
        if batch_size < 1:
            raise InvalidInputError("a batch has at least one row", batch_size=batch_size)
        for batch in references.batches(self._session, array_path, batch_size):
            yield batch

    def refs_table(self, path: str) -> pa.Table:
        """Return the references of an array as an Arrow table."""
        from icevirt.access.interop.arrow import refs_table

        return refs_table(self._session, path)

    def source_of(
        self,
        path: str,
        index: Sequence[int] | None = None,
        *,
        labels: Mapping[str, Any] | None = None,
    ) -> ChunkSource:
        """Return the object and the byte range that a value is decoded from.

        Args:
            path: The array.
            index: Index of the value along each dimension; negative numbers count from the end.
            labels: Instead of an index: a label of its coordinate for each dimension.

        Raises:
            NodeNotFoundError: There is no such array.
            InvalidInputError: The array has no such value.
        """
        from icevirt.access import value_to_chunk

        if (index is None) == (labels is None):
            raise InvalidInputError(
                "pass either the index or the labels of the value",
                do="For example index=(0, 1) or labels={'time': '2024-01-01', ...}.",
                path=path,
            )
        if labels is not None:
            index = value_to_chunk.index_of(self, self._session.snapshot, path, labels)
        assert index is not None
        chunk = value_to_chunk.chunk_of(self._session.array(path), index)
        return references.source_of_chunk(self._session, path, chunk)
