"""What commits of manifests that tasks wrote have in common: their check, and what a log lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import BuildError
from icevirt.model.snapshot import ManifestFile
from icevirt.repo import layout
from icevirt.repo.assets import Assets

MAX_LISTED = 100_000
"""Chunks that a transaction log lists: a log of all chunks of a large commit could not be read.

With more of them it lists none. Where the array is not new, it says that the array was updated, so
that others who wrote chunks of it meanwhile look again.
"""


def are_many(files: Sequence[ManifestFile]) -> bool:
    """Say whether manifests hold more chunks than a transaction log lists."""
    return sum(file.num_chunk_refs for file in files) > MAX_LISTED


def in_order(parts: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """Join indices of chunks of one array, ``(n, ndim)`` each, in the order of a log."""
    index = np.concatenate(parts)
    return index[np.lexsort(index.T[::-1])] if index.shape[1] else index


def refuse_missing(assets: Assets, files: Sequence[ManifestFile], *, do: str) -> None:
    """Check that manifests lie in the repository, as they were written.

    Raises:
        BuildError: One does not.
    """
    listed = assets.storage.list("manifests") if files else ()
    sizes = {info.path: info.size for info in listed}
    for file in files:
        if sizes.get(layout.manifest(file.id)) != file.size_bytes:
            raise BuildError(
                "a manifest that was just written is missing or damaged",
                do=do,
                manifest=str(file.id),
            )
