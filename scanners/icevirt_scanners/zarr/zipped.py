"""Open a ZIP archive as a Zarr store: its members are the objects, which lie in one file.

Members that are stored as they are become references into the archive. Metadata may be deflated.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cached_property
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.sources import STORES, SourceFile
from icevirt.archive.store_objects import StoreObjects
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.strings import Strings
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.scan.contract import ByteSource, prefetch, read_sparsely
from icevirt_scanners.zarr.zip_directory import (
    DEFLATED,
    HEADER,
    STORED,
    ZipDirectory,
    damaged,
    read_directory,
)

_AT_ONCE = 4096  # headers that are announced to a server together
_LARGEST = 64 << 20  # bytes of a metadata document, unpacked
_AHEAD = 8 << 20  # bytes of chunks that are fetched before they are read
_SHOWN = 5
_METHODS = {DEFLATED: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}


class ZippedStore:
    """A store in an archive.

    Raises:
        ScanError: The archive is damaged, or holds no Zarr store.
        UnsupportedError: It is encrypted or divided, or holds several stores.
    """

    is_zipped = True

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        file = source.file
        self._location = Locations.one(
            file.url, etag=file.etag, last_modified=file.last_modified_seconds
        )
        directory = read_directory(source.read, file.size, file.url)
        self.folder, self.document = _root_of(directory.names, file.url)
        self._directory = directory
        prefix = self.folder.encode()
        self._rows = np.flatnonzero(directory.names.begin_with(prefix))  # of the directory
        names = directory.names[self._rows]
        raw = names.data.tobytes()
        starts = names.starts
        if prefix:
            data = np.ones(len(raw), np.bool_)
            data[(starts[:-1, None] + np.arange(len(prefix))).reshape(-1)] = False
            names = Strings(names.data[data], starts - len(prefix) * np.arange(len(starts)))
        self.objects = StoreObjects(
            keys=names,
            sizes=directory.size[self._rows],
            etags=Strings.empty(len(names)),
            times=directory.header[self._rows] + 1,  # what was written later lies behind
        )

    @property
    def file(self) -> SourceFile:
        """The archive."""
        return self._source.file

    @property
    def local_path(self) -> str | None:
        """Its path on this machine."""
        return self._source.local_path

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the archive."""
        return self._source.read(offset, length)

    def check_unchanged(self) -> None:
        """Compare the archive with what was opened. Raises `StaleReferenceError`."""
        self._source.check_unchanged()

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where the bytes of each object begin."""
        held, url = self._directory, self.file.url
        starts = held.header + HEADER + held.named
        asked = np.union1d(np.flatnonzero(~held.proven()), held.sample())
        if self.local_path is not None:  # costs nothing
            asked = np.arange(len(starts))
        if len(asked):
            asked = asked[np.argsort(held.header[asked], kind="stable")]
            starts[asked] = held.starts(asked, self._headers(held, asked), url)
        found: NDArray[np.int64] = starts[self._rows]
        return found

    def _headers(self, held: ZipDirectory, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the headers of members, shape (n, 30)."""
        at = held.header[rows]
        if self.local_path is not None:
            mapped = np.memmap(self.local_path, np.uint8, "r")
            return np.asarray(mapped[at[:, None] + np.arange(HEADER)])
        read_sparsely(self._source)
        found = []
        for low in range(0, len(at), _AT_ONCE):
            some = at[low : low + _AT_ONCE].tolist()
            prefetch(self._source, [(each, each + HEADER) for each in some])
            found += [self._source.read(each, HEADER) for each in some]
        return np.frombuffer(b"".join(found), np.uint8).reshape(-1, HEADER)

    def references(self, index: NDArray[np.int64], rows: NDArray[np.integer]) -> ChunkTable:
        """Return references to objects that are chunks, in their order.

        Raises:
            UnsupportedError: One is compressed by the archive.
        """
        held = self._directory
        mine = self._rows[rows]
        if (packed := mine[held.method[mine] != STORED]).size:
            _refuse_packed(held, packed, self.file.url)
        return ChunkTable.in_order(
            index=index,
            offset=self._starts[rows],
            length=held.size[mine],
            locations=self._location if len(rows) else Locations.none(),
        )

    def read_objects(self, rows: Sequence[int]) -> list[bytes]:
        """Return the bytes of some objects, unpacked and compared with their checksums.

        Raises:
            ScanError: One is damaged.
            UnsupportedError: It is compressed in a way other than deflate.
        """
        held, own = self._directory, self._rows[np.array(rows, np.int64)].tolist()
        at = self._starts[np.array(rows, np.int64)].tolist()
        sizes = held.packed[own].tolist()
        prefetch(self._source, [(low, low + size) for low, size in zip(at, sizes, strict=True)])
        bodies = (self._source.read(low, size) for low, size in zip(at, sizes, strict=True))
        return [self._unpack(row, body) for row, body in zip(own, bodies, strict=True)]

    def _unpack(self, row: int, body: bytes) -> bytes:
        held, url = self._directory, self.file.url
        if (method := int(held.method[row])) not in (STORED, DEFLATED):
            _refuse_packed(held, np.array([row]), url)
        if method == DEFLATED:
            try:
                body = zlib.decompressobj(-15).decompress(body, _LARGEST)
            except zlib.error as error:
                raise damaged(url, member=held.names[row], cause=str(error)) from error
        self._compare(row, body)
        return body

    def _compare(self, row: int, body: bytes) -> None:
        held = self._directory
        if zlib.crc32(body) != held.crc[row]:
            cause = "its bytes are not those of its checksum"
            raise damaged(self.file.url, member=held.names[row], cause=cause)

    def chunks(self, rows: NDArray[np.int64]) -> ZippedChunks:
        """Return what reads the chunks of one array; a server is asked for a small one at once."""
        held, at = self._directory, self._starts[rows]
        ends = at + held.packed[self._rows[rows]]
        if int((ends - at).sum()) <= _AHEAD:
            prefetch(self._source, [*zip(at.tolist(), ends.tolist(), strict=True)])
        return ZippedChunks(self, rows, at)

    def compare(self, row: int, body: bytes) -> None:
        """Compare bytes with the checksum of their object. Raises `ScanError`."""
        self._compare(int(self._rows[row]), body)

    def read_url(self, url: str, offset: int, length: int) -> bytes:  # noqa: ARG002 - there is one
        """Return bytes of the archive."""
        return self._source.read(offset, length)

    def outside(self) -> list[str]:
        """Return some members that do not belong to the store."""
        held = np.ones(len(self._directory.names), np.bool_)
        held[self._rows] = False
        return [*self._directory.names[np.flatnonzero(held)[:_SHOWN]]]

    def open_zarr(self) -> Any:
        """Return the store as zarr-python reads it, by Python's own reader of archives."""
        from zarr.storage import MemoryStore, StorePath

        store = MemoryStore(_Members(self._source), read_only=True)
        return StorePath(store, self.folder.rstrip("/"))


