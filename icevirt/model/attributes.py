"""Keep the dtypes that JSON loses with the attributes of a group or array.

JSON turns an ``f4`` ``scale_factor`` into a double, and that changes every decoded value of its
variable. So zarr.json carries the dtypes in an extension field that every reader may ignore
(``{"icevirt": {"must_understand": false, "attribute_dtypes": {...}}}``). The icevirt engine
restores them, and undoes what was written differently for other readers (``replaced_attributes``:
``{name: [in the file, shown]}``, null where there is none). Times are counts of their unit, complex
numbers text, and opaque bytes base64, each with its dtype. NaN and infinities are written as zarr
spells them in fill values, because bare ``NaN`` is not JSON. Float ``_FillValue`` is base64 of its
little-endian bytes, as xarray expects; a complex one is two of these.

A group says there, too, in which order its variables stand in the files (``variables``), because
a snapshot sorts nodes by path. The engine shows them so; it is left out where they are sorted.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from icevirt.model.json import JSON

EXTENSION = "icevirt"
FILL = "_FillValue"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def recorded_dtypes(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtypes that a zarr.json records for attributes.

    Anybody may have written it: a field of another kind counts as no record.
    """
    extension = document.get(EXTENSION)
    found = extension.get("attribute_dtypes") if isinstance(extension, Mapping) else None
    pairs = found.items() if isinstance(found, Mapping) else ()
    return {name: dtype for name, dtype in pairs if isinstance(dtype, str)}


def recorded_replacements(document: Mapping[str, Any]) -> dict[str, tuple[JSON, JSON]]:
    """Return what a zarr.json records as written differently for other readers."""
    extension = document.get(EXTENSION)
    found = extension.get("replaced_attributes") if isinstance(extension, Mapping) else None
    pairs = found.items() if isinstance(found, Mapping) else ()
    return {
        name: (pair[0], pair[1])
        for name, pair in pairs
        if isinstance(pair, list | tuple) and len(pair) == 2
    }


