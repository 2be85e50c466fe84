"""Check chunk references before they are staged, for any array."""

from __future__ import annotations

from urllib.parse import unquote

from icevirt.errors import InvalidInputError
from icevirt.model.arguments import checked
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config import document
from icevirt.model.config.document import RepositoryConfig
from icevirt.versioning import chunk_tables


def check_chunks(config: RepositoryConfig, path: str, chunks: ChunkTable) -> None:
    """Check what holds for references whatever the array.

    Raises:
        InvalidInputError: One has no bytes, or no container covers a location.
    """
    checked("chunks", chunks, ChunkTable, do="Make one with ChunkTable.virtual or .inlined.")
    empty = (chunks.length == 0) & (chunks.kind != ChunkType.uninitialized)
    if empty.any():
        raise InvalidInputError(
            "a chunk reference with no bytes cannot be read",
            do="Leave out the references of chunks that were never written.",
            path=path,
            chunk=tuple(chunks.index[int(empty.argmax())].tolist()),
        )
    if not chunks.count(ChunkType.virtual):
        return
    used = chunk_tables.compact(chunks).locations.url
    containers = config.virtual_chunk_containers.values()
    bad = document.first_uncovered(used, document.prefixes_of(containers))
    if bad is not None:
        raise InvalidInputError(
            "no virtual chunk container of this repository covers a location",
            do=_how_to_add(bad),
            path=path,
            location=bad,
            containers=[container.url_prefix for container in containers],
        )


def _how_to_add(url: str) -> str:
    prefix = url.rsplit("/", 1)[0] + "/"
    store = "ObjectStoreConfig(...)"
    if prefix.startswith("file://"):
        store = f'local_filesystem_store("{unquote(prefix.removeprefix("file://"))}")'
    return (
        "Add one and open a new session:"
        f' repo.config.set_virtual_chunk_container(VirtualChunkContainer("{prefix}", {store}));'
        " repo.save_config()"
    )
