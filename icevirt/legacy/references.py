"""Collect chunk references of MessagePack manifests as columns, one reference at a time."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from icevirt.ids import ObjectId12
from icevirt.legacy.encoding import (
    CHUNK,
    VIRTUAL,
    ReadId,
    choice,
    fields,
    number,
    sequence,
    text,
)
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.wire.flatbuffer.reader import Damage

_MOST = (1 << 32) - 1
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
                body = _body(value)
                self._row(ChunkType.inline, 0, len(self._inline), len(body))
                self._inline += body
            case "Ref":
                found = fields(value, CHUNK, "a reference to a chunk")
                self._ids += object_id(found["id"])
                at = len(self._ids) // ObjectId12.SIZE - 1
                self._row(ChunkType.native, at, found["offset"], found["length"])
            case "Virtual":
                found = fields(value, VIRTUAL, "a virtual reference")
                place = _location(found["location"]), *_checksum(found.get("checksum"))
                at = self._places.setdefault(place, len(self._places))
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
        ).sorted()


def _body(value: Any) -> bytes:
    """Return the bytes of an inline chunk, which JSON has as numbers."""
    if isinstance(value, bytes):
        return value
    numbers = sequence(value, "an inline chunk")
    return bytes(number(each, "a byte", 255) for each in numbers)


def _location(value: Any) -> str:
    """Return a URL, which the first releases marked as absolute."""
    kind, inner = choice(value, "a location")
    if inner is None:
        return kind
    if kind != "Absolute":
        raise Damage(f"a location of the unknown kind {kind[:80]!r}", 0)
    return text(inner, "a location")


def _checksum(value: Any) -> tuple[str, int]:
    """Return the ETag and the time of a checksum."""
    if value is None:
        return "", 0
    match choice(value, "a checksum"):
        case "ETag", str(etag):
            return etag, 0
        case "LastModified", at:
            return "", number(at, "a time", _MOST)
        case kind, _:
            raise Damage(f"a checksum of the unknown kind {kind[:80]!r}", 0)
