"""Read snapshots, manifests and transaction logs as the declaration of a generation says.

Damage of any kind becomes a ``FormatError``.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.legacy import zarr_metadata
from icevirt.legacy.encoding import (
    CHUNK,
    META,
    NODE,
    NODE_SETS,
    VIRTUAL,
    Encoding,
    Framing,
    MessagePackFile,
    ReadId,
    check_version,
    choice,
    fields,
    lines_for,
    number,
    sequence,
    text,
)
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.json import JSON, loads
from icevirt.model.snapshot import (
    ArrayNode,
    Extents,
    ManifestFile,
    ManifestRef,
    Node,
    Snapshot,
    node_of,
)
from icevirt.model.strings import Strings
from icevirt.wire import header
from icevirt.wire.flatbuffer.reader import reading
from icevirt.wire.flatbuffer.schema import Damage
from icevirt.wire.header import FileKind
from icevirt.wire.metadata import as_json, unique_keys

MOST_DIMENSIONS = 64


class OldReferences:
    """The references of one array, of indices of one length."""

    def __init__(self, ndim: int) -> None:
        if ndim > MOST_DIMENSIONS:
            raise Damage(f"a chunk index of {ndim} dimensions", 0)
        self._ndim = ndim
        self._index = array("I")
        self._kind = bytearray()
        self._source = array("I")
        self._offset = array("Q")
        self._length = array("Q")
        self._places: dict[tuple[str, str, int], int] = {}
        self._ids = bytearray()
        self._inline = bytearray()

    def add(self, index: tuple[Any, ...], payload: Any, object_id: ReadId) -> None:
        """Add a reference. Raises ``Damage``."""
        self._index.extend(number(at, "a chunk index", _MOST) for at in index)
        kind, value = choice(payload, "a chunk reference")
        match kind:
            case "Inline":
                if not isinstance(value, bytes):  # JSON has numbers
                    numbers = sequence(value, "an inline chunk")
                    value = bytes(number(each, "a byte", 255) for each in numbers)
                self._row(ChunkType.inline, 0, len(self._inline), len(value))
                self._inline += value
            case "Ref":
                found = fields(value, CHUNK, "a reference to a chunk")
                self._ids += object_id(found["id"])
                at = len(self._ids) // ObjectId12.SIZE - 1
                self._row(ChunkType.native, at, found["offset"], found["length"])
            case "Virtual":
                found = fields(value, VIRTUAL, "a virtual reference")
                at = self._places.setdefault(_place_of(found), len(self._places))
                self._row(ChunkType.virtual, at, found["offset"], found["length"])
            case _:
                raise Damage(f"a chunk reference of the unknown kind {kind[:80]!r}", 0)

    def _row(self, kind: ChunkType, source: int, offset: Any, length: Any) -> None:
        self._kind.append(kind)
        self._source.append(source)
        self._offset.append(number(offset, "an offset"))
        self._length.append(number(length, "a length"))

    def table(self) -> ChunkTable:
        """Return the columns. Raises ``ValueError`` for a chunk that occurs twice."""
        urls, etags, times = zip(*self._places, strict=True) if self._places else ((), (), ())
        return ChunkTable(
            index=np.array(self._index, np.uint32).reshape(len(self._kind), self._ndim),
            kind=np.frombuffer(bytes(self._kind), np.uint8),
            source=np.array(self._source, np.uint32),
            offset=np.array(self._offset, np.uint64),
            length=np.array(self._length, np.uint64),
            locations=Locations(
                url=Strings.of(list(urls)),
                etag=Strings.of(list(etags)),
                last_modified=np.array(times, np.uint32),
            ),
            chunk_ids=np.frombuffer(bytes(self._ids), np.uint8).reshape(-1, ObjectId12.SIZE),
            inline=np.frombuffer(bytes(self._inline), np.uint8),
        ).sort()


def _place_of(found: Mapping[str, Any]) -> tuple[str, str, int]:
    """Return URL, ETag and time of a virtual reference; the first releases marked URLs."""
    kind, inner = choice(found["location"], "a location")
    if inner is not None and kind != "Absolute":
        raise Damage(f"a location of the unknown kind {kind[:80]!r}", 0)
    url = kind if inner is None else text(inner, "a location")
    if found.get("checksum") is None:
        return url, "", 0
    match choice(found["checksum"], "a checksum"):
        case "ETag", str(etag):
            return url, etag, 0
        case "LastModified", at:
            return url, "", number(at, "a time", _MOST)
        case kind, _:
            raise Damage(f"a checksum of the unknown kind {kind[:80]!r}", 0)


_ZSTD = bytes.fromhex("28b52ffd")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = (1 << 32) - 1
_KEY = re.compile(r"[\s\[\](){},;:/._c-]*")
_DIGITS = re.compile(r"\d{1,10}")

type Tables = Mapping[ObjectId8, Mapping[int, ChunkTable]]
"""Chunk references by node, and by the number of dimensions: some writers mixed arrays up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSnapshot:
    """A snapshot, and what only old files say."""

    snapshot: Snapshot
    ancestors: tuple[ObjectId12, ...] | None  # the newest first; None: it names only its parent


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLog:
    """A transaction log, which does not say what is a group and what an array."""

    nodes: Mapping[str, frozenset[ObjectId8]]
    chunks: Mapping[ObjectId8, NDArray[np.uint32]]


