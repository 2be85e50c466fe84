"""A repository whose array ``/v`` refers to a file that the test can damage."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icevirt.connect.urls import file_url
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository

VALUES = np.arange(40, dtype="<u4").reshape(8, 5)  # four chunks of two rows
SOURCE = b"head" + VALUES.tobytes()


def document(**changes):
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [8, 5],
            "data_type": "uint32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 5]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 7,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
            "dimension_names": ["y", "x"],
        }
        | changes
    ).encode()


@dataclass
class Virtual:
    root: Path  # of the repository
    archive: Path  # the container's directory
    source: Path
    prefix: str

    def open(self, authorize=True):
        granted = [self.prefix] if authorize is True else authorize
        return Repository.open(self.root, authorize_virtual_chunk_access=granted)

    def store(self, authorize=True):
        return self.open(authorize).readonly_session("main").store


def make(tmp_path, *, location=None, name=None, checksum=None, skip=(), repository=Repository):
    """Write the file, the repository and one commit; ``skip`` leaves chunks unwritten."""
    archive = tmp_path / "archive"
    archive.mkdir()
    source = archive / "source.bin"
    source.write_bytes(SOURCE)
    prefix = file_url(archive) + "/"
    config = RepositoryConfig()
    config.set_virtual_chunk_container(
        VirtualChunkContainer(prefix, local_filesystem_store(str(archive)), name)
    )
    seconds = -(-source.stat().st_mtime_ns // 10**9)
    places = Locations.one(
        location or prefix + "source.bin", **(checksum or {"last_modified": seconds})
    )
    refer(repository.create(tmp_path / "repo", config), places, skip=skip)
    return Virtual(tmp_path / "repo", archive, source, prefix)


def refer(repo, places, *, skip=()):
    """Commit ``/v`` that refers to the source, and arrays of inline and native chunks."""
    session = repo.writable_session("main")
    index = np.array([n for n in range(4) if n not in skip])
    session.add_array(
        "/v",
        document(),
        ChunkTable.virtual(
            index=np.stack([index, np.zeros_like(index)], axis=1),
            offset=4 + 40 * index,
            length=np.full(len(index), 40),
            locations=places,
        ),
    )
    session.add_array(
        "/inline",
        document(),
        ChunkTable.of_inline(index=np.array([[1, 0]]), chunks=[VALUES[2:4].tobytes()]),
    )
    session.add_array(
        "/native",
        document(
            shape=[400, 5],
            dimension_names=["n", "x"],
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": [200, 5]}},
        ),
        ChunkTable.empty(2),
    )
    session.set_chunk("/native", (0, 0), bytes(4000))
    session.commit("refer")
