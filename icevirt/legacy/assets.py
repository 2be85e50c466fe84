"""Fetch the objects of an old repository as the values of today.

Old manifests can hold chunks of other arrays and outside the grid; what cannot be the array's is
left out here. Where no transaction log was written, it is computed from two snapshots.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.legacy import decode
from icevirt.legacy.decode import OldLog, OldSnapshot
from icevirt.legacy.encoding import Encoding
from icevirt.legacy.generations import ENCODINGS, rename_id
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.generation import OldFormat
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.model.strings import Strings
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo import layout
from icevirt.repo.assets import CACHE_BYTES, Assets, other_object
from icevirt.storage.protocol import ObjectInfo, Storage
from icevirt.versioning.chunk_tables import find_changed
from icevirt.versioning.diff import log_of

_SHORT = {layout.SNAPSHOTS: "s", layout.MANIFESTS: "m", layout.CHUNKS: "c"}
_SUFFIXES = (".msgpack", ".json")

type Grids = dict[ObjectId12, dict[ObjectId8, tuple[int, ...]]]
"""Numbers of chunks of the arrays that a manifest holds; the largest that any snapshot says."""


class OldAssets(Assets):
    """Reads the objects below one root, and refuses to write any.

    ``root`` is the file of the initial snapshot, if the generation gave it another id inside.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        old: OldFormat,
        root: ObjectId12 | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        super().__init__(storage, cache_bytes=cache_bytes, spec_version=0)
        self.old = old
        self._root = root
        self._named_inside: ObjectId12 | None = None  # the initial snapshot, by those after it
        self._grids: Grids = {}
        self._places: dict[str, dict[ObjectId12, ObjectInfo]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(OldAssets, old=self.old, root=self._root, cache_bytes=self._cache_bytes)
        return make, (self.storage,), {"_grids": self._grids}

    @property
    def encoding(self) -> Encoding:
        """How its files are encoded."""
        return ENCODINGS[self.old.generation.name]

    # -- where things are --------------------------------------------------------------------

    def snapshot_ids(self) -> Iterator[ObjectId12]:
        """List the snapshots that are there."""
        if self.encoding.short:
            yield from self._list(layout.SNAPSHOTS)
            return
        for each in self.storage.list(layout.SNAPSHOTS):
            with suppress(ValueError):  # of foreign files
                yield ObjectId12.parse(each.path.rpartition("/")[2])

    def chunk_objects(self) -> Iterator[ObjectInfo]:
        """List the native chunks, under the paths that their ids have."""
        if not self.encoding.short:
            yield from super().chunk_objects()
            return
        for key, info in self._list(layout.CHUNKS).items():
            yield info._replace(path=layout.chunk(key))

    def chunk_urls(self, ids: NDArray[np.uint8]) -> Strings:
        """Return the URLs of native chunks."""
        if not self.encoding.short:
            return super().chunk_urls(ids)
        there = self._list(layout.CHUNKS)
        keys = [ObjectId12(row.tobytes()) for row in ids]
        names = [there[key].path if key in there else layout.chunk(key) for key in keys]
        return Strings.of([f"{self.storage.url}/{name}" for name in names])

    def path(self, folder: str, key: ObjectId12) -> str:
        """Return the path of an object. Raises ``ObjectNotFoundError`` where it cannot be named."""
        if not self.encoding.short:
            return super().path(folder, key)
        found = self._list(folder).get(key)
        if found is None:
            raise ObjectNotFoundError("no such object", path=f"{_SHORT[folder]}/", id=str(key))
        return found.path

    def _list(self, folder: str) -> dict[ObjectId12, ObjectInfo]:
        """List objects by the ids that stand for theirs, which are longer."""
        if folder not in self._places:
            found: dict[ObjectId12, ObjectInfo] = {}
            for each in self.storage.list(_SHORT[folder]):
                name = each.path.rpartition("/")[2]
                for suffix in _SUFFIXES:
                    name = name.removesuffix(suffix)
                key = ObjectId12(rename_id(name))
                if key in found:
                    raise FormatError(
                        "two files have one name but for their ending",
                        do="Remove the one that is not meant.",
                        found=[found[key].path, each.path],
                    )
                found[key] = each
            self._places[folder] = found
        return self._places[folder]

    # -- snapshots ---------------------------------------------------------------------------

    def _fetch_snapshot(self, key: ObjectId12) -> tuple[Snapshot, int]:
        raw = self.snapshot_file(key)
        with layout.naming(layout.snapshot(key)):
            found = self._as_named(key, decode.snapshot(raw, self.encoding))
        for node in found.arrays():
            for ref in node.manifests:
                grids = self._grids.setdefault(ref.object_id, {})
                known = grids.get(node.id, node.num_chunks)
                if len(known) == len(node.num_chunks):
                    sides = zip(known, node.num_chunks, strict=True)
                    grids[node.id] = tuple(max(pair) for pair in sides)
        return found, len(raw)

    def _as_named(self, key: ObjectId12, old: OldSnapshot) -> Snapshot:
        """Return a snapshot under the name of its file, with the name of its parent's file."""
        found = old.snapshot
        if found.id != key and not (self.encoding.renames_root and found.parent_id is None):
            raise other_object(key, found.id)
        parent = found.parent_id
        if self._root is not None and old.ancestors is not None and len(old.ancestors) == 1:
            if self._named_inside is None:
                raw = self.snapshot_file(self._root)
                self._named_inside = decode.snapshot(raw, self.encoding).snapshot.id
            parent = self._root if parent == self._named_inside else parent
        return replace(found, id=key, parent_id=parent)

    # -- manifests ---------------------------------------------------------------------------

    def _open_manifest(self, key: ObjectId12) -> None:
        """Return nothing: what is left out of a manifest is known when it is decoded."""

    def read_table(self, key: ObjectId12, node: ObjectId8) -> ChunkTable | None:
        """Return what a manifest refers to for one array."""
        return self.read_manifest(key).arrays.get(node)

    def decode_manifest(self, key: ObjectId12, raw: bytes) -> Manifest:
        """Return the manifest in a file that was read. Raises ``FormatError``."""
        with layout.naming(layout.manifest(key)):
            tables = decode.manifest(raw, self.encoding, key)
        if key not in self._grids:
            for each in self.snapshot_ids():  # another process found the manifest
                self.snapshot(each)
        arrays = {
            node: table.take(np.flatnonzero((table.index < np.array(grid)).all(axis=1)))
            for node, grid in self._grids.get(key, {}).items()
            if (table := tables.get(node, {}).get(len(grid))) is not None
        }
        return Manifest(id=key, arrays=arrays)

    # -- transaction logs --------------------------------------------------------------------

    def log_file(self, key: ObjectId12) -> bytes:
        """Return the file of a transaction log; nothing where none was written."""
        if self.encoding.log:
            with suppress(ObjectNotFoundError):  # none of the initial snapshot, and some others
                return super().log_file(key)
        self.snapshot(key)  # raises where there is none
        return b""

    def _fetch_log(self, key: ObjectId12) -> tuple[TransactionLog, int]:
        after = self.snapshot(key)
        before = None if after.parent_id is None else self.snapshot(after.parent_id)
        if raw := self.log_file(key):
            with layout.naming(layout.transaction_log(key)):
                log = _log(key, decode.transaction_log(raw, self.encoding), before, after)
        else:
            log = self.compute_log(key)
        return log, len(raw) + sum(index.nbytes for index in log.updated_chunks.values())

    def compute_log(
        self, key: ObjectId12, unreadable: Container[ObjectId12] = ()
    ) -> TransactionLog:
        """Return what differs between a snapshot and its parent, some manifests left out."""
        after = self.snapshot(key)
        before = None if after.parent_id is None else self.snapshot(after.parent_id)
        old = {} if before is None else {node.id: node for node in before.arrays()}

        def table(node: ArrayNode | None, like: ArrayNode) -> ChunkTable:
            tables = [
                found
                for ref in (() if node is None else node.manifests)
                if ref.object_id not in unreadable
                and (found := self.read_table(ref.object_id, like.id)) is not None
            ]
            empty = ChunkTable.empty(len(like.num_chunks))
            return ChunkTable.concatenate(tables) if tables else empty

        chunks = {
            node.id: find_changed(table(old.get(node.id), node), table(node, node))
            for node in after.arrays()
            if node.id not in old or old[node.id].manifests != node.manifests
        }
        return log_of(after.id, () if before is None else before.nodes, after.nodes, chunks)

    # -- nothing is written ------------------------------------------------------------------

    def _refuse(self, *_args: object, **_options: object) -> NoReturn:
        """Raise ``ReadOnlyError``."""
        self.old.refuse()

    put_snapshot = put_new_snapshot = put_transaction_log = put_manifest = put_chunk = _refuse


def _log(key: ObjectId12, old: OldLog, before: Snapshot | None, after: Snapshot) -> TransactionLog:
    """Return a log in the terms of today, in which a new node is not updated as well."""
    arrays = {node.id for each in (before, after) if each for node in each.arrays()}
    as_before = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays")
    same: dict[str, Any] = {name: old.nodes[name] for name in as_before}
    updated = old.nodes["updated_user_attributes"] | old.nodes["updated_zarr_metadata"]
    updated = updated.difference(*same.values())
    return TransactionLog(
        id=key,
        **same,
        updated_arrays=updated & arrays,
        updated_groups=updated - arrays,
        updated_chunks={node: index for node, index in sorted(old.chunks.items()) if len(index)},
    )