def snapshot(raw: bytes, encoding: Encoding) -> OldSnapshot:
    """Read a snapshot. Raises ``FormatError``."""
    with _reading(FileKind.snapshot):
        body, is_json = _file(raw, encoding, FileKind.snapshot)
        found = fields(_value(body, is_json=is_json), encoding.snapshot, "a snapshot")
        ancestors = None
        if "parent_id" in found:
            parent = None if found["parent_id"] is None else encoding.id12(found["parent_id"])
            meta = found
        else:
            meta = fields(found["metadata"], META, "the metadata of a snapshot")
            listed = sequence(found["short_term_history"], "the history")  # the newest first
            total, here = found["total_parents"], found["short_term_parents"]
            if here != len(listed) or number(total, "total_parents", _MOST) < here:
                raise Damage(f"it lists {len(listed)} ancestors, and says {here} of {total}", 0)
            metas = (fields(each, META, "the metadata of a snapshot") for each in listed)
            ancestors = tuple(encoding.id12(each["id"]) for each in metas)
            parent = ancestors[0] if ancestors else None
        nodes = found["nodes"]
        if not isinstance(nodes, dict):
            raise Damage("the nodes are no map", 0)
        made = tuple(_node(path, value, encoding) for path, value in nodes.items())
        return OldSnapshot(
            snapshot=Snapshot(
                id=encoding.id12(meta["id"]),
                nodes=made,
                flushed_at=_micros(meta["written_at"]),
                message=text(meta["message"], "a message"),
                metadata=_object(found["properties"], "the properties"),
                manifest_files=_manifests(found.get("manifest_files"), made, encoding),
                parent_id=parent,
            ),
            ancestors=ancestors,
        )


def _value(body: bytes, *, is_json: bool) -> Any:
    """Return the one value of a file: arrays are tuples or lists, maps dicts."""
    return loads(body) if is_json else MessagePackFile(body).value()


def manifest(raw: bytes, encoding: Encoding, key: ObjectId12) -> Tables:
    """Read a manifest of this name. Raises ``FormatError``."""
    with _reading(FileKind.manifest):
        found: dict[tuple[ObjectId8, int], OldReferences] = {}
        for node, index, payload in _chunks(raw, encoding, key):
            which = ObjectId8(encoding.node_id(node)), len(index)
            if which not in found:
                found[which] = OldReferences(len(index))
            found[which].add(index, payload, encoding.object_id)
        tables: dict[ObjectId8, dict[int, ChunkTable]] = {}
        for (node_id, ndim), references in found.items():
            tables.setdefault(node_id, {})[ndim] = references.table()
        return tables


