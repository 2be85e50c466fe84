"""Read the attributes of an HDF5 object once, as netCDF4 shows them.

One-element arrays become scalars, strings become ``str``, and netCDF's own bookkeeping is kept
apart. An attribute that cannot be read or represented never costs its variable: it is left out and
reported. Text that is not UTF-8 is read as Latin-1, which keeps every byte (netCDF4 would replace
them). Plain attributes come from the bytes of the object's header, all others through libhdf5.
Objects with equal attributes, in this file or another, share the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import h5py
import numpy as np
from h5py import h5, h5a, h5g, h5s, h5t

from icevirt.model.attributes import FILL, MISSING, Attributes
from icevirt_scanners.encoding import with_fit_fill
from icevirt_scanners.hdf5.datatypes import element_of
from icevirt_scanners.hdf5.raw.attributes import (
    UNREAD,
    FixedStrings,
    References,
    StoredAttributes,
    Value,
    list_attributes,
)
from icevirt_scanners.hdf5.raw.header import ObjectHeader
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError

# bookkeeping that netCDF-C hides wherever it stands: read where the dimensions need it, never shown
_NEEDED = frozenset({"CLASS", "NAME", "_Netcdf4Dimid", "_Netcdf4Coordinates"})
HIDDEN = frozenset({*_NEEDED, "DIMENSION_LIST", *(name.decode() for name in UNREAD)})
"""Attributes that no description of a file shows."""

_NATIVE = {
    (h5t.INTEGER, size, sign): (np.dtype(f"{kind}{size}"), getattr(h5t, f"NATIVE_{c}INT{8 * size}"))
    for size in (1, 2, 4, 8)
    for sign, kind, c in ((h5t.SGN_2, "i", ""), (h5t.SGN_NONE, "u", "U"))
} | {
    (h5t.FLOAT, 4, None): (np.dtype("f4"), h5t.NATIVE_FLOAT),
    (h5t.FLOAT, 8, None): (np.dtype("f8"), h5t.NATIVE_DOUBLE),
}
_SCALES = b"DIMENSION_LIST"
_REMEMBERED = 16 * 1024  # bytes of attributes that are
_DOUBLES = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}
_SHOWN_AS = {  # by kind of dtype; readers other than icevirt see these
    "c": "other readers see a complex number as text",
    "m": "other readers see a timedelta as a count of {dtype}",
    "M": "other readers see a time as a count of {dtype}",
    "V": "other readers see opaque bytes as base64",
}
_COMPOUND = "a compound is shown as a list without names"
_VARIABLE_TEXT = {
    h5t.CSET_ASCII: h5py.string_dtype("ascii"),
    h5t.CSET_UTF8: h5py.string_dtype("utf-8"),
}


@dataclass(slots=True)
class FoundAttributes:
    """The attributes of one object."""

    shown: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, Any] = field(default_factory=dict)
    has_dimension_list: bool = False
    scales: tuple[tuple[int, ...], ...] | None = (
        None  # addresses in that list, where its bytes say them
    )
    lost: dict[str, str] = field(default_factory=dict)  # name -> why it is not represented
    latin: list[str] = field(default_factory=list)  # names of those that were not UTF-8
    changed: dict[str, str] = field(default_factory=dict)  # name -> what JSON cannot say of it
    _json: Attributes | None = None
    # by dtype: attributes with a fit fill value, and the warnings (code, message) about it
    _fitted: dict[str, tuple[Attributes, list[tuple[str, str]]]] = field(default_factory=dict)

    @property
    def json(self) -> Attributes:
        """What is shown, as JSON."""
        if self._json is None:
            self._json = Attributes.of(self.shown)
        return self._json

    def fit(self, dtype: np.dtype[Any], tell: Callable[[str, str], None]) -> Attributes:
        """Return what is shown as JSON, with a ``_FillValue`` that fits: see `with_fit_fill`."""
        if dtype.str not in self._fitted:
            warnings: list[tuple[str, str]] = []
            made = with_fit_fill(self.shown, dtype, lambda *warning: warnings.append(warning))
            self._fitted[dtype.str] = made, warnings
        attributes, warnings = self._fitted[dtype.str]
        for code, message in warnings:
            tell(code, message)
        return attributes


class NotRepresentableError(Exception):
    """An attribute has no JSON form; the message says why."""


def attributes_of(opened: Callable[[], Any], header: ObjectHeader | None = None) -> FoundAttributes:
    """Read the attributes of a group or dataset, in creation order where the file keeps one.

    ``opened`` gives its id, ``header`` are the messages of its header, where they could be read.
    The result is shared; do not change it.
    """
    try:
        plain = list_attributes(header) if header is not None else None
    except NotUnderstoodError:
        plain = None
    if plain is None:
        return _show(dict.fromkeys(_names(opened())), opened)
    known = _show_known(plain) if plain.nbytes <= _REMEMBERED else None
    return _show(plain.values, opened) if known is None else known


def _show(plain: Mapping[bytes, Value | None], opened: Callable[[], Any]) -> FoundAttributes:
    """Show attributes by name, and read those whose value is not known."""
    found = FoundAttributes()
    for raw, known in plain.items():
        name = raw.decode("utf-8", "backslashreplace")
        if name == "DIMENSION_LIST":
            found.has_dimension_list = True
            found.scales = known.addresses if isinstance(known, References) else None
        if name in HIDDEN and name not in _NEEDED:
            continue
        if name in found.shown:  # one of them is not UTF-8
            found.lost[name] = f"another attribute has this name; this one is {raw!r}"
            continue
        try:
            match known:
                case None | References():  # libhdf5 says what is wrong with these
                    value = _read(opened(), raw, name, found)
                case FixedStrings(texts):
                    value = _text(texts, name, found)
                case _:
                    value = known.reshape(-1)[0] if known.size == 1 else known
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the variable stays
            found.lost[name] = str(error) or type(error).__name__
            continue
        (found.hidden if name in HIDDEN else found.shown)[name] = value
    return found


@lru_cache(512)
def _show_known(plain: StoredAttributes) -> FoundAttributes | None:
    """Show attributes that the header says, None where libhdf5 is to read any of them."""
    for name, value in plain.values.items():
        wanted = name not in UNREAD and name != _SCALES
        if wanted and (value is None or isinstance(value, References)):
            return None
    return _show(plain.values, lambda: None)  # all values are known


def _names(oid: Any) -> list[bytes]:
    names: list[bytes] = []
    try:
        h5a.iterate(oid, names.append, index_type=h5.INDEX_CRT_ORDER)
    except (RuntimeError, ValueError, KeyError):
        names.clear()
        h5a.iterate(oid, names.append, index_type=h5.INDEX_NAME)
    return names


def _read(oid: Any, raw: bytes, name: str, found: FoundAttributes) -> Any:
    attribute = h5a.open(oid, raw)
    kind = attribute.get_type()
    family = kind.get_class()
    space = attribute.get_space()
    sign = kind.get_sign() if family == h5t.INTEGER else None
    plain = _NATIVE.get((family, kind.get_size(), sign))
    if space.get_simple_extent_type() == h5s.NULL:
        return "" if family == h5t.STRING else np.zeros(0, plain[0] if plain else np.int32)
    if family == h5t.STRING:
        return _text(_texts(attribute, kind, space.shape), name, found)
    if plain is None:
        return _represent(_other(oid, attribute, kind), name, found)
    values = np.empty(space.shape, plain[0])
    attribute.read(values, plain[1])
    return values.reshape(-1)[0] if values.size == 1 else values


def _texts(attribute: Any, kind: Any, shape: tuple[int, ...]) -> list[bytes]:
    if kind.is_variable_str():
        variable = np.empty(shape, _VARIABLE_TEXT[kind.get_cset()])
        attribute.read(variable)
        return [text or b"" for text in variable.reshape(-1).tolist()]
    fixed = np.empty(shape, f"S{kind.get_size()}")
    attribute.read(fixed, kind)
    texts = fixed.reshape(-1).tolist()
    if kind.get_strpad() == h5t.STR_NULLTERM:
        return [text.split(b"\0", 1)[0] for text in texts]
    return [text.replace(b"\0", b"") for text in texts]


def _text(texts: Iterable[bytes], name: str, found: FoundAttributes) -> str | list[str]:
    decoded = [_decode(text, name, found) for text in texts]
    return decoded[0] if len(decoded) == 1 else decoded


def _decode(text: bytes, name: str, found: FoundAttributes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        found.latin.append(name)
        return text.decode("latin-1")


def _other(oid: Any, attribute: Any, kind: Any) -> Any:
    """Read an attribute of a rarer type as h5py does."""
    family = kind.get_class()
    if family in (h5t.REFERENCE, h5t.TIME):
        raise NotRepresentableError("a reference" if family == h5t.REFERENCE else "a time type")
    if family == h5t.OPAQUE:  # h5py cannot read what others tagged
        element = element_of(kind)
        opaque = np.empty(attribute.shape, element.read_as or element.dtype)
        attribute.read(opaque, kind)
        return opaque
    owner = h5py.Group(oid) if isinstance(oid, h5g.GroupID) else h5py.Dataset(oid)
    return np.asarray(owner.attrs[attribute.name])


def _represent(value: np.ndarray[Any, Any], name: str, found: FoundAttributes) -> Any:
    """Return a value without what h5py hangs on its dtype; say what JSON cannot."""
    dtype = value.dtype
    if dtype.kind == "O" or h5py.check_ref_dtype(dtype) is not None:
        return _list(value)
    if dtype.kind == "S":  # h5py tags text as opaque where no other type can say it
        return _text(value.reshape(-1).tolist(), name, found)
    if dtype.names is not None:
        found.changed[name] = _COMPOUND
    elif dtype.kind == "c" and name in (FILL, MISSING):
        pass  # which have a spelling for other readers, or a plan says that they have none
    elif dtype.kind in _SHOWN_AS:
        unit = dtype.str[1:]
        found.changed[name] = _SHOWN_AS[dtype.kind].format(dtype=unit)
    double = _DOUBLES.get(dtype.kind, dtype)
    if dtype.itemsize > double.itemsize:
        found.changed[name] = f"extended precision became {double}"
        value = value.astype(double)
    elif dtype.names is None:
        value = value.astype(np.dtype(dtype.str).newbyteorder("="))
    return value.reshape(-1)[0] if value.size == 1 else value


def _list(value: np.ndarray[Any, Any]) -> Any:
    """Return variable-length numbers as lists; references among them are not representable."""
    items = [np.asarray(item) for item in value.reshape(-1)]
    if any(item.dtype.kind == "O" for item in items):
        raise NotRepresentableError("it holds references")
    return items[0] if len(items) == 1 else [item.tolist() for item in items]
