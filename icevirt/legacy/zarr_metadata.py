"""Turn the array metadata of old snapshots into the zarr.json that zarr reads today."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from icevirt.legacy.encoding import ARRAY, NAMED, choice, fields, number, sequence, text
from icevirt.model.json import JSON
from icevirt.wire.flatbuffer.schema import Damage
from icevirt.wire.metadata import as_json

_NUMCODECS = "https://zarr.dev/numcodecs/"  # of names that numcodecs itself uses no more
_DATA_TYPES = {"bytes": "variable_length_bytes"}
_WHOLE = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_FLOATS = ("Float16", "Float32", "Float64")
_COMPLEX = ("Complex64", "Complex128")
_MOST = (1 << 63) - 1


def group(attributes: JSON) -> bytes:
    """Return the zarr.json of a group."""
    return _dump(attributes, {"zarr_format": 3, "node_type": "group"})


def array(value: Any, attributes: JSON) -> bytes:
    """Return the zarr.json of an array. Raises ``Damage``."""
    found = fields(value, ARRAY, "the metadata of an array")
    shape, chunks = (
        [number(each, name, _MOST) for each in sequence(found[name], name)]
        for name in ("shape", "chunk_shape")
    )
    if len(shape) != len(chunks) or 0 in chunks:
        raise Damage("the chunks of an array do not fit its shape", 0)
    if found["chunk_key_encoding"] not in ("Slash", "Dot", "Default"):
        raise Damage("the encoding of chunk keys is unknown", 0)
    document: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": _data_type(found["data_type"]),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        # whatever was written here, clients ever since have known keys of this form only
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": _fill_value(found["fill_value"]),
        "codecs": [_codec(each) for each in sequence(found["codecs"], "codecs")],
    }
    if found["storage_transformers"]:
        listed = sequence(found["storage_transformers"], "storage_transformers")
        document["storage_transformers"] = [_codec(each) for each in listed]
    if found["dimension_names"] is not None:
        names = sequence(found["dimension_names"], "dimension_names")
        document["dimension_names"] = [
            name if name is None else text(name, "a dimension's name") for name in names
        ]
    return _dump(attributes, document)


def _dump(attributes: JSON, document: dict[str, Any]) -> bytes:
    """Return a document; attributes stand first, as those writers had them."""
    if attributes is not None:
        document = {"attributes": attributes, **document}
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _data_type(value: Any) -> Any:
    match value:
        case str():
            return _DATA_TYPES.get(value, value)
        case {"rawbits": int(bits)} if len(value) == 1 and bits > 0 and bits % 8 == 0:
            return {"name": "raw_bytes", "configuration": {"length_bytes": bits // 8}}
        case _:
            raise Damage("the data type of an array is unknown", 0)


def _fill_value(value: Any) -> Any:
    kind, inner = choice(value, "a fill value")
    match inner:
        case bool() if kind == "Bool":
            return inner
        case int() if kind in _WHOLE and type(inner) is int:
            return inner
        case int() | float() if kind in _FLOATS:
            return _float(inner)
        case (real, imaginary) if kind in _COMPLEX:
            return [_float(real), _float(imaginary)]
        case str() if kind == "String":
            return inner
        case bytes() | tuple() | list() if kind in ("Bytes", "RawBits"):
            raw = bytes(number(each, "a byte of a fill value", 255) for each in inner)
            return base64.b64encode(raw).decode()
        case _:
            raise Damage(f"a fill value of the kind {kind[:80]!r} is not valid", 0)


def _float(value: Any) -> float | str:
    """Return a number as zarr.json spells it."""
    if type(value) not in (int, float):
        raise Damage("a fill value is no number", 0)
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _codec(value: Any) -> dict[str, JSON]:
    found = fields(value, NAMED, "a codec")
    name = text(found["name"], "the name of a codec")
    if name.startswith(_NUMCODECS):
        name = f"numcodecs.{name.removeprefix(_NUMCODECS)}"
    if found["configuration"] is None:
        return {"name": name}
    return {"name": name, "configuration": as_json(found["configuration"])}
