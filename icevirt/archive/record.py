"""Write a build's notes of finished items as JSON; nothing read from storage is executed.

One file per item, below ``items/`` in the build's own folder.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from icevirt.archive.plan import WindowResult, WriteResult
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.errors import FormatError


def dump_result(result: WriteResult) -> bytes:
    """Return the note of a finished item."""
    told = {
        "number": result.number,
        "manifest_id": None if result.manifest_id is None else result.manifest_id.hex(),
        "size_bytes": result.size_bytes,
        "num_chunk_refs": result.num_chunk_refs,
        "windows": [
            {
                "node_id": window.node_id.hex(),
                "extents": window.extents,
                "references": asdict(window.references),
                "replaced": window.replaced,
            }
            for window in result.windows
        ],
        "chunk_ids": sorted(key.hex() for key in result.chunk_ids),
    }
    return json.dumps(told).encode()


def load_result(raw: bytes) -> WriteResult:
    """Return what `dump_result` was given.

    Raises:
        FormatError: It is no such note.
    """
    try:
        told = json.loads(raw)
        manifest = told["manifest_id"]
        return WriteResult(
            number=told["number"],
            manifest_id=None if manifest is None else bytes.fromhex(manifest),
            size_bytes=told["size_bytes"],
            num_chunk_refs=told["num_chunk_refs"],
            windows=tuple(
                WindowResult(
                    node_id=bytes.fromhex(window["node_id"]),
                    extents=tuple((low, high) for low, high in window["extents"]),
                    references=ReferenceCounts(**window["references"]),
                    replaced=window["replaced"],
                )
                for window in told["windows"]
            ),
            chunk_ids=frozenset(map(bytes.fromhex, told["chunk_ids"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "the build's record of a finished item is damaged",
            do="Delete icevirt/builds in the repository, and build again.",
            cause=str(error),
        ) from error