def transaction_log(raw: bytes, encoding: Encoding) -> OldLog:
    """Read a transaction log. Raises ``FormatError``."""
    with _reading(FileKind.transaction_log):
        file = MessagePackFile(_file(raw, encoding, FileKind.transaction_log)[0])
        *names, _ = lines_for(file.array(), encoding.log, "a transaction log")
        found = {name: file.value() for name in names}
        return OldLog(
            nodes={
                name: frozenset(encoding.id8(each) for each in sequence(found[name], name))
                for name in NODE_SETS
            },
            chunks=unique_keys([_read_update(file, encoding) for _ in range(file.map())]),
        )


# -- files -----------------------------------------------------------------------------------------


@contextmanager
def _reading(kind: FileKind) -> Iterator[None]:
    with reading(kind.name):
        try:
            yield
        except (TypeError, KeyError, OverflowError, RecursionError, InvalidInputError) as error:
            what = f"{type(error).__name__}: {error}"
            raise Damage(f"the file does not hold what it should: {what[:300]}", 0) from error


def payload(raw: bytes, kind: FileKind) -> tuple[bytes, Framing]:
    """Return what is in a file, and what stood around it. Raises ``FormatError``."""
    if raw.startswith(header.MAGIC):
        return header.unpack(raw, kind)[1], Framing.header
    if raw.startswith(_ZSTD):
        return header.decompress(memoryview(raw), kind), Framing.zstd
    return raw, Framing.document if raw[:1] == b"{" else Framing.bare


_WITHIN = {  # what a file of a generation may look like
    Framing.bare: {Framing.bare},
    Framing.zstd: {Framing.bare, Framing.zstd},
    Framing.header: {Framing.header},
    Framing.document: {Framing.bare, Framing.document},
}


def _file(raw: bytes, encoding: Encoding, kind: FileKind) -> tuple[bytes, bool]:
    """Return what is in a file, and whether it is JSON."""
    found, framing = payload(raw, kind)
    if framing not in _WITHIN[encoding.framing]:
        raise FormatError(
            f"this is not a file of the format generation {encoding.generation.name}",
            do="Restore the file from a copy of the repository.",
            file=kind.name,
            expected=encoding.framing.value,
            found=framing.value if raw else "nothing: the file is empty",
        )
    return found, framing is Framing.document


# -- snapshots -------------------------------------------------------------------------------------


def _node(path: Any, value: Any, encoding: Encoding) -> Node:
    found = fields(value, NODE, "a node")
    if text(found["path"], "a path") != path or paths.canonical(path) != path:
        raise Damage(f"the path of a node is not valid, or not its key: {path[:200]!r}", 0)
    attributes = None
    if found["user_attributes"] is not None:
        kind, inner = choice(found["user_attributes"], "user attributes")
        if kind == "Ref":
            raise Damage(f"the attributes of {path[:200]!r} lie in a file that no client wrote", 0)
        if kind != "Inline":
            raise Damage(f"user attributes of the unknown kind {kind[:80]!r}", 0)
        attributes = _object(inner, "user attributes")
    node_id = encoding.id8(found["id"])
    match choice(found["node_data"], "a node"):
        case "Group", None:
            return node_of(path, zarr_metadata.group(attributes), node_id)
        case "Array", (metadata, manifests):
            bare = node_of(path, zarr_metadata.array(metadata, attributes), node_id)
            assert isinstance(bare, ArrayNode)
            grid = tuple((0, count) for count in bare.num_chunks)
            refs = [_ref(each, grid, encoding) for each in sequence(manifests, "manifests")]
            return node_of(path, bare.user_data, node_id, refs)
        case _:
            raise Damage("a node is neither group nor array", 0)


def _ref(value: Any, grid: Extents, encoding: Encoding) -> ManifestRef:
    """Read a reference to a manifest; without extents it covers the whole grid."""
    found = fields(value, encoding.manifest_ref, "a reference to a manifest")
    extents = sequence(found["extents"], "extents")
    box = grid
    if extents and encoding.by_node:
        low, high = (sequence(each, "extents") for each in extents)
        box = tuple(
            (number(first, "extents", _MOST), number(last, "extents", _MOST + 1))
            for first, last in zip(low, high, strict=True)
        )
        if len(box) != len(grid):
            raise Damage("the extents of a manifest do not fit its array", 0)
    return ManifestRef(object_id=encoding.id12(found["object_id"]), extents=box)


def _manifests(
    listed: Any, nodes: tuple[Node, ...], encoding: Encoding
) -> tuple[ManifestFile, ...]:
    """Return the manifests that a snapshot lists, or those of its nodes where it lists none."""
    if listed is None:
        arrays = (node for node in nodes if isinstance(node, ArrayNode))
        keys = {ref.object_id for node in arrays for ref in node.manifests}
        return tuple(ManifestFile(id=key, size_bytes=0, num_chunk_refs=0) for key in sorted(keys))
    found = []
    for each in sequence(listed, "the manifests"):
        values = fields(each, encoding.manifest_file, "the entry of a manifest")
        check_version(values, "the entry of a manifest")
        found.append(
            ManifestFile(
                id=encoding.id12(values["id"]),
                size_bytes=number(values.get("size_bytes", 0), "the size of a manifest"),
                num_chunk_refs=number(values.get("num_chunk_refs", 0), "a count", _MOST),
            )
        )
    return tuple(found)


# -- manifests -------------------------------------------------------------------------------------


def _chunks(
    raw: bytes, encoding: Encoding, key: ObjectId12
) -> Iterator[tuple[Any, tuple[Any, ...], Any]]:
    body, is_json = _file(raw, encoding, FileKind.manifest)
    if is_json or encoding.short:
        value = _value(body, is_json=is_json)
        chunks = fields(value, encoding.manifest, "a manifest")["chunks"]
        if not isinstance(chunks, dict):
            raise Damage("the chunks are no map", 0)
        for name, payload in chunks.items():
            yield *_place(name), payload
        return
    file = MessagePackFile(body)
    names = lines_for(file.array(), encoding.manifest, "a manifest")
    for name in names[:-1]:
        value = file.value()
        if name == "id" and encoding.id12(value) != key:
            raise Damage("the manifest holds another id than its name says", 0)
    if not encoding.by_node:
        for name, payload in file.pairs():
            yield *_place(name), payload
        return
    for _ in range(file.map()):
        node = file.value()
        encoding.node_id(node)  # also of one without chunks
        for index, payload in file.pairs():
            yield node, sequence(index, "a chunk index"), payload


def _place(name: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return node and index out of the name of a reference.

    The first specification does not say how such a name becomes text. Its numbers do, in order.
    """
    if isinstance(name, str):
        if _KEY.sub("", _DIGITS.sub("", name)):
            raise Damage(f"the name of a chunk cannot be understood: {name[:80]!r}", 0)
        node, *index = map(int, _DIGITS.findall(name)[: MOST_DIMENSIONS + 2])
        return node, tuple(index)
    node, index = sequence(name, "the name of a chunk")
    return node, sequence(index, "a chunk index")


# -- values ----------------------------------------------------------------------------------------


def _object(value: Any, what: str) -> dict[str, JSON]:
    found = as_json(value)
    if not isinstance(found, dict):
        raise Damage(f"{what} are no map", 0)
    return found


def _micros(value: Any) -> int:
    at = datetime.fromisoformat(text(value, "a time"))
    if at.tzinfo is None or at < _EPOCH:
        raise Damage("a time without a zone, or before 1970", 0)
    return (at - _EPOCH) // timedelta(microseconds=1)


def _read_update(file: MessagePackFile, encoding: Encoding) -> tuple[ObjectId8, NDArray[np.uint32]]:
    """Read a node and the indices of its updated chunks."""
    node, rows = encoding.id8(file.value()), file.array()
    found, ndims = array("I"), set()
    for _ in range(rows):
        index = sequence(file.value(), "a chunk index")
        ndims.add(len(index))
        found.extend(number(at, "a chunk index", _MOST) for at in index)
    if len(ndims) > 1:
        raise Damage("indices of one array differ in length", 0)
    shape = rows, ndims.pop() if rows else 0
    return node, np.unique(np.array(found, np.uint32).reshape(shape), axis=0)