class ZippedChunks:
    """Reads chunks of one array in an archive, and compares whole ones with their checksums."""

    def __init__(
        self, store: ZippedStore, rows: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> None:
        order = np.argsort(starts)
        self._store, self._rows, self._starts = store, rows[order], starts[order]
        self._sizes = store.objects.sizes[self._rows]

    def readable(self, locations: Locations) -> bool:  # noqa: ARG002
        """Say that all can be read."""
        return True

    def read(self, url: str, offset: int, length: int) -> bytes:  # noqa: ARG002
        """Return bytes of the archive.

        Raises:
            ScanError: A chunk is damaged.
        """
        body = self._store.read(offset, length)
        at = int(np.searchsorted(self._starts, offset, "right")) - 1
        if self._starts[at] == offset and self._sizes[at] == length:
            self._store.compare(int(self._rows[at]), body)
        return body


def _root_of(names: Strings, url: str) -> tuple[str, str]:
    """Return the folder of the store in the archive, with its slash, and its document."""
    found: dict[str, str] = {}
    for document in reversed(STORES):  # the first that is there counts
        raw = document.encode()
        rows = np.flatnonzero(names.lengths >= len(raw))
        for back, byte in enumerate(reversed(raw), 1):
            rows = rows[names.data[names.starts[1:][rows] - back] == byte]
        for name in names[rows]:
            folder = name[: -len(document)]
            if folder == "" or folder.endswith("/"):
                found[folder] = document
    if not found:
        raise ScanError(
            "a ZIP archive that holds no Zarr store",
            do="Unpack it first, or leave it out.",
            file=url,
            members=[*names[np.arange(min(len(names), _SHOWN))]],
        )
    depth = min(folder.count("/") for folder in found)
    tops = sorted(folder for folder in found if folder.count("/") == depth)
    if len(tops) > 1:
        raise UnsupportedError(
            "a ZIP archive that holds several Zarr stores",
            do="Unpack it, and name the stores.",
            file=url,
            stores=tops[:_SHOWN],
            count=len(tops),
        )
    return tops[0], found[tops[0]]


def _refuse_packed(held: ZipDirectory, rows: NDArray[np.int64], url: str) -> Never:
    method = int(held.method[rows[0]])
    raise UnsupportedError(
        "a Zarr store whose archive compresses its chunks, so they cannot be referenced",
        do=write_remedy(
            "Unzip it, and build from the folder, or from what zip -0 -r NEW.zip . makes of it;"
            " or have its values stored: ",
            write_code('scan_options={"variable_policy": "native"}', "--variable-policy native"),
            ".",
        ),
        file=url,
        member=held.names[int(rows[0])],
        method=_METHODS.get(method, method),
        count=len(rows),
    )


class _Bytes(io.RawIOBase):
    """A source as Python's file."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._source.file.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        body = self._source.read(self._at, len(buffer))
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


class _Members(MutableMapping[str, Any]):
    """The members of an archive, as zarr keeps a store in memory."""

    def __init__(self, source: ByteSource) -> None:
        self._archive = zipfile.ZipFile(io.BufferedReader(_Bytes(source)))

    def __getitem__(self, name: str) -> Any:
        from zarr.core.buffer import cpu

        return cpu.Buffer.from_bytes(self._archive.read(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.namelist())

    def __len__(self) -> int:
        return len(self._archive.namelist())

    def __setitem__(self, name: str, value: Any) -> None:
        raise NotImplementedError

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError
