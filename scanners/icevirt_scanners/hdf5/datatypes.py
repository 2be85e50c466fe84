"""Translate HDF5 datatypes to zarr data types, and decide if file bytes may be referenced.

A type may be referenced when a zarr reader that views the file's bytes sees what h5py reads.
Otherwise ``not_plain`` gives the reason, and the values are read and stored. Types that zarr cannot
express raise `NoDataTypeError`: references, variable-length numbers, times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import h5py
import numpy as np
from h5py import h5t

from icevirt.model.json import JSON
from icevirt_scanners import encoding

_IEEE = {
    (size, order): getattr(h5t, f"IEEE_F{8 * size}{end}")
    for size in (2, 4, 8)
    for order, end in ((h5t.ORDER_LE, "LE"), (h5t.ORDER_BE, "BE"))
}
_TAG = b"NUMPY:"
_NAMED = {"S": "null_terminated_bytes", "U": "fixed_length_utf32", "V": "raw_bytes"}
_NUMBERS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}  # by kind of dtype
_ENVELOPE = b"\3\0"  # before a message in an encoded type: what it is, version


class NoDataTypeError(Exception):
    """Zarr has no data type for this; the message says for what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """The type of one element."""

    dtype: np.dtype[Any]  # what values are stored as: numpy, little-endian; object for strings
    data_type: JSON
    big_endian: bool = False
    inner: tuple[int, ...] = ()  # extents of an array type; they become further dimensions
    not_plain: str = ""  # why the file's bytes cannot be referenced; "" when they can
    read_as: np.dtype[Any] | None = None  # what is read into, where that is not ``dtype``
    note: str = ""  # what the data type does not say
    named: Mapping[str, JSON] | None = None  # what numbers are called: see `with_enumeration`
    memory: Any = None  # h5py TypeID of that, where numpy's dtype does not say it

    @property
    def text(self) -> bool:
        """Whether these are variable-length strings."""
        return self.data_type == "string"

    @property
    def is_number(self) -> bool:
        """Whether the file holds plain integers or floats, which numpy reads as they stand."""
        converted = self.not_plain or self.read_as is not None or self.memory is not None
        return not converted and self.dtype.kind in "iuf"

    @property
    def stored_as(self) -> np.dtype[Any]:
        """The dtype of a plain number in the file."""
        return self.dtype.newbyteorder(">" if self.big_endian else "<")

    def codec(self) -> JSON:
        """Return the array-to-bytes codec under which the file's bytes may be referenced."""
        return bytes_codec(self, "big" if self.big_endian else "little")


def bytes_codec(element: Element, endian: str = "little") -> JSON:
    """Return the array-to-bytes codec of values stored in the given order."""
    if element.text:
        return {"name": "vlen-utf8", "configuration": {}}
    return encoding.bytes_codec(element.dtype, endian)


def element_of(tid: Any) -> Element:
    """Describe an HDF5 datatype.

    Raises:
        NoDataTypeError: Zarr has no data type for it.
    """
    family = tid.get_class()
    make = _MAKERS.get(family)
    if make is None:
        raise NoDataTypeError(_IMPOSSIBLE.get(family, f"HDF5 datatype class {family}"))
    return make(tid)


@lru_cache(1024)  # the datasets of an archive are of few types
def decode_element(message: bytes) -> Element:
    """Describe a datatype as the message of an object header says it. Raises as `element_of`."""
    return element_of(h5t.decode(_ENVELOPE + message))


def _integer(tid: Any) -> Element:
    size = tid.get_size()
    kind = "int" if tid.get_sign() == h5t.SGN_2 else "uint"
    full = tid.get_precision() == 8 * size and tid.get_offset() == 0
    held = next((n for n in (1, 2, 4, 8) if n >= size), None)
    if held is None:
        raise NoDataTypeError(f"integers of {size} bytes")
    dtype = np.dtype(f"<{kind[0]}{held}")
    return Element(
        dtype=dtype,
        data_type=f"{kind}{8 * held}",
        big_endian=tid.get_order() == h5t.ORDER_BE,
        not_plain="" if full and held == size else f"integers of {tid.get_precision()} bits",
    )


def _bitfield(tid: Any) -> Element:
    dtype = tid.dtype
    return Element(
        dtype=dtype.newbyteorder("<"),
        data_type=f"uint{8 * dtype.itemsize}",
        big_endian=dtype.byteorder == ">",
        read_as=dtype,
        memory=tid,
    )


def _float(tid: Any) -> Element:
    size, order = tid.get_size(), tid.get_order()
    standard = _IEEE.get((size, order))
    if standard is not None and tid == standard:
        return Element(
            dtype=np.dtype(f"<f{size}"),
            data_type=f"float{8 * size}",
            big_endian=order == h5t.ORDER_BE,
        )
    held = tid.dtype.itemsize  # the smallest numpy float that holds every value of this type
    return Element(
        dtype=np.dtype(f"<f{min(held, 8)}"),
        data_type=f"float{8 * min(held, 8)}",
        not_plain=f"floats of {tid.get_precision()} bits",
        read_as=np.dtype(np.longdouble) if held > 8 else None,
    )


def _string(tid: Any) -> Element:
    if tid.is_variable_str():
        return Element(
            dtype=np.dtype(object),
            data_type="string",
            not_plain="variable-length strings",
            read_as=tid.dtype,  # its metadata makes h5py read Python strings, not pointers
        )
    size, pad = tid.get_size(), tid.get_strpad()
    # behind the first NUL a null-terminated string may hold anything, which HDF5 does not show
    exact = pad == h5t.STR_NULLPAD or (pad == h5t.STR_NULLTERM and size == 1)
    return Element(
        dtype=np.dtype(f"S{size}"),
        data_type={"name": "null_terminated_bytes", "configuration": {"length_bytes": size}},
        not_plain="" if exact else "strings padded with spaces or garbage",
        read_as=tid.dtype,  # its metadata says UTF-8 or ASCII; HDF5 does not convert between them
    )


def _enum(tid: Any) -> Element:
    dtype = tid.dtype
    base = element_of(tid.get_super())
    if dtype.kind == "b":  # h5py takes FALSE and TRUE of any width for booleans
        wide = f"booleans of {tid.get_size()} bytes" if tid.get_size() > 1 else ""
        return Element(dtype=np.dtype("?"), data_type="bool", not_plain=base.not_plain or wide)
    members: dict[str, int] = h5py.check_enum_dtype(dtype) or {}
    return replace(
        base,
        read_as=dtype,
        memory=tid,
        note=f"an enumeration: {_list(members)}",
        named={"enum": members},
    )


def _list(members: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in members.items())


def _compound(tid: Any) -> Element:
    try:
        dtype = tid.dtype
    except (TypeError, ValueError) as error:
        raise NoDataTypeError(f"a compound with a member that h5py refuses: {error}") from error
    if dtype.kind == "c":
        return _complex(tid, dtype)
    fields: list[dict[str, JSON]] = []
    names: dict[str, JSON] = {}  # of numbers, by field
    notes = []
    packed: list[tuple[str, np.dtype[Any]]] = []
    plain, at = True, 0
    for number in range(tid.get_nmembers()):
        name = tid.get_member_name(number).decode("utf-8", "replace")
        member = element_of(tid.get_member_type(number))
        if member.inner or member.dtype.hasobject:
            raise NoDataTypeError(f"compounds with arrays or strings inside (member {name!r})")
        plain = plain and not member.not_plain and not member.big_endian
        plain = plain and tid.get_member_offset(number) == at
        at += member.dtype.itemsize
        if member.named is not None:
            names[name] = {key: part for key, part in member.named.items() if key != "enum_name"}
            notes.append(f"{name}: {member.note}")
        fields.append({"name": name, "data_type": member.data_type})
        packed.append((name, member.dtype))
    return Element(
        dtype=np.dtype(packed),
        data_type={"name": "struct", "configuration": {"fields": fields}},
        not_plain="" if plain and at == tid.get_size() else "a compound with gaps or mixed order",
        read_as=dtype,
        note="; ".join(notes),
        named={"fields": names} if names else None,
    )


