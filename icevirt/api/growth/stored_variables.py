"""Store what new files add to variables that are stored in the repository.

Chunks that the files have are copied byte by byte. In other chunks or codecs, values are encoded
from the first chunk that is not full: old values come from stored chunks alone, new values from
the new files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.store.arrays import decoding, open_array
from icevirt.access.store.locating import ReferenceLocator
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, ManifestRef, node_of
from icevirt.objects.authorize import GrantedAccess
from icevirt.objects.staleness import Staleness
from icevirt.planning.lengthened import LengthenedArray, OtherwiseError
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.compared import naming_variable
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.session import Context, Session
from icevirt.storage.protocol import Storage
from icevirt.tasks.copy_chunks import KeptChunks, copied, encoded, session_of
from icevirt.versioning.chunk_tables import compact


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVariables:
    """Where chunks are read and stored."""

    storage: Storage
    head: RepoInfoFile
    config: RepositoryConfig  # with the containers of the new files
    access: Mapping[str, GrantedAccess]  # to the new files

    def chunks(self, each: LengthenedArray, added: ChunkTable) -> ChunkTable:
        """Store the chunks of an array from the first that changes.

        Args:
            each: The array.
            added: The references of the new files; where chunks are cut, as if there were no
                others.

        Raises:
            OtherwiseError: What is written again is not stored.
        """
        kept = KeptChunks(self.storage, each.node.path, self.config.inline_threshold)
        if not each.is_cut:
            locator = ReferenceLocator(self._session(each.node), Staleness("raise"))
            rows = np.flatnonzero(added.kind == ChunkType.virtual)
            return copied(locator, added, rows, kept)
        made = node_of(each.node.path, each.zarr_json, each.node.id)
        assert isinstance(made, ArrayNode), "the metadata is that of an array"
        box = tuple((0, count) for count in made.num_chunks)
        first = each.first
        box = (*box[: each.axis], (first, box[each.axis][1]), *box[each.axis + 1 :])
        return encoded(*self._values(each, added), each.zarr_json, box, kept)

    def _values(self, each: LengthenedArray, added: ChunkTable) -> tuple[Any, np.dtype[Any]]:
        """Return a function that reads a region of the array as it will be, and its dtype."""
        axis, length = each.axis, each.node.shape[each.axis]
        new = open_array(self._new(each, added), each.node.path)
        old = open_array(self._old(each.node), each.node.path)

        def values(region: tuple[slice, ...]) -> NDArray[Any]:
            before, along, after = region[:axis], region[axis], region[axis + 1 :]
            parts = []
            if along.start < length:
                with decoding(old), naming_variable(each.node):
                    end = min(along.stop, length)
                    parts.append(old[(*before, slice(along.start, end), *after)])
            if along.stop > length:
                begin = max(along.start, length) - length
                with decoding(new):
                    parts.append(new[(*before, slice(begin, along.stop - length), *after)])
            return np.concatenate([np.asarray(part) for part in parts], axis=axis)

        return values, old.dtype

    def _new(self, each: LengthenedArray, added: ChunkTable) -> Session:
        """Return a session that reads the new files alone."""
        alone = node_of(each.node.path, each.added.zarr_json, each.node.id)
        assert isinstance(alone, ArrayNode), "the metadata is that of an array"
        if not len(added):
            return self._session(alone)
        ref = ManifestRef(object_id=ObjectId12.random(), extents=added.extents())
        session = self._session(replace(alone, manifests=(ref,)))
        session.assets.lookup.keep(ref.object_id, {alone.id: compact(added)})
        return session

    def _old(self, node: ArrayNode) -> Session:
        """Return a session that reads what is stored; it may read no file of the dataset."""
        return session_of(replace(self._context, credentials={}), node)

    def _session(self, node: ArrayNode) -> Session:
        return session_of(self._context, node)

    @property
    def _context(self) -> Context:
        return Context(
            assets=Assets(self.storage, compares=True),
            head=self.head,
            config=self.config,
            credentials=self.access,
            commit_metadata={},
        )


def refuse_virtual(each: LengthenedArray, held: ChunkTable) -> None:
    """Check that chunks which are written again are stored.

    Raises:
        OtherwiseError: Some are not.
    """
    changed = held.index[:, each.axis] >= each.first
    if (held.kind[changed] == ChunkType.virtual).any():
        raise OtherwiseError(f"values of {each.node.path} are not stored in the repository")
