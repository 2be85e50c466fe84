"""Find references in a decompressed manifest, and decode only those that are found.

Spec: "Chunk Manifest Files". References are ordered by index, so bisection finds them. All about a
reference, its index too, is checked when it is decoded. A chunk is said to be absent only after the
order of all references was checked. So a lookup answers what decoding the whole manifest would, or
raises; damage of references that are not asked for may stay unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.strings import Places
from icevirt.wire import header
from icevirt.wire.flatbuffer.columns_read import Payload, Tables
from icevirt.wire.flatbuffer.reader import Damage, FlatBufferReader, Span, reading
from icevirt.wire.flatbuffer.schema import ARRAY_MANIFEST, CHUNK_REF, MANIFEST
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.references_read import LocationReader, read_rows, read_table

if TYPE_CHECKING:
    from icevirt.wire.manifests.index_search import IndexSearch

_FILE = FileKind.manifest.name


class OpenManifest:
    """A manifest whose small tables were read, and whose references were not.

    Raises:
        FormatError: It is damaged.
    """

    def __init__(self, raw: bytes) -> None:
        data, size = header.unpack_array(raw, FileKind.manifest)
        del raw  # which is let go of, unless the caller keeps it
        data.flags.writeable = False
        with reading(_FILE):
            reader = FlatBufferReader(memoryview(data)[:size])
            values = reader.root(MANIFEST)
            self.id = ObjectId12(values["id"])
            self._payload = Payload(data, size)
            how = values["compression_algorithm"], values["location_dictionary"]
            self._locator = LocationReader(self._payload, *how)
            # comparing few locations takes longer than reading them
            self._few = LocationReader(self._payload, *how, compares=False)
            self._unkept = {
                *reader.newer,
                *([MANIFEST.name] if values["extra"] is not None else []),
            }
            self._spans: dict[ObjectId8, Span] = {}
            left = size // 4
            for each in values["arrays"]:
                node, span = ObjectId8(each["node_id"]), each["refs"]
                left -= span.count
                if left < 0 or node in self._spans:
                    raise Damage("an array is listed twice, or its references are", span.start)
                self._spans[node] = span
                if each["extra"] is not None:
                    self._unkept.add(ARRAY_MANIFEST.name)
        self._searches: dict[ObjectId8, IndexSearch] = {}

    @property
    def num_chunk_refs(self) -> int:
        """References of all arrays together."""
        return sum(span.count for span in self._spans.values())

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._payload.size + sum(search.nbytes for search in self._searches.values())

    def decoded(self) -> Manifest:
        """Decode all references. Raises ``FormatError``."""
        found: dict[ObjectId8, ChunkTable] = {}
        unkept = set(self._unkept)
        with reading(_FILE):
            for node, span in self._spans.items():
                found[node], whole = read_table(self._locator, span)
                if not whole:
                    unkept.add(CHUNK_REF.name)
            return Manifest(id=self.id, arrays=found, unkept=tuple(sorted(unkept)))

    def compressed_locations(self) -> tuple[int | None, int]:
        """Return the bytes of the dictionary of locations, and how many references use it.

        Raises:
            FormatError: The manifest is damaged.
        """
        with reading(_FILE):
            refs = [
                Tables(self._payload, each, CHUNK_REF)
                for each in self._spans.values()
                if each.count
            ]
            found = [tables.vectors("compressed_location", 1) for tables in refs]
        used = sum(len(start) for _, start, _ in (each for each in found if each is not None))
        trained = self._locator.trained
        return None if trained is None else len(trained), used

    def is_proven(self, node: ObjectId8) -> bool:
        """Say whether lookups look at few references of an array, whatever they are to find."""
        search = self._searches.get(node)
        return node not in self._spans or (search is not None and search.is_proven)

    def find(self, node: ObjectId8, wanted: NDArray[np.int64]) -> tuple[Places, ChunkTable]:
        """Look chunks of an array up by their indices, shape (k, ndim).

        Returns:
            Which of the k were found, and a table with a row for each of those.

        Raises:
            FormatError: One is not found and the references are not in order, or one that was
                found is damaged.
        """
        span = self._spans.get(node)
        if span is None or not span.count or not len(wanted):
            return np.zeros(0, np.int64), ChunkTable.empty(wanted.shape[1])
        with reading(_FILE):
            search = self._searches.get(node) or self._search(node, span)
            if not search.is_proven and (found := self._likely(search, span, wanted)) is not None:
                return np.arange(len(wanted)), found
            row = search.rows(wanted)
            there = np.flatnonzero(row >= 0)
            if not len(there):
                return there, ChunkTable.empty(wanted.shape[1])
            found = self._decoded_rows(span, row[there])
            if not np.array_equal(found.index, wanted[there]):
                raise Damage("a reference has another number of dimensions than the others", 0)
            return there, found

    def _search(self, node: ObjectId8, span: Span) -> IndexSearch:
        from icevirt.wire.manifests.index_search import IndexSearch  # small ones are decoded whole

        return self._searches.setdefault(node, IndexSearch(self._payload, span))

    def _likely(
        self, search: IndexSearch, span: Span, wanted: NDArray[np.int64]
    ) -> ChunkTable | None:
        """Find chunks without a look at all references; None if that does not find all."""
        with suppress(Damage):  # of those that were looked at: what it is shows by the proof
            if (rows := search.likely_rows(wanted)) is not None:
                found = self._decoded_rows(span, rows)
                return found if np.array_equal(found.index, wanted) else None
        return None

    def _decoded_rows(self, span: Span, rows: Places) -> ChunkTable:
        return _in_order_of(rows, lambda wanted: read_rows(self._few, span, wanted))


def _in_order_of(rows: Places, read: Callable[[Places], ChunkTable]) -> ChunkTable:
    """Return a table with these rows, of what ``read`` makes of them in order and each once."""
    if bool((rows[1:] > rows[:-1]).all()):
        return read(rows)
    distinct, number = np.unique(rows, return_inverse=True)
    return read(distinct).take(number)
