"""Attributes of plain types, from the messages of an object header.

libhdf5 makes and drops three objects for each attribute, which is most of the time that a small
file takes. What is not plain (enumerations, compounds, other objects' types) is left to it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from operator import itemgetter
from struct import Struct, error
from typing import Any, NamedTuple

import numpy as np
from h5py import h5t

from icevirt_scanners.hdf5.raw.fields import NotUnderstoodError, require
from icevirt_scanners.hdf5.raw.header import ATTRIBUTE, ATTRIBUTE_INFO, SHARED, Message
from icevirt_scanners.hdf5.raw.heap import Heap

_ENVELOPE = 2  # bytes before the message in an encoded type
_HEAD = Struct("<BBHHH")  # version, flags, sizes of name, type and dataspace
_TYPE = Struct("<BBBBI")  # class and version, three bytes of bits, size
_STRING, _REFERENCE, _SEQUENCE = 3, 7, 9  # classes of types
_TERMINATED = 0  # padding of a string: it ends with a NUL
_SIMPLE = (0, 1)  # kinds of a dataspace: a scalar, an array


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


class Texts(NamedTuple):
    """Strings as they are stored, without padding."""

    texts: list[bytes]


class References(NamedTuple):
    """For each element, the addresses of the objects it refers to."""

    addresses: list[list[int]]


type Value = np.ndarray[Any, Any] | Texts | References


def listed(
    messages: list[Message], heap: Heap, *, unread: Collection[bytes] = ()
) -> dict[bytes, Value | None]:
    """Read the attributes of an object from its messages; None where libhdf5 is to read one.

    Those named ``unread`` are only listed.

    They are in the order in which they were made where the file keeps it, else as they stand.

    Raises:
        NotUnderstoodError: Not all of them stand in the header.
    """
    found: list[tuple[int, bytes, Value | None]] = []
    ordered = False
    for message in messages:
        if message.kind == ATTRIBUTE:
            require(not message.flags & SHARED, "a shared attribute")
            found.append((message.order, *_attribute(message.data, heap, unread)))
        elif message.kind == ATTRIBUTE_INFO:
            require(len(message.data) > 2, "no room for flags")
            ordered = bool(message.data[1] & 1)
            at = 4 if ordered else 2  # a counter stands between
            nowhere = b"\xff" * heap.space.address_width
            require(message.data[at : at + len(nowhere)] == nowhere, "attributes elsewhere")
    if ordered:
        found.sort(key=itemgetter(0))
    values = {name: value for _, name, value in found}
    require(len(values) == len(found), "two attributes of one name")
    return values


def _attribute(data: bytes, heap: Heap, unread: Collection[bytes]) -> tuple[bytes, Value | None]:
    """Split a message into the attribute's name and its value."""
    try:
        version, flags, *sizes = _HEAD.unpack_from(data)
    except error as cause:
        raise NotUnderstoodError("an attribute cut short") from cause
    require(version in (1, 2, 3), "a newer attribute")
    ends = [9 if version == 3 else 8]
    for size in sizes:
        ends.append(ends[-1] + (-(-size // 8) * 8 if version == 1 else size))
    require(ends[-1] <= len(data) and sizes[0], "an attribute cut short")
    name = data[ends[0] : ends[0] + sizes[0]].split(b"\0", 1)[0]
    if (version > 1 and flags) or name in unread:  # its type stands elsewhere
        return name, None
    try:
        shape = _shape(data[ends[2] : ends[3]], heap.space.length_width)
        value = _value(data[ends[1] : ends[2]], shape, data[ends[3] :], heap)
    except (NotUnderstoodError, error, IndexError):
        return name, None
    return name, value


def _shape(space: bytes, width: int) -> tuple[int, ...]:
    version, rank = space[0], space[1]
    require(version == 1 or (version == 2 and space[3] in _SIMPLE), "no plain dataspace")
    start = 8 if version == 1 else 4
    require(start + rank * width <= len(space), "a dataspace cut short")
    axes = Struct(f"<{rank}{'Q' if width == 8 else 'I'}").unpack_from(space, start)
    require(prod(axes) < 1 << 31, "an attribute too large")
    return axes


def _value(kind: bytes, shape: tuple[int, ...], data: bytes, heap: Heap) -> Value | None:
    family = kind[0] & 15
    count = prod(shape)
    if family in _NUMBER_SIZES:
        dtypes = _NUMBERS.get(_versionless(kind[: _NUMBER_SIZES[family]]))
        if dtypes is None:
            return None
        stored, shown = dtypes
        require(count * stored.itemsize <= len(data), "a value cut short")
        return np.frombuffer(data, stored, count).reshape(shape).astype(shown)
    _, bits, _, _, size = _TYPE.unpack_from(kind)
    require(count * size <= len(data), "a value cut short")
    if family == _STRING and size:
        texts = [data[at : at + size] for at in range(0, count * size, size)]
        return Texts([_stripped(text, terminated=bits & 15 == _TERMINATED) for text in texts])
    if family == _SEQUENCE:
        require(size == heap.item_size, "sequences elsewhere than in the heap")
        return _sequences(kind, data[: count * size], heap)
    return None


def _sequences(kind: bytes, data: bytes, heap: Heap) -> Value | None:
    if kind[1] & 15 == 1:  # of characters
        texts = heap.sequences(data, 1)
        return Texts([_stripped(text, terminated=True) for text in texts])
    width = heap.space.address_width
    inner = kind[_TYPE.size :]
    if inner[0] & 15 != _REFERENCE or inner[1] & 15 or inner[4] != width:
        return None  # other than addresses of objects
    addresses = Struct("<I" if width == 4 else "<Q")
    items = heap.sequences(data, width)
    return References([[one for (one,) in addresses.iter_unpack(item)] for item in items])


def _stripped(text: bytes, *, terminated: bool) -> bytes:
    return text.split(b"\0", 1)[0] if terminated else text.replace(b"\0", b"")
