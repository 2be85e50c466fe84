"""Documents and source files for the tests of repositories."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.maintenance.check import check
from long_forms import IS_LONG


def sound(storage) -> bool:
    """Check every invariant of a repository; what is wrong is in the assertion's message."""
    report = check(storage)
    assert report.ok, report.problems
    return True


class Sound:
    """Checks a repository unless one that looks alike was sound; at night it checks each.

    Those look alike that were made of the same objects, and have as many others in each folder.
    """

    def __init__(self, storage) -> None:
        self._first = {info.path for info in storage.list()}
        self._known: set[tuple[object, ...]] = set()

    def __call__(self, storage, *also: object) -> bool:
        """Check; what ``also`` says has to be alike, too."""
        there = {info.path for info in storage.list()}
        new = Counter(path.partition("/")[0] for path in there - self._first)
        looks = frozenset(there & self._first), frozenset(new.items()), *also
        if looks in self._known and not IS_LONG:
            return True
        self._known.add(looks)
        return sound(storage)


def array_json(shape=(48,), chunks=(12,), **more) -> bytes:
    """The zarr.json of an int32 array without compression."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": -1,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
        **more,
    }
    return json.dumps(document).encode()


def group_json(**attributes) -> bytes:
    """The zarr.json of a group."""
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}).encode()


@dataclass
class Source:
    """A file of int32 values 0, 1, 2 ... and the container that holds it."""

    path: Path
    values: np.ndarray

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    @property
    def prefix(self) -> str:
        return f"file://{self.path.parent}/"

    @property
    def container(self) -> VirtualChunkContainer:
        return VirtualChunkContainer(self.prefix, local_filesystem_store(str(self.path.parent)))

    def config(self) -> RepositoryConfig:
        config = RepositoryConfig()
        config.set_virtual_chunk_container(self.container)
        return config

    def table(self, index, per_chunk: int = 12) -> ChunkTable:
        """References to consecutive pieces of the file, one for each index given."""
        index = np.asarray(index)
        n = len(index)
        return ChunkTable.virtual(
            index=index.reshape(n, -1),
            offset=np.arange(n) * per_chunk * 4,
            length=np.full(n, per_chunk * 4),
            locations=Locations.one(self.url, last_modified=1_600_000_000),
        )
