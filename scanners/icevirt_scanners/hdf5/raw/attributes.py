"""Read attributes of plain types from the messages of an object header.

libhdf5 makes and drops three objects per attribute, which is most of the time that a small file
takes. Other types (enumerations, compounds, other objects' types) are left to libhdf5. Messages
repeat in the files of an archive, so small ones are cached by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from operator import attrgetter
from struct import Struct, error
from typing import Any, NamedTuple

import numpy as np
from h5py import h5t

from icevirt_scanners.hdf5.raw.header import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    SHARED,
    Message,
    ObjectHeader,
    SharedMessages,
)
from icevirt_scanners.hdf5.raw.heaps import FractalHeap, Heap, RecordTree
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, number, require

UNREAD = frozenset(
    {
        b"REFERENCE_LIST",
        b"_ARRAY_DIMENSIONS",
        b"_Codecs",
        b"_Format",
        b"_IsNetcdf4",
        b"_NCProperties",
        b"_SuperblockVersion",
        b"_nc3_strict",
    }
)
"""Names of bookkeeping that netCDF-C hides, and that dimensions do not need."""

_BY_NAME = 8  # kind of records in a tree of attributes
_RECORD = Struct("<BII")  # of such a record's end: flags, order, hash of the name
_ENVELOPE = 2  # bytes before the message in an encoded type
_HEAD = Struct("<BBHHH")  # version, flags, sizes of name, type and dataspace
_TYPE = Struct("<BBBBI")  # class and version, three bytes of bits, size
_STRING, _REFERENCE, _SEQUENCE = 3, 7, 9  # classes of types
_TERMINATED = 0  # padding of a string: it ends with a NUL
_OF_CHARACTERS = 1  # kind of a sequence
_AROUND_ADDRESS = 8  # bytes of a sequence's length and number in its heap
_SIMPLE = (0, 1)  # kinds of a dataspace: a scalar, an array
_REMEMBERED = 1024  # bytes of messages that are


def _numbers() -> dict[bytes, tuple[np.dtype[Any], np.dtype[Any]]]:
    """Return what is stored and what is shown, by the message of a type without its version."""
    names = [f"STD_{kind}{size}" for kind in "IU" for size in (8, 16, 32, 64)]
    known: dict[bytes, tuple[np.dtype[Any], np.dtype[Any]]] = {}
    for name in (*names, "IEEE_F32", "IEEE_F64"):
        for order in ("LE", "BE"):
            tid = getattr(h5t, name + order)
            shown = tid.dtype.newbyteorder("=")
            known[_versionless(tid.encode()[_ENVELOPE:])] = tid.dtype, shown
    return known


def _versionless(raw: bytes) -> bytes:
    return bytes([raw[0] & 15]) + raw[1:]


_NUMBERS = _numbers()
_NUMBER_SIZES = {0: 12, 1: 20}  # bytes of the message, by class


class FixedStrings(NamedTuple):
    """Strings as they are stored, without padding."""

    texts: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all texts."""
        return sum(map(len, self.texts))


