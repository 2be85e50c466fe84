"""Cut blocks apart and join them, between the catalog's parts and a window."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.archive.blocks.packing import Block, PackedBlock, packed_columns
from icevirt.archive.blocks.unpacking import unpack
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import gather

_FIELDS = [field.name for field in fields(PackedBlock)]


def part_of(block: Block, rows: NDArray[np.int64], file: NDArray[np.integer]) -> Block:
    """Return some rows of a block, with nothing of the others; ``file`` numbers their files anew.

    Args:
        block: The block.
        rows: (k,) Its rows, in the order wanted.
        file: (k,) The files of these rows.
    """
    kind, offset, length = block.kind[rows], block.offset[rows], block.length[rows]
    inline = kind == ChunkType.inline
    data, starts = gather(
        block.data, offset[inline].astype(np.int64), length[inline].astype(np.int64)
    )
    offset[inline] = starts[:-1]
    source, targets = block.source[rows], block.targets
    if len(targets):
        used = np.unique(source[source > 0]).astype(np.int64)
        number = np.zeros(len(targets) + 1, np.uint32)
        number[used] = np.arange(1, len(used) + 1)
        source, targets = number[source], targets.take(used - 1)
    return Block(
        file=file.astype(np.int32),
        index=block.index[rows],
        kind=kind,
        offset=offset,
        length=length,
        data=data,
        source=source,
        targets=targets,
    )


def joined(blocks: Sequence[Block]) -> Block:
    """Return the rows of blocks of one array, one behind the other."""
    if len(blocks) == 1:
        return blocks[0]
    offset, source = [], []
    data = targets = 0
    for block in blocks:
        inline = block.kind == ChunkType.inline
        offset.append(block.offset + np.where(inline, data, 0).astype(np.uint64))
        source.append(block.source + np.where(block.source > 0, targets, 0).astype(np.uint32))
        data += len(block.data)
        targets += len(block.targets)
    places = [block.targets for block in blocks if len(block.targets)]
    return Block(
        file=np.concatenate([block.file for block in blocks]),
        index=np.concatenate([block.index for block in blocks]),
        kind=np.concatenate([block.kind for block in blocks]),
        offset=np.concatenate(offset),
        length=np.concatenate([block.length for block in blocks]),
        data=np.concatenate([block.data for block in blocks]),
        source=np.concatenate(source),
        targets=sum(places[1:], places[0]) if places else Locations.none(),
    )


def dumps(block: Block) -> bytes:
    """Return a block as bytes that travel: about ten for each reference."""
    edges = np.flatnonzero(np.diff(block.file)) + 1
    first = np.concatenate([[0], edges]) if len(block) else edges
    counts = np.diff(np.append(first, len(block)))
    targets = zip(
        block.targets.url, block.targets.etag, block.targets.last_modified.tolist(), strict=True
    )
    packed = PackedBlock(
        ndim=block.index.shape[1],
        files=block.file[first].astype("<i4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        boxes=None,
        index=block.index.astype("<u4").tobytes(),
        kinds=block.kind.tobytes(),
        data=block.data.tobytes(),
        sources=block.source.astype("<u4").tobytes(),
        targets=json.dumps(list(targets)).encode(),
        **packed_columns(block.offset, block.length),
    )
    told = pickle.dumps([getattr(packed, name) for name in _FIELDS])
    return zstandard.ZstdCompressor(level=1).compress(told)


def loads(raw: bytes) -> Block:
    """Undo `dumps`."""
    told = pickle.loads(zstandard.ZstdDecompressor().decompress(raw))  # noqa: S301  # our own row
    return unpack(PackedBlock(**dict(zip(_FIELDS, told, strict=True))))