def _complex(tid: Any, dtype: np.dtype[Any]) -> Element:
    if dtype.itemsize not in (8, 16):
        raise NoDataTypeError(f"complex numbers of {dtype.itemsize} bytes")
    part = dtype.itemsize // 2
    packed = tid.get_size() == dtype.itemsize and (
        tid.get_class() != h5t.COMPOUND
        or (tid.get_member_offset(0) == 0 and tid.get_member_offset(1) == part)
    )
    return Element(
        dtype=dtype.newbyteorder("<"),
        data_type=f"complex{8 * dtype.itemsize}",
        big_endian=dtype.byteorder == ">",
        not_plain="" if packed else "complex numbers with gaps",
        read_as=dtype,
    )


def _opaque(tid: Any) -> Element:
    if tid.get_tag().startswith(_TAG):
        return _describe_tagged(tid)
    size = tid.get_size()
    return Element(
        dtype=np.dtype(f"V{size}"),
        data_type={"name": "raw_bytes", "configuration": {"length_bytes": size}},
        memory=tid,
    )


def _describe_tagged(tid: Any) -> Element:
    """Describe what h5py stored as opaque bytes, with the numpy dtype in the tag."""
    tag = tid.get_tag().decode("utf-8", "backslashreplace")
    try:
        dtype = tid.dtype
        is_readable = h5t.py_create(dtype) == tid
    except (TypeError, ValueError) as error:
        raise NoDataTypeError(f"opaque bytes with the tag {tag!r}: {error}") from error
    if not is_readable:
        size = tid.get_size()
        raise NoDataTypeError(
            f"opaque bytes with the tag {tag!r}: h5py does not write this tag for {size} bytes"
        )
    plain = np.dtype(dtype.str).newbyteorder("<")
    is_wide = dtype.kind == "f" and dtype.itemsize > 8
    return Element(
        dtype=np.dtype("<f8") if is_wide else plain,
        data_type="float64" if is_wide else _data_type(dtype),
        big_endian=dtype.byteorder == ">",
        not_plain=f"floats of {8 * dtype.itemsize} bits" if is_wide else "",
        read_as=dtype,
        memory=tid,
    )


def _data_type(dtype: np.dtype[Any]) -> JSON:
    """Name the zarr data type of a numpy dtype that is no structure."""
    kind, bits = dtype.kind, 8 * dtype.itemsize
    size: JSON = {"length_bytes": dtype.itemsize}
    if kind in "mM":
        unit, count = np.datetime_data(dtype)
        name = "numpy.datetime64" if kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    if kind in _NAMED:
        return {"name": _NAMED[kind], "configuration": size}
    if kind == "b":
        return "bool"
    if kind in _NUMBERS and bits <= (128 if kind == "c" else 64):
        return f"{_NUMBERS[kind]}{bits}"
    raise NoDataTypeError(f"opaque bytes that hold {dtype}")


def _array(tid: Any) -> Element:
    base = element_of(tid.get_super())
    if base.text or base.dtype.names:
        raise NoDataTypeError("arrays of strings or compounds as elements")
    extents = tuple(int(extent) for extent in tid.get_array_dims())
    read_as = base.read_as or base.dtype
    return replace(
        base,
        inner=(*extents, *base.inner),
        read_as=read_as,
        memory=h5t.array_create(base.memory or h5t.py_create(read_as), extents),
    )


_MAKERS: dict[int, Callable[[Any], Element]] = {
    h5t.INTEGER: _integer,
    h5t.BITFIELD: _bitfield,
    h5t.FLOAT: _float,
    h5t.STRING: _string,
    h5t.ENUM: _enum,
    h5t.COMPOUND: _compound,
    h5t.OPAQUE: _opaque,
    h5t.ARRAY: _array,
}
if hasattr(h5t, "COMPLEX"):  # from h5py 3.16, whose HDF5 2 is the first to read this class
    _MAKERS[h5t.COMPLEX] = _compound
_IMPOSSIBLE = {
    h5t.REFERENCE: "references to other objects",
    h5t.VLEN: "variable-length sequences",
    h5t.TIME: "the HDF5 time type",
}
