"""Read and write manifests: chunk references of arrays, as one immutable file.

Spec: "Chunk Manifest Files". The id is a digest of the content, and nothing else varies, so equal
tables make equal files: a task that runs twice writes the same object twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.indices import ascends
from icevirt.wire import header
from icevirt.wire.flatbuffer.builder import Builder
from icevirt.wire.flatbuffer.columns_write import Tail
from icevirt.wire.flatbuffer.schema import MANIFEST
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.encoding import DEFAULT_LOCATIONS, LocationCompression
from icevirt.wire.manifests.open_manifest import OpenManifest
from icevirt.wire.manifests.references_write import trained, write_table

# Manifest.compression_algorithm. Its default is 1, so that 0 must be stored.
_PLAIN, _ZSTD = 0, 1
_WRITER = (header.FIELDS["implementation"][0], header.FIELDS["spec_version"][0])


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedManifest:
    """A manifest file and the facts a snapshot records about it."""

    id: ObjectId12
    raw: bytes
    num_chunk_refs: int


def encode(
    arrays: Mapping[ObjectId8, ChunkTable],
    *,
    level: int = 3,
    locations: LocationCompression = DEFAULT_LOCATIONS,
    spec_version: int = header.SPEC_VERSION,
) -> EncodedManifest:
    """Return the manifest of these tables; arrays without references are left out.

    V1 knows no dictionaries of locations.

    Raises:
        InvalidInputError: Rows are out of order, a reference is empty or points nowhere, or there
            are more references than fit one file.
    """
    stored = {node: arrays[node] for node in sorted(arrays) if len(arrays[node])}
    dictionary = trained(list(stored.values()), locations) if spec_version > 1 else None
    values = {
        "id": bytes(ObjectId12.SIZE),  # not known yet
        "arrays": [{"node_id": node, "refs": table} for node, table in stored.items()],
        "location_dictionary": dictionary.trained if dictionary else None,
        "compression_algorithm": _ZSTD if dictionary else _PLAIN,
    }
    small = Builder().root(MANIFEST, values)
    tail = Tail(len(small.out))
    for place, table in small.open:
        check(table)
        at = write_table(tail, table, dictionary, locations.compression_level)
        small.link(place, at)
    id_at = small.root_field(MANIFEST, "id")
    start, after = bytes(small.out[:id_at]), id_at + ObjectId12.SIZE
    parts = chain([np.frombuffer(small.out, np.uint8)[after:]], tail.blocks())
    rest = header.compress(parts, tail.end - after, level, checksum=False)
    digest = ObjectId12.of_content(start + bytes(ObjectId12.SIZE), rest)
    head = header.head(FileKind.manifest, spec_version)
    raw = header.with_raw_start(head, start + digest, rest)
    return EncodedManifest(id=digest, raw=raw, num_chunk_refs=sum(map(len, stored.values())))


def decode(raw: bytes) -> Manifest:
    """Read a manifest. Raises ``FormatError``."""
    return OpenManifest(raw).decoded()


def is_intact(raw: bytes) -> bool | None:
    """Say whether the id in a manifest is the digest of its bytes; None where it is another id.

    Ids of other clients are random. Ours stand at the end of the frame's first block.
    """
    if not raw[slice(*_WRITER)].startswith(b"icevirt-"):
        return None
    parted = header.without_raw_start(raw, header.SIZE)
    if parted is None or len(parted[0]) < ObjectId12.SIZE:
        return None
    start, rest = parted[0][: -ObjectId12.SIZE], parted[1]
    return ObjectId12.of_content(start + bytes(ObjectId12.SIZE), rest) == parted[0][len(start) :]


def check(table: ChunkTable) -> None:
    """Make sure that every reader would find and could read each reference of the table.

    Raises:
        InvalidInputError: One it could not.
    """
    if not ascends(table.index):
        raise InvalidInputError("chunk indices are not in ascending order", do="Sort the table.")
    if len(table) and int(table.length.min()) == 0:
        row = int(np.argmin(table.length))
        raise InvalidInputError(
            "a reference to no bytes",
            do="Leave chunks that are not stored out of the table.",
            index=tuple(table.index[row].tolist()),
        )
