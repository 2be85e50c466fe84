"""Open arrays of a session: as columns, or through zarr's pipeline where that has to decode.

The engine, `icevirt.verify` and `icevirt.materialize` read through these; no chunk decodes to more
than its array declares. ``zarr.open(session.store)`` is zarr's own reader, without that limit; it
also replaces backslashes in a path by slashes and so opens another node. Here the path is exactly
the node's.

A window of chunks at a time is looked up, so that memory stays bounded whatever the selection.
Ranges of one object that lie near one another are read together, decoded in the thread that read
them, and put straight into the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import StorePath

from icevirt.access.columns.decoding import ChunkDecoder, reason_for_zarr
from icevirt.access.columns.grid import grid_of, shapes_of
from icevirt.access.columns.ranges import Piece, batch, pieces_of
from icevirt.access.columns.selections import (
    ChunkWindow,
    Index,
    OrthogonalSelection,
    PointSelection,
    Selection,
)
from icevirt.access.columns.workers import work_ahead, work_through
from icevirt.access.store.locating import Range, Source
from icevirt.access.store.reading import SessionReader
from icevirt.errors import IcevirtError, StorageError
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import ArrayNode, document_of, using
from icevirt.objects import fetch
from icevirt.objects.answers import Body
from icevirt.objects.coalescing import Coalescing
from icevirt.repo.session import Session
from icevirt.threads import Threads
from icevirt.wire.bounded import limit_array

if TYPE_CHECKING:
    from icevirt.access.store.locating import File
    from icevirt.objects.chunk_cache import CachedObject, FreshChunks


_WINDOW = 1 << 14  # chunks that are looked up together
_IN_FLIGHT = 32 * 1024 * 1024  # bytes that are fetched ahead of their decoding
_TOGETHER = 1 << 17  # bytes that are decoded together, which stay in the processor's cache
_WAITING = 16  # threads that wait for the storage of a repository
# of files at hand: a gap costs about as much as a call; nothing is gained by cutting a chunk
_LOCAL = Coalescing(free_gap=8192, max_gap=8192, joined=1 << 19, most=1 << 62)


class ColumnReader:
    """Reads one array of a session. Blocking; safe in threads.

    Raises:
        StorageError: From every method: a chunk cannot be read or decoded; the error names it.
        IndexError: An index is out of bounds.
    """

    def __init__(self, reader: SessionReader, array: zarr.Array[Any]) -> None:
        self.reader = reader
        self.array = array
        self.path = f"/{array.path}"
        self.grid = grid_of(array)
        self.decoder = ChunkDecoder(array)
        self._dtype: np.dtype[Any] = array.dtype
        self.is_regular = all(axis.edges is None for axis in self.grid)
        self.chunk_bytes = self._dtype.itemsize * prod(axis.size for axis in self.grid)
        # else chunks differ in size, or are their values
        self.keeps_values = self.is_regular and not self.decoder.is_plain

    def read(self, key: Sequence[Index]) -> NDArray[Any]:
        """Return the elements that an index along each axis selects."""
        return self._read(OrthogonalSelection(self.grid, key))

    def read_points(self, key: Sequence[Index]) -> NDArray[Any]:
        """Return the elements that arrays select together."""
        return self._read(PointSelection(self.grid, key))

    def _read(self, selection: Selection) -> NDArray[Any]:
        try:
            canvas = np.empty(selection.canvas_shape, self._dtype)
        except (MemoryError, ValueError) as error:  # numpy refuses what no memory could hold
            from icevirt.access.store.chunk_errors import decoding_error

            problem = MemoryError(str(error))
            raise decoding_error(self.array.store, self.path, problem) from error
        for begin in range(0, selection.count if canvas.size else 0, _WINDOW):
            window = selection.window(begin, min(begin + _WINDOW, selection.count))
            _WindowReading(self, window, canvas).run()
        return selection.result_of(canvas)


class _WindowReading:
    """Reads the chunks of one window into the result."""

    def __init__(self, of: ColumnReader, window: ChunkWindow, canvas: NDArray[Any]) -> None:
        self._of = of
        self._window = window
        self._canvas = canvas
        self._locator = of.reader.locator
        self._decode = of.decoder.decode
        self._shapes = shapes_of(of.grid, window.chunks)
        found = of.reader.references(of.path, window.chunks)
        if found is None:
            raise StorageError(
                "this array was deleted in its session, or has another number of dimensions now",
                do="Open it again: the session shows what there is.",
                variable=of.path,
            )
        self._found = found
        self._files: dict[int, File] = {}
        most = max(1, _TOGETHER // max(1, of.chunk_bytes))
        self._most = 1 << 62 if of.decoder.is_plain else most  # chunks that are decoded together
        self._fresh: dict[tuple[int, int], FreshChunks] = {}  # by kind and number of the source
        cache = self._locator.cache
        self._keeps_values = cache is not None and cache.form == "decoded" and of.keeps_values
        self._size = 3 * max(of.chunk_bytes, _LOCAL.joined)  # encoded, decoded, unshuffled

    def run(self) -> None:
        """Read, decode and place all chunks."""
        kind = self._found.kind
        for row in np.flatnonzero(kind == ChunkType.uninitialized).tolist():
            self._window.place(self._canvas, row, self._of.array.metadata.fill_value)
        for row in np.flatnonzero(kind == ChunkType.inline).tolist():
            self._read_alone(row)
        native = np.flatnonzero(kind == ChunkType.native)
        virtual = np.flatnonzero(kind == ChunkType.virtual)
        if len(native):
            self._read_native(native)
        if len(virtual):
            self._read_virtual(virtual)

    def _read_native(self, rows: NDArray[np.int64]) -> None:
        if not self._locator.has_local_storage:
            rows = self._take_cached(rows)
        pieces, alone = pieces_of(self._found, rows, _LOCAL)
        if self._locator.has_local_storage:
            work_through(pieces, self._read_piece, self._size)
        else:
            with Threads(_WAITING, "icevirt-read") as pool:
                self._work_ahead(pieces, pool.submit)
        work_through(alone, self._read_alone, self._size)

    def _read_virtual(self, rows: NDArray[np.int64]) -> None:
        sources = self._found.source[rows]
        used, counts = np.unique(sources, return_counts=True)
        for source, count in zip(used.tolist(), counts.tolist(), strict=True):
            try:
                file = self._files[source] = self._locator.file(self._found.locations, source)
            except IcevirtError as error:
                raise self._named(error, int(rows[sources == source][0])) from error.__cause__
            self._locator.count(file, count)
        is_local = np.array([isinstance(self._files[source], Source) for source in used.tolist()])
        near = is_local[np.searchsorted(used, sources)]
        if near.any():
            pieces, alone = pieces_of(self._found, rows[near], _LOCAL)
            work_through(list(batch(pieces, _LOCAL.joined)), self._read_batch, self._size)
            work_through(alone, self._read_alone, self._size)
        if not near.all():
            pieces, alone = pieces_of(self._found, self._take_cached(rows[~near]), Coalescing())
            self._work_ahead(pieces, self._submit)
            work_through(alone, self._read_alone, self._size)

    def _take_cached(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Put what a cache on disk has in its place; return the other rows."""
        if self._locator.cache is None:
            return rows
        from icevirt.objects.chunk_cache import STRETCH

        source, at = self._found.source[rows], self._found.offset[rows] // STRETCH
        order = np.lexsort((rows, at, source))
        ends = np.flatnonzero((np.diff(source[order]) != 0) | (np.diff(at[order]) != 0)) + 1
        left: list[int] = []

        def take(some: NDArray[np.int64]) -> None:
            left.extend(self._put_cached(some.tolist()))

        work_through(np.split(rows[order], ends), take, self._size)
        return np.array(sorted(left), np.int64)

    def _put_cached(self, rows: list[int]) -> list[int]:
        """Put chunks of one object in their place; return those that the cache has not."""
        found = self._found
        kept = self._kept_of(rows[0])
        if kept is None:
            return rows
        if self._keeps_values:
            return self._put_values(kept, rows)
        begins = found.offset[rows]
        ends = begins + found.length[rows]
        bodies = kept.get_all([*zip(begins.tolist(), ends.tolist(), strict=True)])
        held = [(row, body) for row, body in zip(rows, bodies, strict=True) if body is not None]
        for at in range(0, len(held), self._most):
            some = held[at : at + self._most]
            self._put_all([row for row, _ in some], [body for _, body in some], None)
        return [row for row, body in zip(rows, bodies, strict=True) if body is None]

    def _put_values(self, kept: CachedObject, rows: list[int]) -> list[int]:
        """Put values that a cache keeps in their place; return the rows of those that it has not.

        Others may be kept once they are decoded.
        """
        left = []
        bodies = self._values_of(kept).get_all([self._span(row) for row in rows])
        for row, body in zip(rows, bodies, strict=True):
            if body is None or len(body) != self._of.chunk_bytes:
                left.append(row)
                continue
            values = np.frombuffer(body, self._of.array.dtype).reshape(self._shapes[row])
            self._window.place(self._canvas, row, values)
        if left:
            from icevirt.objects.chunk_cache import FreshChunks

            self._fresh.setdefault(self._source(rows[0]), FreshChunks())
        return left

    def _values_of(self, kept: CachedObject) -> CachedObject:
        return kept.decode(self._of.decoder.signature, self._of.chunk_bytes)

    def _source(self, row: int) -> tuple[int, int]:
        return int(self._found.kind[row]), int(self._found.source[row])

    def _span(self, row: int) -> tuple[int, int]:
        begin = int(self._found.offset[row])
        return begin, begin + int(self._found.length[row])

    def _kept_of(self, row: int) -> CachedObject | None:
        """Return what a cache holds of the object of a chunk."""
        number = int(self._found.source[row])
        if self._found.kind[row] == ChunkType.virtual:
            return getattr(self._files[number], "kept", None)
        return self._locator.kept_of_chunk(ObjectId12(self._found.chunk_ids[number].tobytes()))

    def _keep_values(self, rows: Sequence[int], values: NDArray[Any]) -> None:
        """Let the cache keep values of chunks that were sent just as they were scanned."""
        fresh = self._fresh.get(self._source(rows[0]))  # a piece has one
        kept = None if fresh is None else self._kept_of(rows[0])
        if fresh is None or kept is None:
            return
        pairs = ((self._span(row), each) for row, each in zip(rows, values, strict=True))
        dtype = self._of.array.dtype
        bodies = {s: np.ascontiguousarray(v, dtype).tobytes() for s, v in pairs if fresh.take(s)}
        if bodies:
            self._values_of(kept).put(bodies)

    def _work_ahead(self, pieces: Sequence[Piece], submit: Callable[..., Future[None]]) -> None:
        """Read pieces that have to be waited for, side by side."""
        if len(pieces) == 1:  # no thread is needed to wait for one
            self._read_piece(pieces[0])
            return
        work_ahead(
            pieces,
            lambda piece: submit(self._read_piece, piece),
            size=lambda piece: piece.end - piece.begin,
            most=_IN_FLIGHT,
        )

    def _submit(self, work: Callable[[Piece], None], piece: Piece) -> Future[None]:
        """Do work in a thread, when few enough wait for the host of a piece."""
        from icevirt.objects.web_connections import HOSTS

        file: Any = self._files[piece.source]
        return HOSTS.submit(file.reach.host, partial(work, piece))

    def _read_batch(self, pieces: list[Piece]) -> None:
        """Read pieces of one object; a local file is compared with the scan once, after that."""
        file = self._locator.expecting(
            self._files[pieces[0].source], sum(len(piece.rows) for piece in pieces)
        )
        bodies = None
        if len(pieces) > 1 and isinstance(file, Source):
            spans = [(piece.begin, piece.end - piece.begin) for piece in pieces]
            with suppress(IcevirtError):  # it is raised again for the chunk that is wrong
                bodies = fetch.read_all(
                    file.grant, spans, checksum=file.checksum, on_stale=file.on_stale
                )
        if bodies is None:
            for piece in pieces:
                self._read_piece(piece)
            return
        rows = [row for piece in pieces for row in piece.rows]
        raws = [
            raw
            for piece, body in zip(pieces, bodies, strict=True)
            for raw in piece.cut(memoryview(body))
        ]
        for at in range(0, len(rows), self._most):
            self._put_all(rows[at : at + self._most], raws[at : at + self._most], None)

    def _read_piece(self, piece: Piece) -> None:
        """Read the chunks of a piece by one call; by themselves where that fails."""
        if len(piece.rows) == 1:
            self._read_alone(piece.rows[0])
            return
        try:
            body = memoryview(self._range(piece).wait())
        except IcevirtError:
            for row in piece.rows:  # so that the error is that of a chunk
                self._read_alone(row)
            return
        begin, most = piece.begin, self._most
        raws = piece.cut(body)
        has_gaps = piece.starts[1:] != piece.ends[:-1]
        for at in range(0, len(raws), most):
            rows = piece.rows[at : at + most]
            end = piece.ends[at + len(rows) - 1]
            joined = None if has_gaps else body[piece.starts[at] - begin : end - begin]
            self._put_all(rows, raws[at : at + most], joined)

    def _range(self, piece: Piece) -> Range:
        kind = int(self._found.kind[piece.rows[0]])
        file = self._files.get(piece.source) if kind == ChunkType.virtual else None
        known = piece.source if file is None else self._locator.expecting(file, len(piece.rows))
        is_kept = self._locator.cache is not None
        chunks = tuple(zip(piece.starts, piece.ends, strict=True)) if is_kept else ()
        return self._locator.range_of(
            self._found,
            kind,
            known,
            piece.begin,
            piece.end - piece.begin,
            chunks=chunks,
            fresh=self._fresh.get(self._source(piece.rows[0])),
        )

    def _read_alone(self, row: int) -> None:
        begin, length = int(self._found.offset[row]), int(self._found.length[row])
        source, end = int(self._found.source[row]), begin + length
        try:
            body = self._range(Piece(source, begin, end, [row], [begin], [end])).wait()
        except IcevirtError as error:
            raise self._named(error, row) from error.__cause__
        self._put(row, body)

    def _put_all(self, rows: list[int], raws: Sequence[Body], joined: Body | None) -> None:
        """Decode chunks and put them where they belong: together where they are a run.

        ``joined`` are the bytes of all, where they lie one behind the other.
        """
        if len(rows) > 1 and self._of.is_regular and rows == [*range(rows[0], rows[0] + len(rows))]:
            values = None
            with suppress(Exception):  # it is raised again for the chunk that is wrong
                values = self._of.decoder.decode_all(raws, self._shapes[rows[0]], joined)
            if values is not None:
                self._window.place_run(self._canvas, rows[0], values)
                if self._fresh:
                    self._keep_values(rows, values)
                return
        for row, raw in zip(rows, raws, strict=True):
            self._put(row, raw)

    def _put(self, row: int, raw: Body) -> None:
        """Decode a chunk and put it where it belongs."""
        try:
            values = self._decode(raw, self._shapes[row])
        except Exception as error:
            from icevirt.access.store.chunk_errors import decoding_error

            store, chunk = self._of.array.store, self._window.chunks[row].tolist()
            raise decoding_error(store, self._of.path, error, chunk) from error
        self._window.place(self._canvas, row, values)
        if self._fresh:
            self._keep_values([row], values[None])

    def _named[E: IcevirtError](self, error: E, row: int) -> E:
        """Return an error that says which chunk it is about."""
        facts = {"variable": self._of.path, "chunk": self._window.chunks[row].tolist()}
        found = self._found
        if found.kind[row] == ChunkType.virtual:
            facts["location"] = found.locations.url[int(found.source[row])]
        error.facts = {**facts, **error.facts}
        return error


