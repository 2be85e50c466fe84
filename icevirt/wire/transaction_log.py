"""Read and write transaction logs: which nodes and chunks a commit changed.

Spec: "Transaction Log Files". Chunk coordinates, possibly millions, are numpy columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.indices import ascends
from icevirt.model.strings import Bytes, Places
from icevirt.model.transaction_log import Move, NodeType, TransactionLog
from icevirt.wire import header
from icevirt.wire.flatbuffer.builder import BLOCK, Builder, Records, Rows, Tail, vector_blocks
from icevirt.wire.flatbuffer.reader import FlatBufferReader, Payload, Tables, reading
from icevirt.wire.flatbuffer.schema import CHUNK_INDICES, NODE_SETS, TRANSACTION_LOG, Damage, Values
from icevirt.wire.header import FileKind

_FEW = 64  # chunks of an array, such as many arrays have
_MOVE = ("from", "to", "node_id", "node_type")


def encode(
    log: TransactionLog, *, level: int = 3, spec_version: int = header.SPEC_VERSION
) -> bytes:
    """Return the file of a transaction log.

    Raises:
        InvalidInputError: Chunk indices are out of order, or too many for one file.
    """
    values = {
        "id": log.id,
        **{name: sorted(getattr(log, name)) for name in NODE_SETS},
        "updated_chunks": [
            {"node_id": node, "chunks": log.updated_chunks[node]}
            for node in sorted(log.updated_chunks)
        ],
        "moved_nodes": [
            dict(zip(_MOVE, (m.from_path, m.to_path, m.node_id, int(m.node_type)), strict=True))
            # component by component, unlike the nodes of a snapshot
            for m in sorted(log.moved_nodes, key=lambda m: m.to_path.encode().split(b"/"))
        ],
        "extra": log.extra,
    }
    small = Builder().root(TRANSACTION_LOG, values)
    tail = Tail(len(small.out))
    known: dict[tuple[tuple[int, ...], bytes], Bytes] = {}
    for place, index in small.open:
        write = _write_chunks if len(index) > _FEW else partial(_write_few, known)
        small.link(place, write(tail, index))
    parts = chain([np.frombuffer(small.out, np.uint8)], tail.blocks())
    head = header.head(FileKind.transaction_log, spec_version)
    return b"".join([head, *header.compress(parts, tail.end, level, checksum=True)])


def decode(raw: bytes) -> TransactionLog:
    """Read a transaction log. Raises ``FormatError``."""
    _, data = header.unpack(raw, FileKind.transaction_log)
    with reading(FileKind.transaction_log.name):
        reader = FlatBufferReader(data)
        values = reader.root(TRANSACTION_LOG)
        return TransactionLog(
            id=ObjectId12(values["id"]),
            **{name: frozenset(map(ObjectId8, values[name])) for name in NODE_SETS},
            updated_chunks=_read_chunks(Payload(data), values["updated_chunks"], reader.newer),
            moved_nodes=tuple(_move(each) for each in values["moved_nodes"] or ()),
            extra=values["extra"],
            newer_tables=tuple(sorted(reader.newer)),
        )


def _move(values: Values) -> Move:
    source, target, node, kind = (values[name] for name in _MOVE)
    if source is None or target is None or node is None:
        raise Damage("a move lacks its paths or its node", 0)
    move = {"from_path": source, "to_path": target, "node_id": ObjectId8(node)}
    return Move(**move, node_type=NodeType(kind))


def _write_chunks(tail: Tail, index: NDArray[np.uint32]) -> int:
    """Write the vector of an array's chunk indices and its records; return where it stands."""
    if not ascends(index):
        raise InvalidInputError("chunk indices are not in ascending order", do="Sort them.")
    count, ndim = index.shape
    records = Records.of(CHUNK_INDICES, frozenset({"coords"}), "coords", ndim)
    lows = range(0, count, BLOCK)

    def tables() -> Iterator[Places]:
        for low in lows:
            yield records.places(rows + records.stride * low, min(BLOCK, count - low))

    def parts() -> Iterator[Rows]:
        parts = (index[low : low + BLOCK] for low in lows)
        return (Rows(count=len(part), index=part) for part in parts)

    vector = tail.add(4 + 4 * count, lambda: vector_blocks(vector, count, tables()))
    rows = tail.add(count * records.stride, lambda: records.blocks(rows, count, parts()))
    return vector


def _write_few(
    known: dict[tuple[tuple[int, ...], bytes], Bytes], tail: Tail, index: NDArray[np.uint32]
) -> int:
    """Write the same, once made for arrays that changed the same chunks: it holds no place."""
    key = index.shape, index.tobytes()
    made = known.get(key)
    if made is None:
        alone = Tail(0)
        _write_chunks(alone, index)
        made = known[key] = alone.payload(bytearray())
    return tail.add(len(made), lambda: [made])


def _read_chunks(
    payload: Payload, arrays: Iterable[Values], newer: set[str]
) -> dict[ObjectId8, NDArray[np.uint32]]:
    """Return chunk indices by array; add tables with fields of a newer schema to ``newer``."""
    found: dict[ObjectId8, NDArray[np.uint32]] = {}
    left = payload.size // 4
    for each in arrays:
        left -= each["chunks"].count
        node = ObjectId8(each["node_id"])
        if left < 0 or node in found:
            raise Damage("an array is listed twice, or its chunks are", each["chunks"].start)
        rows = Tables(payload, each["chunks"], CHUNK_INDICES)
        rows.look_beyond(newer)
        index = rows.coordinates("coords").copy()  # the log outlives its bytes
        index.flags.writeable = False
        found[node] = index
    return found