class References(NamedTuple):
    """For each element, the addresses of the objects it refers to."""

    addresses: tuple[tuple[int, ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all addresses."""
        return 8 * sum(map(len, self.addresses))


type Value = np.ndarray[Any, Any] | FixedStrings | References


class _Attribute(NamedTuple):
    """A name, its value (None where libhdf5 is to read it), and what these two depend on."""

    name: bytes
    value: Value | None
    key: Hashable
    nbytes: int  # about what it takes to hold them
    order: int  # in which attributes were made


class _InHeap(NamedTuple):
    """An attribute whose value stands in the heap."""

    name: bytes
    data: bytes  # of the message
    begin: int  # where in it begins what leads to the value
    reader: Callable[[bytes, Heap], FixedStrings | References]
    order: int

    def value(self, heap: Heap) -> FixedStrings | References:
        """Read the value. Raises `NotUnderstoodError`."""
        try:
            return self.reader(self.data[self.begin :], heap)
        except error as cause:
            raise NotUnderstoodError("a value cut short") from cause

    def read(self, heap: Heap) -> _Attribute:
        """Return the attribute, without a value where libhdf5 is to read it."""
        name, data = self.name, self.data
        try:
            found = self.value(heap)
        except NotUnderstoodError:
            return _Attribute(name, None, data, len(data), self.order)
        key = data[: self.begin], found
        return _Attribute(name, found, key, len(data) + found.nbytes, self.order)


@dataclass(frozen=True, slots=True)
class StoredAttributes:
    """The attributes of an object in their order; equal ``key``s mean equal names and values."""

    values: dict[bytes, Value | None] = field(compare=False)  # None: libhdf5 is to read it
    nbytes: int = field(compare=False)  # about what it takes to hold them
    key: Hashable


class HeaderAttributes(NamedTuple):
    """The attributes of an object as its header says them, in their order.

    Values in the heap are missing; so are attributes that are too many for the header.
    """

    entries: tuple[_Attribute | _InHeap, ...]
    stored: StoredAttributes | None  # all of them, where no value stands in the heap
    dense: tuple[int, int] | None  # addresses of heap and tree of attributes beside the header
    is_ordered: bool  # whether the file keeps the order in which attributes were made


def listing_of(shared: SharedMessages) -> HeaderAttributes:
    """Read the attributes of a header; those in `UNREAD` are only listed.

    Raises:
        NotUnderstoodError: A message is odd.
    """
    return _listing(shared, UNREAD)


def list_attributes(
    header: ObjectHeader, *, unread: Collection[bytes] = UNREAD
) -> StoredAttributes:
    """Read the attributes of an object; those named ``unread`` are only listed.

    They are in the order in which they were made where the file keeps it, else as they stand.

    Raises:
        NotUnderstoodError: Not all of them can be read.
    """
    shared, heap = header.shared, header.heap
    listing = shared.once(listing_of) if unread is UNREAD else _listing(shared, unread)
    if listing.stored is not None:
        return listing.stored
    found = [one.read(heap) if isinstance(one, _InHeap) else one for one in listing.entries]
    if listing.dense is not None:
        found += _dense(*listing.dense, heap, unread)
    if listing.is_ordered:
        found.sort(key=attrgetter("order"))
    return _gather(found, shared.length_width)


def in_heap(header: ObjectHeader) -> tuple[FixedStrings | References, ...] | None:
    """Return the values of attributes that stand in the heap, None where more is beside the header.

    With the messages of the header, they are all that its attributes depend on.

    Raises:
        NotUnderstoodError: A value cannot be read.
    """
    listing = header.shared.once(listing_of)
    if listing.dense is not None:
        return None
    if listing.stored is not None:
        return ()
    return tuple(one.value(header.heap) for one in listing.entries if isinstance(one, _InHeap))


def without_places(shared: SharedMessages) -> object:
    """Return one object for all headers whose messages only differ in places in the heap.

    Values of attributes in `UNREAD` do not count either.

    Raises:
        NotUnderstoodError: A message is odd.
    """
    parts: list[Hashable] = []
    for message in shared.messages:
        if message.kind != ATTRIBUTE or message.flags & SHARED:
            parts.append(message)
            continue
        one = _attribute(message.data, shared.length_width, UNREAD, order=message.order)
        said = one.data[: one.begin] if isinstance(one, _InHeap) else one.key
        parts.append((message.flags, message.order, said))
    return _one_of((tuple(parts), shared.address_width, shared.length_width))


@lru_cache(1024)
def _one_of(_: Hashable) -> object:
    return object()


def _listing(shared: SharedMessages, unread: Collection[bytes]) -> HeaderAttributes:
    entries: list[_Attribute | _InHeap] = []
    ordered, dense = False, None
    wide = shared.address_width
    for message in shared.messages:
        if message.kind == ATTRIBUTE:
            require(not message.flags & SHARED, "a shared attribute")
            entries.append(
                _attribute(message.data, shared.length_width, unread, order=message.order)
            )
        elif message.kind == ATTRIBUTE_INFO:
            require(len(message.data) > 2, "no room for flags")
            ordered = bool(message.data[1] & 1)
            at = 4 if ordered else 2  # a counter stands between
            store, tree = (number(message.data, at + n * wide, wide) for n in (0, 1))
            if store != (1 << 8 * wide) - 1:
                dense = store, tree
    if ordered:
        entries.sort(key=attrgetter("order"))
    known = [one for one in entries if isinstance(one, _Attribute)]
    is_complete = dense is None and len(known) == len(entries)
    stored = _gather(known, shared.length_width) if is_complete else None
    return HeaderAttributes(tuple(entries), stored, dense, ordered)


def _gather(found: list[_Attribute], length_width: int) -> StoredAttributes:
    values = {one.name: one.value for one in found}
    require(len(values) == len(found), "two attributes of one name")
    nbytes = sum(one.nbytes for one in found)
    return StoredAttributes(values, nbytes, (length_width, tuple(one.key for one in found)))


def _dense(store: int, tree: int, heap: Heap, unread: Collection[bytes]) -> list[_Attribute]:
    """Read attributes that are too many for the header, in the order of their names' hashes."""
    space = heap.space.begin()
    objects, records = FractalHeap(space, store), RecordTree(space, tree)
    require(records.kind == _BY_NAME, "records of another kind")
    found: list[_Attribute] = []
    for record in records.records():
        identity, (flags, order, _) = record[: objects.id_length], _RECORD.unpack(record[-9:])
        require(not flags & SHARED, "a shared attribute")
        one = _attribute(objects.item(identity), space.length_width, unread, order=order)
        found.append(one.read(heap) if isinstance(one, _InHeap) else one)
    return found


def heaps_of(messages: Sequence[Message], unread: Collection[bytes]) -> Iterator[int]:
    """Yield the addresses of heaps that values of attributes stand in.

    Raises:
        NotUnderstoodError: A message is odd.
    """
    for message in messages:
        if message.kind == ATTRIBUTE and not message.flags & SHARED:
            name, is_elsewhere, kind, _, value = _parts(message.data)
            if is_elsewhere or name in unread or not kind or kind[0] & 15 != _SEQUENCE:
                continue
            size = _TYPE.unpack_from(kind)[4] if len(kind) >= _TYPE.size else 0
            if size == 16:  # addresses of 8 bytes
                for at in range(4, len(value) - 11, size):
                    yield number(value, at, 8)


def _attribute(
    data: bytes, length_width: int, unread: Collection[bytes], *, order: int
) -> _Attribute | _InHeap:
    """Split a message into the attribute's name and its value."""
    known = _understood if len(data) <= _REMEMBERED else _understood.__wrapped__
    name, value, beyond = known(data, length_width)
    if name in unread:
        return _Attribute(name, None, name, len(name), order)
    if beyond is None:
        return _Attribute(name, value, data, len(data), order)
    begin, read = beyond
    return _InHeap(name, data, begin, read, order)


type _FromHeap = Callable[[bytes, Heap], FixedStrings | References]
type _Reader = tuple[_FromHeap, None] | tuple[None, Callable[[bytes], Value]]
type _Beyond = tuple[int, _FromHeap]


@lru_cache(4096)
def _understood(data: bytes, width: int) -> tuple[bytes, Value | None, _Beyond | None]:
    """Return name and value of a message, or where in it begins what leads to a value in the heap.

    ``width`` is that of lengths. No value means that libhdf5 is to read it.
    """
    name, is_elsewhere, kind, space, value = _parts(data)
    read = None if is_elsewhere else _reader(kind, space, width)
    if read is None:
        return name, None, None
    from_heap, from_bytes = read
    if from_heap is not None:
        return name, None, (len(data) - len(value), from_heap)
    assert from_bytes is not None
    try:
        return name, from_bytes(value), None
    except (NotUnderstoodError, error):
        return name, None, None


def _parts(data: bytes) -> tuple[bytes, bool, bytes, bytes, bytes]:
    """Return name, whether its type stands elsewhere, type, dataspace and value."""
    try:
        version, flags, name_size, kind_size, space_size = _HEAD.unpack_from(data)
    except error as cause:
        raise NotUnderstoodError("an attribute cut short") from cause
    require(version in (1, 2, 3) and name_size, "a newer attribute")
    to = 8 if version == 1 else 1  # what parts are padded to
    begin = 9 if version == 3 else 8
    kind = begin - -name_size // to * to
    space = kind - -kind_size // to * to
    value = space - -space_size // to * to
    require(value <= len(data), "an attribute cut short")
    name = data[begin : begin + name_size - 1]  # without the NUL at its end
    require(b"\0" not in name, "a name of another length")
    return name, version > 1 and bool(flags), data[kind:space], data[space:value], data[value:]


@lru_cache(1024)  # the attributes of an archive are of few types
def _reader(kind: bytes, space: bytes, width: int) -> _Reader | None:
    """Return what reads values of a type and shape; None where libhdf5 is to read them."""
    try:
        shape = _shape(space, width)
        family, count = kind[0] & 15, prod(shape)
        if family in _NUMBER_SIZES:
            dtypes = _NUMBERS.get(_versionless(kind[: _NUMBER_SIZES[family]]))
            return (None, partial(_array, *dtypes, shape)) if dtypes is not None else None
        _, bits, _, _, size = _TYPE.unpack_from(kind)
        if family == _STRING and size:
            return None, partial(_read_fixed, size, count, bits & 15 == _TERMINATED)
        if family == _SEQUENCE and kind[1] & 15 == _OF_CHARACTERS:
            return partial(_variable, size * count), None
        if family == _SEQUENCE:
            inner, wide = kind[_TYPE.size :], size - _AROUND_ADDRESS
            if inner[0] & 15 == _REFERENCE and not inner[1] & 15 and inner[4] == wide:
                return partial(_references, size * count, wide), None
    except (NotUnderstoodError, error, IndexError):
        pass
    return None


def _shape(space: bytes, width: int) -> tuple[int, ...]:
    version, rank = space[0], space[1]
    require(version == 1 or (version == 2 and space[3] in _SIMPLE), "no plain dataspace")
    start = 8 if version == 1 else 4
    axes = Struct(f"<{rank}{'Q' if width == 8 else 'I'}").unpack_from(space, start)
    require(prod(axes) < 1 << 31, "an attribute too large")
    return axes


def _array(
    stored: np.dtype[Any], shown: np.dtype[Any], shape: tuple[int, ...], data: bytes
) -> Value:
    count = prod(shape)
    require(count * stored.itemsize <= len(data), "a value cut short")
    found = np.frombuffer(data, stored, count).reshape(shape).astype(shown)
    found.flags.writeable = False  # it is shared
    return found


def _read_fixed(size: int, count: int, terminated: bool, data: bytes) -> Value:
    require(count * size <= len(data), "a value cut short")
    texts = (data[at : at + size] for at in range(0, count * size, size))
    return FixedStrings(tuple(_strip(text, terminated=terminated) for text in texts))


def _variable(nbytes: int, data: bytes, heap: Heap) -> FixedStrings:
    texts = heap.sequences(data[:nbytes], 1)
    return FixedStrings(tuple(_strip(text, terminated=True) for text in texts))


def _references(nbytes: int, width: int, data: bytes, heap: Heap) -> References:
    items = heap.sequences(data[:nbytes], width)
    addresses = Struct("<I" if width == 4 else "<Q")
    return References(tuple(tuple(one for (one,) in addresses.iter_unpack(item)) for item in items))


def _strip(text: bytes, *, terminated: bool) -> bytes:
    return text.split(b"\0", 1)[0] if terminated else text.replace(b"\0", b"")