class _ExactPath(StorePath):
    """A place in a store under exactly the given name."""

    def __init__(self, store: Store, path: str = "") -> None:
        super().__init__(store)
        self.path = path


class StoredArray:
    """An array of a snapshot. Reads block; they are safe in threads.

    Args:
        store: Where the chunks come from.
        node: The array.

    Raises:
        FormatError: Its metadata is not what zarr can use.
    """

    def __init__(self, store: Store, node: ArrayNode) -> None:
        document = document_of(node)
        with using(node):
            metadata = ArrayV3Metadata.from_dict(document)
            path = _ExactPath(store, node.path.strip("/"))
            self.zarr: zarr.Array[Any] = zarr.Array(limit_array(metadata, path))
        reader = getattr(store, "reader", None)  # of `IcevirtStore`, which is not below
        self._reader = reader if isinstance(reader, SessionReader) else None
        self.shape: tuple[int, ...] = self.zarr.shape
        self.dtype: np.dtype[Any] = self.zarr.dtype

    @property
    def is_far(self) -> bool:
        """Whether a server has its values, which stay as they are while the array is open."""
        return self._reader is not None and self._reader.is_far

    @cached_property
    def why_zarr(self) -> str | None:
        """Why zarr's pipeline reads this array; None if it is read as columns."""
        if self._reader is None:
            return "its store is wrapped in another one"
        return reason_for_zarr(self.zarr)

    @cached_property
    def _columns(self) -> ColumnReader | None:
        if self._reader is None or self.why_zarr is not None:
            return None
        return ColumnReader(self._reader, self.zarr)

    @cached_property
    def _piped(self) -> zarr.Array[Any]:
        """The array, whose pipeline names chunks."""
        from icevirt.access.store.naming_pipeline import name_chunks

        name_chunks(self.zarr)
        return self.zarr

    def __getitem__(self, box: tuple[int | slice, ...]) -> NDArray[Any]:
        """Return the elements of a box, given along each axis. Raises as `oindex`."""
        return np.asarray(self.oindex(box))

    def oindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that an index along each axis selects.

        Raises:
            StorageError: A chunk cannot be read or decoded.
            UnauthorizedError: It lies in a file that the session may not read.
            IndexError: An index is out of bounds.
        """
        if self._columns is not None:
            return self._columns.read(key)
        is_basic = not any(isinstance(each, np.ndarray) for each in key)
        with decoding(self._piped):
            return self._piped[key] if is_basic else self._piped.oindex[key]

    def vindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that arrays select together. Raises as `oindex`."""
        if self._columns is not None:
            return self._columns.read_points(key)
        with decoding(self._piped):
            return self._piped.vindex[key]


def open_array(session: Session, path: str) -> StoredArray:
    """Return the array at a path of a session.

    Raises:
        NodeNotFoundError: There is no such array.
        FormatError: Its metadata is not what zarr can use.
    """
    return StoredArray(session.store, session.array(path))


@contextmanager
def decoding(array: zarr.Array[Any]) -> Iterator[None]:
    """Raise what codecs raise as errors that name the array; every codec has its own.

    What comes from elsewhere, like zarr's word on a chunk that is not there, is raised as it is.
    """
    try:
        yield
    except Exception as error:
        from icevirt.access.store.chunk_errors import decoding_error, is_of_decoding

        if isinstance(error, MemoryError) or is_of_decoding(error):
            raise decoding_error(array.store, f"/{array.path}", error) from error
        raise
