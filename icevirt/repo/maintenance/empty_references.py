"""Mend arrays that hold references to no bytes, which no client can read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkType
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.assets import Assets
from icevirt.repo.reader import ArrayReader
from icevirt.repo.repository import Repository
from icevirt.storage.protocol import Storage


def drop_empty_references(storage: Storage, branch: str) -> str | None:
    """Commit to a branch that chunks whose references have no bytes are unwritten.

    Returns:
        The id of the snapshot; None where there are no such references.

    Raises:
        RefNotFoundError: There is no such branch.
        ReadOnlyError: The repository is read-only.
        ConflictError: Another writer committed to it in the meantime.
    """
    session = Repository.open(storage).writable_session(branch)
    count = 0
    for node in session.snapshot.arrays():
        index = _find_empty(session.assets, node)
        if len(index):
            session.delete_chunks(node.path, index)
            count += len(index)
    return session.commit(f"Leave out {count} references to no bytes") if count else None


def _find_empty(assets: Assets, node: ArrayNode) -> NDArray[np.uint32]:
    """Return the chunks of an array whose references have no bytes, a manifest at a time."""
    reader = ArrayReader(assets, node)
    found = [np.zeros((0, len(node.num_chunks)), np.uint32)]
    for ref in node.manifests:
        table = reader.table((ref,))
        found.append(table.index[(table.length == 0) & (table.kind != ChunkType.uninitialized)])
    return np.concatenate(found)
