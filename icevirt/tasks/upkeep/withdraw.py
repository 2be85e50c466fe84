"""Look for references to some files, and for chunks in use, manifest by manifest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icevirt.ids import ObjectId12
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.garbage_collection import chunks_of
from icevirt.storage.protocol import Storage
from icevirt.versioning.id_columns import ID, places


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferringTask:
    """Some manifests, of which those are found that refer to files."""

    repo: Storage
    manifests: tuple[bytes, ...]
    urls: frozenset[str]  # in every spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class InUseTask:
    """Some manifests that stay, and chunks that are to go."""

    repo: Storage
    manifests: tuple[bytes, ...]
    chunks: bytes  # ids, ascending


def referring(task: ReferringTask) -> list[tuple[bytes, int]]:
    """Return the manifests that refer to one of the files, and how many references do."""
    assets, found = Assets(task.repo), []
    for key in task.manifests:
        count = 0
        for table in assets.read_manifest(ObjectId12(key)).arrays.values():
            urls = table.locations.url
            hit = np.array([urls[at] in task.urls for at in range(len(urls))], np.bool_)
            if hit.any():
                count += int(np.isin(table.source, np.flatnonzero(hit)).sum())
        if count:
            found.append((key, count))
    return found


def in_use(task: InUseTask) -> bytes:
    """Return those of the chunks that the manifests refer to."""
    going = np.frombuffer(task.chunks, ID)
    found = chunks_of(Assets(task.repo), map(ObjectId12, task.manifests))
    return found[places(going, found) >= 0].tobytes()
