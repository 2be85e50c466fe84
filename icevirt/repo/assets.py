"""Read and write a repository's objects as values; those that never change are cached by id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError, IcevirtError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.snapshot import ManifestFile, Snapshot
from icevirt.model.strings import Strings
from icevirt.repo import layout
from icevirt.repo.manifest_lookup import Cache, IndexedManifest, ManifestLookup
from icevirt.storage.protocol import ObjectInfo, Storage, Written
from icevirt.versioning import chunk_tables
from icevirt.wire import snapshot as snapshot_file
from icevirt.wire.manifests.open_manifest import OpenManifest

if TYPE_CHECKING:  # a reader of values reads none
    from icevirt.model.repo_info import SnapshotSummary
    from icevirt.model.transaction_log import TransactionLog
    from icevirt.wire.manifests.encoding import ManifestEncoding

CACHE_BYTES = 256 * 1024 * 1024
_MOST_HELD = 4 * 1024 * 1024  # bytes of objects that wait for a commit
_SMALL = 1024 * 1024  # bytes of the tables of a manifest that is kept for the next commit
_MOST_FILES = 64  # that are open at once when they are written
_NODE_BYTES = 600  # a decoded node without its document, roughly
_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)


class Assets:
    """Fetches and stores the objects below one root.

    Args:
        storage: The root.
        cache_bytes: Memory for decoded objects; a quarter of it for manifests that are searched.
        chunk_cache_bytes: Memory for bytes of native chunks.
        level: zstd level of the small files.
        manifests: How manifests and transaction logs are compressed.
        spec_version: Of the files that are written.
        content_addressed: Name chunks by their content, so that equal ones are stored once.
        compares: Compare chunks and manifests with their names when they are read, where a name
            covers the content: what is read is written again, under another name.
        cache: Holds decoded objects, where that is to outlive these assets.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        cache_bytes: int = CACHE_BYTES,
        chunk_cache_bytes: int = 0,
        level: int = 3,
        manifests: ManifestEncoding | None = None,
        spec_version: int = 2,
        content_addressed: bool = False,
        compares: bool = False,
        cache: Cache | None = None,
    ) -> None:
        self.storage = storage
        self.compares = compares
        self._content_addressed = content_addressed
        self.spec_version = spec_version
        self.level = level
        self._manifests = manifests
        self._cache_bytes = cache_bytes
        searched = cache_bytes // 4
        self._cache = cache or Cache(cache_bytes - searched)
        self._chunks = Cache(chunk_cache_bytes)
        self.lookup = ManifestLookup(
            self._cache, searched, opened=self._open_manifest, decoded=self.read_manifest
        )
        self._named: tuple[NDArray[np.void], dict[str, IcevirtError]] | None = None
        self._unlisted: dict[ObjectId12, None] = {}  # named by content, in no list of these yet

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            Assets,
            cache_bytes=self._cache_bytes,
            chunk_cache_bytes=self._chunks.limit,
            level=self.level,
            manifests=self._manifests,
            spec_version=self.spec_version,
            content_addressed=self._content_addressed,
            compares=self.compares,
        )
        return make, (self.storage,)

    @property
    def manifests(self) -> ManifestEncoding:
        """How manifests are compressed."""
        from icevirt.wire.manifests.encoding import ManifestEncoding  # writers look at it

        return self._manifests or ManifestEncoding()

    # -- fetching ----------------------------------------------------------------------------

    def snapshot(self, key: ObjectId12) -> Snapshot:
        """Return a snapshot.

        Raises:
            ObjectNotFoundError: Its file is gone.
            FormatError: Its file is damaged, or another snapshot's.
        """
        return self._cache.get(("snapshot", key), lambda: self._fetch_snapshot(key))

    def read_summary(self, key: ObjectId12) -> SnapshotSummary:
        """Return the facts about a V1 snapshot, without its nodes; raises as `snapshot`."""
        with layout.naming(layout.snapshot(key)):
            return _same(key, snapshot_file.decode_summary(self.snapshot_file(key)))

    def transaction_log(self, key: ObjectId12) -> TransactionLog:
        """Return the transaction log of a snapshot; raises as `snapshot` does."""
        return self._cache.get(("log", key), lambda: self._fetch_log(key))

    def manifest(self, key: ObjectId12) -> IndexedManifest:
        """Return the tables of a manifest by node id; raises as `snapshot` does."""
        return self.lookup.whole(key)

    def read_manifest(self, key: ObjectId12) -> Manifest:
        """Return a manifest without keeping it; raises as `snapshot` does."""
        return self.decode_manifest(key, self.manifest_file(key))

    def read_table(self, key: ObjectId12, node: ObjectId8) -> ChunkTable | None:
        """Return what a manifest refers to for one array; raises as `snapshot` does."""
        with layout.naming(layout.manifest(key)):
            return _same(key, OpenManifest(self.manifest_file(key))).decode_array(node)

    def read_indices(self, key: ObjectId12) -> dict[ObjectId8, NDArray[np.uint32]]:
        """Return which chunks of each array a manifest refers to; raises as `snapshot` does."""
        with layout.naming(layout.manifest(key)):
            return _same(key, OpenManifest(self.manifest_file(key))).read_indices()

    def manifest_to_rewrite(self, key: ObjectId12) -> Manifest:
        """Return a manifest as `read_manifest` does, from memory if this process wrote it.

        Raises:
            FormatError: Its bytes are not those that its name was made of.
        """
        found = self.lookup.find_written(key)
        return found or self.decode_manifest(key, self.manifest_file(key, compares=True))

    def decode_manifest(self, key: ObjectId12, raw: bytes) -> Manifest:
        """Return the manifest in a file that was read. Raises ``FormatError``."""
        with layout.naming(layout.manifest(key)):
            return _same(key, OpenManifest(raw).decode())

    def chunk(self, key: ObjectId12, *, offset: int, length: int) -> bytes:
        """Return bytes of a native chunk. Raises ``StorageError``."""
        if length > self._chunks.limit:
            return self._fetch_chunk(key, offset, length)
        return self._chunks.get(
            (key, offset, length), lambda: (self._fetch_chunk(key, offset, length), length)
        )

    def _fetch_chunk(self, key: ObjectId12, offset: int, length: int) -> bytes:
        path = self.path(layout.CHUNKS, key)
        if self.compares:
            from icevirt.repo.maintenance.content_names import (
                compare_chunk,  # readers compare nothing
            )

            return compare_chunk(self.storage, path, key, offset, length, self._read_named)
        return self.storage.get_range(path, offset=offset, length=length)

    def _read_named(self) -> tuple[NDArray[np.void], dict[str, IcevirtError]]:
        if self._named is None:
            from icevirt.repo.maintenance import content_names

            self._named = content_names.read_recorded(self.storage)
        return self._named

    def snapshot_file(self, key: ObjectId12) -> bytes:
        """Return the file of a snapshot. Raises ``ObjectNotFoundError``."""
        return self.storage.get(self.path(layout.SNAPSHOTS, key))

    def manifest_file(self, key: ObjectId12, *, compares: bool = False) -> bytes:
        """Return the file of a manifest. Raises ``ObjectNotFoundError``."""
        path = self.path(layout.MANIFESTS, key)
        if compares or self.compares:
            from icevirt.repo.maintenance.content_names import compare_manifest

            return compare_manifest(self.storage, path)
        return self.storage.get(path)

    def log_file(self, key: ObjectId12) -> bytes:
        """Return the file of a transaction log. Raises ``ObjectNotFoundError``."""
        return self.storage.get(self.path(layout.TRANSACTIONS, key))

    def path(self, folder: str, key: ObjectId12) -> str:
        """Return the path of an object that is there, in one of ``layout.FOLDERS``."""
        return f"{folder}/{key}"

    def chunk_objects(self) -> Iterator[ObjectInfo]:
        """List the native chunks, under the paths that their ids have."""
        return self.storage.list(layout.CHUNKS)

    def chunk_urls(self, ids: NDArray[np.uint8]) -> Strings:
        """Return the URLs of native chunks, whose ids are spelt in base32; 12 bytes a row."""
        bits = np.zeros((len(ids), 100), np.uint8)
        bits[:, :96] = np.unpackbits(ids, axis=1).reshape(len(ids), 96)
        letters = _ALPHABET[bits.reshape(len(ids), 20, 5) @ np.array([16, 8, 4, 2, 1], np.uint8)]
        folder = np.frombuffer(f"{self.storage.url}/{layout.CHUNKS}/".encode(), np.uint8)
        urls = np.hstack([np.broadcast_to(folder, (len(ids), len(folder))), letters])
        return Strings(urls.ravel(), np.arange(len(ids) + 1, dtype=np.int64) * urls.shape[1])

    # -- storing -----------------------------------------------------------------------------

    def put_snapshot(self, snapshot: Snapshot, held: HeldObjects | None = None) -> None:
        """Store a snapshot. Raises ``FormatError`` for what the V1 format cannot express."""
        raw = snapshot_file.encode(snapshot, level=self.level, spec_version=self.spec_version)
        (held or self.storage).put(layout.snapshot(snapshot.id), raw)
        if held and self.spec_version > 1:  # a file of V2 does not say the parent
            self._cache.put(("snapshot", snapshot.id), *_weigh(replace(snapshot, parent_id=None)))

    def put_new_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Store a snapshot unless its file is there; return the one that is there afterwards."""
        raw = snapshot_file.encode(snapshot, level=self.level, spec_version=self.spec_version)
        outcome = self.storage.put_if(layout.snapshot(snapshot.id), raw, was=None)
        return snapshot if isinstance(outcome, Written) else self.snapshot(snapshot.id)

    def put_transaction_log(self, log: TransactionLog, held: HeldObjects | None = None) -> None:
        """Store a transaction log, which holds columns of indices as manifests do."""
        from icevirt.wire import transaction_log as log_file

        level = self.manifests.level
        raw = log_file.encode(log, level=level, spec_version=self.spec_version)
        (held or self.storage).put(layout.transaction_log(log.id), raw)

    def put_manifest(
        self, arrays: dict[ObjectId8, ChunkTable], held: HeldObjects | None = None
    ) -> ManifestFile:
        """Store chunk tables as one manifest; its id covers its content."""
        file, raw = self.encode_manifest(arrays)
        (held or self.storage).put(layout.manifest(file.id), raw)
        if held:
            self._keep_manifest(file.id, arrays)
        return file

    def encode_manifest(self, arrays: dict[ObjectId8, ChunkTable]) -> tuple[ManifestFile, bytes]:
        """Return the manifest that `put_manifest` stores, and the facts about it."""
        from icevirt.wire.manifests import manifest as manifest_file

        how = self.manifests
        encoded = manifest_file.encode(
            arrays, level=how.level, locations=how.locations, spec_version=self.spec_version
        )
        size, count = len(encoded.raw), encoded.num_chunk_refs
        return ManifestFile(id=encoded.id, size_bytes=size, num_chunk_refs=count), encoded.raw

    def put_chunk(self, body: bytes) -> ObjectId12:
        """Store the encoded bytes of a chunk under a new id, or one that covers them.

        Equal chunks are written again, so that garbage collection sees that they are young.
        """
        key = ObjectId12.of_content(body)
        if not self._content_addressed:  # the half that covers them lets merges compare chunks
            key = ObjectId12(os.urandom(6) + key[6:])
        self.storage.put(layout.chunk(key), body)
        if self._content_addressed:
            self._unlisted[key] = None
        return key

    def list_content_names(self) -> None:
        """List the chunks that were named by their content since the last call.

        This precedes everything that publishes references to them, or sends them to a process.
        """
        from icevirt.versioning.id_columns import column

        if keys := list(self._unlisted):
            from icevirt.repo.maintenance import content_names

            content_names.record(self.storage, column(keys))
            for key in keys:
                self._unlisted.pop(key, None)

    def _keep_manifest(self, key: ObjectId12, arrays: dict[ObjectId8, ChunkTable]) -> None:
        """Keep a small manifest for the next commit, if its file holds all that the tables do."""
        size = sum(chunk_tables.nbytes(table) for table in arrays.values())
        if size > _SMALL or any(each.locations.has_two_checksums() for each in arrays.values()):
            return
        self.lookup.keep_written(key, {node: each for node, each in arrays.items() if len(each)})

    # -- with their weight -------------------------------------------------------------------

    def _fetch_snapshot(self, key: ObjectId12) -> tuple[Snapshot, int]:
        with layout.naming(layout.snapshot(key)):
            return _weigh(_same(key, snapshot_file.decode(self.snapshot_file(key))))

    def _fetch_log(self, key: ObjectId12) -> tuple[TransactionLog, int]:
        from icevirt.wire import transaction_log as log_file

        raw = self.log_file(key)
        with layout.naming(layout.transaction_log(key)):
            log = _same(key, log_file.decode(raw))
        return log, len(raw) + sum(index.nbytes for index in log.updated_chunks.values())

    def _open_manifest(self, key: ObjectId12) -> OpenManifest | None:
        """Return a manifest that can be searched; None where only whole ones are read."""
        with layout.naming(layout.manifest(key)):
            return _same(key, OpenManifest(self.manifest_file(key)))


class HeldObjects:
    """Objects that are stored with what refers to them, and not before.

    A storage writes them in less time together. What does not fit into memory is stored at once.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held: dict[str, bytes] = {}
        self._free = _MOST_HELD

    def put(self, path: str, body: bytes) -> None:
        """Hold an object, or store it."""
        if len(body) > self._free or len(self._held) == _MOST_FILES:
            self._storage.put(path, body)
            return
        self._free -= len(body)
        self._held[path] = body

    def take(self) -> dict[str, bytes]:
        """Return what is held, by path, and hold it no longer."""
        held, self._held = self._held, {}
        self._free = _MOST_HELD
        return held


def _weigh(snapshot: Snapshot) -> tuple[Snapshot, int]:
    """Return a snapshot and the memory that it takes, roughly."""
    return snapshot, sum(_NODE_BYTES + len(node.user_data) for node in snapshot.nodes)


def other_object(key: ObjectId12, found: ObjectId12) -> FormatError:
    """Return the error of a file that holds another object than its name says."""
    return FormatError(
        "a file holds a different object than its name says",
        do="Restore it from a copy of the repository.",
        name=str(key),
        found=str(found),
    )


def _same[T: (Snapshot, SnapshotSummary, Manifest, OpenManifest, TransactionLog)](
    key: ObjectId12, found: T
) -> T:
    if found.id != key:
        raise other_object(key, found.id)
    return found
