"""What a repository holds, in a form that no other version of a library and no clock changes.

``frozen.json`` has it for each archive of the catalog, so that a change which should change nothing
can be seen to. Sizes and offsets are left out: they are those of the library that wrote the files.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

import icevirt
from icevirt.model.chunks import ChunkType

FILE = Path(__file__).with_name("frozen.json")


def contents(repo):
    """Return a line for each array: its metadata in short, and a digest of its references."""
    session = icevirt.Repository.open(str(repo)).readonly_session("main")
    return {
        node.path: _array(json.loads(node.user_data), session.array_table(node.path))
        for node in session.snapshot.arrays()
    }


def _array(metadata, table):
    names = [str(url).rpartition("/")[2] for url in table.locations.url]
    is_virtual = table.kind == ChunkType.virtual
    files = [names[at] if so else "" for at, so in zip(table.source, is_virtual, strict=True)]
    digest = hashlib.sha256(np.ascontiguousarray(table.index).astype("<u4").tobytes())
    digest.update(json.dumps([table.kind.tolist(), files]).encode())
    kinds = {kind.name: int((table.kind == kind).sum()) for kind in ChunkType}
    codecs = [each if isinstance(each, str) else each["name"] for each in metadata["codecs"]]
    grid = metadata["chunk_grid"]["configuration"]
    return " ".join(
        map(
            str,
            (
                json.dumps(metadata["data_type"], sort_keys=True),
                metadata["shape"],
                grid.get("chunk_shape", grid),
                metadata.get("dimension_names"),
                codecs,
                f"fill {metadata['fill_value']}",
                f"attributes {sorted(metadata.get('attributes', ()))}",
                f"chunks { {kind: count for kind, count in kinds.items() if count} }",
                digest.hexdigest()[:16],
            ),
        )
    )