def recorded_order(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the places of variables that a group's zarr.json records; names of others lack."""
    extension = document.get(EXTENSION)
    found = extension.get("variables") if isinstance(extension, Mapping) else None
    names = found if isinstance(found, list) else ()
    return {name: at for at, name in enumerate(names) if isinstance(name, str)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Attribute values as strict JSON, in the order of the file, and dtypes that JSON has not."""

    values: Mapping[str, JSON] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)  # name -> numpy typestr without order
    replaced: Mapping[str, tuple[JSON, JSON]] = field(default_factory=dict)  # (in file, shown)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Attributes:
        """Encode Python and numpy values; numbers keep their dtype, sizes 1 and n their form."""
        values: dict[str, JSON] = {}
        dtypes: dict[str, str] = {}
        for name, value in found.items():
            numbers = _numbers_of(value)
            if numbers is None:
                values[name] = _plain(value)
            else:
                dtypes[name] = numbers.dtype.str[1:]
                values[name] = _numbers(name, numbers)
        return cls(values=values, dtypes=dtypes)

    def extension(self, variables: Sequence[str] = ()) -> dict[str, JSON]:
        """Return the zarr.json fields that carry the dtypes; empty where there are none.

        A group's says the order of its ``variables``, unless they are sorted.
        """
        extra: dict[str, JSON] = {}
        if self.dtypes:
            extra["attribute_dtypes"] = dict(self.dtypes)
        if self.replaced:
            extra["replaced_attributes"] = {k: list(pair) for k, pair in self.replaced.items()}
        if list(variables) != sorted(variables):
            extra["variables"] = list(variables)
        return {EXTENSION: {"must_understand": False, **extra}} if extra else {}

    def only(self, *names: str) -> Attributes:
        """Return the attributes that are named."""
        return Attributes(
            values={k: v for k, v in self.values.items() if k in names},
            dtypes={k: v for k, v in self.dtypes.items() if k in names},
            replaced={k: v for k, v in self.replaced.items() if k in names},
        )

    def without(self, *names: str) -> Attributes:
        """Return the attributes less those named."""
        return self.only(*({*self.values, *self.dtypes, *self.replaced} - {*names}))

    def __or__(self, other: Attributes) -> Attributes:
        """Return both, ``other`` before these where a name is in both."""
        return Attributes(
            values={**self.values, **other.values},
            dtypes={**self.dtypes, **other.dtypes},
            replaced={**self.replaced, **other.replaced},
        )


def restore(values: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Give attribute values back the dtypes they had in the file; others pass through."""
    return {
        name: _restored(value, np.dtype(dtypes[name])) if name in dtypes else value
        for name, value in values.items()
    }


def has_dtype(dtype: np.dtype[Any]) -> bool:
    """Say whether attributes of a dtype keep it: numbers, times and opaque bytes do."""
    return dtype.kind in "iufbcmM" or (dtype.kind == "V" and dtype.names is None)


def _numbers_of(value: Any) -> np.generic | np.ndarray[Any, Any] | None:
    """Return a value whose dtype is kept: that of numpy's, and doubles that are no JSON numbers."""
    if isinstance(value, np.generic | np.ndarray) and has_dtype(value.dtype):
        return value
    if not isinstance(value, float | complex | list | tuple):
        return None
    try:
        made = np.array(value)[()]
    except ValueError:  # lists of different lengths
        return None
    is_odd = made.dtype.kind == "c" or (made.dtype.kind == "f" and not np.isfinite(made).all())
    return made if is_odd else None


def _restored(value: Any, dtype: np.dtype[Any]) -> Any:
    if not has_dtype(dtype):
        raise ValueError(f"attributes cannot have the dtype {dtype}")
    if dtype.kind == "c" and _is_packed(value):
        return np.complex128(complex(*map(_unpacked, value))).astype(dtype)
    if dtype.kind in "cmMV":
        found = np.array(_parsed(value, dtype.kind), dtype)
        return found if isinstance(value, list) else found[()]
    if isinstance(value, str) and value not in _WORDS:
        return _unpacked(value).astype(dtype)
    if isinstance(value, list):
        return np.array([_WORDS.get(v, v) if isinstance(v, str) else v for v in value], dtype)
    return dtype.type(_WORDS.get(value, value) if isinstance(value, str) else value)


def _packed(number: float) -> str:
    """Return a number as xarray spells those of a ``_FillValue``."""
    return base64.standard_b64encode(np.array(number, "<f8").tobytes()).decode()


def _is_packed(value: Any) -> bool:
    """Say whether these are the two parts of a complex ``_FillValue``, not numbers as text."""
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(str(part).endswith("=") for part in value)


def _unpacked(text: str) -> np.float64:
    return np.frombuffer(base64.standard_b64decode(text), "<f8")[0]  # type: ignore[no-any-return]


def _parsed(value: Any, kind: str) -> Any:
    """Return what `_numbers` made of complex numbers, times or opaque bytes as numpy takes it."""
    if isinstance(value, list):
        return [_parsed(item, kind) for item in value]
    if kind == "V":
        return base64.standard_b64decode(value)
    return complex(value) if kind == "c" else int(value)


def _numbers(name: str, value: np.generic | np.ndarray[Any, Any]) -> JSON:
    array = np.asarray(value)
    if array.dtype.kind in "mM":
        return array.astype(np.int64).tolist()  # type: ignore[no-any-return]
    if name == FILL and array.dtype.kind in "fc" and array.size == 1:
        number = array.reshape(-1)[0].item()
        is_real = array.dtype.kind == "f"
        return _packed(number) if is_real else [_packed(number.real), _packed(number.imag)]
    if array.dtype.kind in "cV":
        return _texts(array.tolist())
    listed = array.tolist()
    return [_strict(item) for item in listed] if isinstance(listed, list) else _strict(listed)


def _texts(value: Any) -> JSON:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return base64.standard_b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> JSON:  # noqa: PLR0911 - a case, a line
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case list() | tuple():
            return [_plain(item) for item in value]
        case np.ndarray():
            return _plain(value.tolist())
        case np.generic():
            return _plain(value.item())
        case float():
            return _strict(value)
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


def _strict(number: Any) -> JSON:
    if isinstance(number, list):
        return [_strict(item) for item in number]
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return number  # type: ignore[no-any-return]
