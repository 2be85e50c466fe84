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

Names that an enumeration gives to integers travel among the replaced attributes: the engine shows
them where xarray keeps them for netCDF, in ``encoding["dtype"].metadata``, and other readers see
CF's ``flag_values`` and ``flag_meanings``. As text in ``missing_value`` NaN, infinities and complex
numbers are worse than nothing: readers mask no value by them, not even by the plain numbers beside
them, and cannot append. So other readers see the plain numbers only, and ``_FillValue``, which has
a spelling for every number, takes the place of another one where it is free. NaN needs no mark.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.json import JSON

EXTENSION = "icevirt"
FILL = "_FillValue"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_dtypes(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtypes that a zarr.json records for attributes.

    Anybody may have written it: a field of another kind counts as no record.
    """
    pairs = _field(document, "attribute_dtypes", dict).items()
    return {name: dtype for name, dtype in pairs if isinstance(dtype, str)}


def read_replacements(document: Mapping[str, Any]) -> dict[str, tuple[JSON, JSON]]:
    """Return what a zarr.json records as written differently for other readers."""
    return {
        name: (pair[0], pair[1])
        for name, pair in _field(document, "replaced_attributes", dict).items()
        if isinstance(pair, list | tuple) and len(pair) == 2
    }


def read_order(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the places of variables that a group's zarr.json records; names of others lack."""
    names = _field(document, "variables", list)
    return {name: at for at, name in enumerate(names) if isinstance(name, str)}


def _field[T: (dict[str, Any], list[Any])](
    document: Mapping[str, Any], name: str, kind: type[T]
) -> T:
    extension = document.get(EXTENSION)
    found = extension.get(name) if isinstance(extension, Mapping) else None
    return found if isinstance(found, kind) else kind()


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
        name: _restore(value, np.dtype(dtypes[name])) if name in dtypes else value
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


def _restore(value: Any, dtype: np.dtype[Any]) -> Any:
    if not has_dtype(dtype):
        raise ValueError(f"attributes cannot have the dtype {dtype}")
    is_pair = dtype.kind == "c" and isinstance(value, list) and len(value) == 2
    if is_pair and all(str(part).endswith("=") for part in value):  # a ``_FillValue``, not text
        return np.complex128(complex(*map(_unpack, value))).astype(dtype)
    if dtype.kind in "cmMV":
        found = np.array(_parse(value, dtype.kind), dtype)
        return found if isinstance(value, list) else found[()]
    if isinstance(value, str) and value not in _WORDS:
        return _unpack(value).astype(dtype)
    if isinstance(value, list):
        return np.array([_WORDS.get(v, v) if isinstance(v, str) else v for v in value], dtype)
    return dtype.type(_WORDS.get(value, value) if isinstance(value, str) else value)


def _pack(number: float) -> str:
    """Return a number as xarray spells those of a ``_FillValue``."""
    return base64.standard_b64encode(np.array(number, "<f8").tobytes()).decode()


def _unpack(text: str) -> np.float64:
    return np.frombuffer(base64.standard_b64decode(text), "<f8")[0]  # type: ignore[no-any-return]


def _parse(value: Any, kind: str) -> Any:
    """Return what `_numbers` made of complex numbers, times or opaque bytes as numpy takes it."""
    if isinstance(value, list):
        return [_parse(item, kind) for item in value]
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
        return _pack(number) if is_real else [_pack(number.real), _pack(number.imag)]
    if array.dtype.kind in "cV":
        return _texts(array.tolist())
    return _strict(array.tolist())


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
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case _:
            return str(value)


def _strict(number: Any) -> JSON:
    if isinstance(number, list):
        return [_strict(item) for item in number]
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return number  # type: ignore[no-any-return]


TWIN_OF = "icevirt_twin_of"
"""Attribute of a twin: the name of the variable that it copies, which lies beside it."""

COARSENED_FROM = "icevirt_coarsened_from"
"""Attribute of a coarser copy: the path of the variable, from the group of the copy."""

TWIN_MARKS = "icevirt_twins"
"""Key of the metadata of a snapshot: a digest of each twin that is in step, by its path."""

ENUMERATION = "/enumeration"
"""No name of an attribute of netCDF, so that none is meant by it."""

FLAGS = ("flag_values", "flag_meanings", "flag_masks")


def with_enumeration(
    attributes: Attributes, named: Mapping[str, JSON] | None, dtype: np.dtype[Any]
) -> Attributes:
    """Return attributes that say what the numbers of a variable are called.

    Args:
        attributes: Of the variable.
        named: ``{"enum": {name: number}, "enum_name": name of the type}``, as xarray has it; of a
            compound ``{"fields": {field: ...}}``; None where numbers are numbers.
        dtype: Of the numbers.
    """
    if named is None:
        return attributes
    shown, members = Attributes(), named.get("enum")
    if (
        isinstance(members, Mapping)
        and attributes.values.keys().isdisjoint(FLAGS)
        and all(len(name.split()) == 1 for name in members)
    ):  # as CF has them
        rising = sorted(members.items(), key=lambda member: member[1])  # type: ignore[arg-type,return-value]
        numbers = np.array([number for _, number in rising], dtype)
        names = " ".join(name for name, _ in rising)
        shown = Attributes.of({"flag_values": numbers, "flag_meanings": names})
    pairs: dict[str, tuple[JSON, JSON]] = {ENUMERATION: (named, None)}
    pairs |= {name: (None, value) for name, value in shown.values.items()}
    return replace(attributes | shown, replaced={**attributes.replaced, **pairs})


def members_of(attributes: Attributes) -> JSON:
    """Return what numbers are called, equal for equal meanings; None where they have no names."""
    named, _ = attributes.replaced.get(ENUMERATION, (None, None))
    if not isinstance(named, Mapping):
        return None
    return {k: v for k, v in named.items() if k != "enum_name"}


def dtype_metadata(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what xarray's backends of netCDF keep with the dtype of an array's values."""
    named, _ = read_replacements(document).get(ENUMERATION, (None, None))
    members = named.get("enum") if isinstance(named, Mapping) else None
    return dict(named) if isinstance(named, Mapping) and isinstance(members, Mapping) else None


def is_derived(attributes: Attributes, name: str) -> bool:
    """Say whether an attribute is not the file's, but shows the members to other readers."""
    if name not in FLAGS or ENUMERATION not in attributes.replaced:
        return False
    was, _ = attributes.replaced.get(name, ("", None))
    return was is None


MISSING = "missing_value"


def readable(attributes: Attributes, data_type: JSON) -> Attributes:
    """Return the attributes of an array as other readers see them; the engine undoes it.

    Args:
        attributes: As the file has them.
        data_type: Of the array, as zarr spells it.
    """
    found = _Marks.of(attributes, data_type)
    if found is None:
        return attributes
    values = {name: value for name, value in attributes.values.items() if name != MISSING}
    dtypes = dict(attributes.dtypes)
    if found.plain.size:
        listed = found.plain.tolist()
        values[MISSING] = listed if len(listed) > 1 else listed[0]
    if found.fill is not None:
        fill = Attributes.of({FILL: found.fill})
        values[FILL], dtypes[FILL] = fill.values[FILL], fill.dtypes[FILL]
    was = attributes.values
    pairs = {name: (was.get(name), values.get(name)) for name in (FILL, MISSING)}
    return Attributes(values=values, dtypes=dtypes, replaced={**attributes.replaced, **pairs})


def is_unseen(attributes: Attributes, data_type: JSON) -> bool:
    """Say whether values mean "missing" for the engine which other readers cannot be told."""
    found = _Marks.of(attributes, data_type)
    return found is not None and bool(found.unseen.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """The numbers of a ``missing_value``."""

    plain: NDArray[Any]  # JSON has them
    fill: np.generic | None  # what becomes the ``_FillValue``
    unseen: NDArray[Any]  # neither, and values of the array can be one of them

    @classmethod
    def of(cls, attributes: Attributes, data_type: JSON) -> _Marks | None:
        """Divide the numbers; None where JSON has all of them."""
        dtype, value = attributes.dtypes.get(MISSING, ""), attributes.values.get(MISSING)
        if value is None or isinstance(value, int | float) or dtype[:1] not in ("f", "c"):
            return None
        given = restore(attributes.only(MISSING).values, attributes.dtypes)[MISSING]
        numbers = np.asarray(given).reshape(-1)
        is_plain = np.isfinite(numbers) & (numbers.imag == 0)
        if dtype[:1] == "f" and is_plain.all():
            return None
        odd = _possible(numbers[~is_plain], data_type)
        made = cls(plain=numbers.real[is_plain], fill=None, unseen=odd)
        if FILL in attributes.values:
            if FILL not in attributes.dtypes:  # written by others
                return made
            fill = restore(attributes.only(FILL).values, attributes.dtypes)[FILL]
            return replace(made, unseen=odd[odd != fill])
        return replace(made, fill=odd[0], unseen=odd[:0]) if odd.size == 1 else made


def _possible(numbers: NDArray[Any], data_type: JSON) -> NDArray[Any]:
    """Return the different numbers that values of a type can equal, in that type."""
    kind = data_type if isinstance(data_type, str) else ""
    if not kind.startswith(("float", "complex")):
        return numbers[:0]
    with np.errstate(all="ignore"):
        odd = numbers[~np.isnan(numbers)]
        held = (odd if kind.startswith("complex") else odd.real).astype(kind)
        return np.unique(held[held == odd])
