"""Check the strings in a catalog's tables; each distinct one is checked once.

Plans rely on these strings having the form that a scan writes. Any other form is found here, where
the part that holds it is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from icevirt.archive.schema import ArraySchema, ScannedGroup
from icevirt.connect.urls import is_url
from icevirt.model import paths
from icevirt.model.attributes import Attributes, has_dtype

_MOST = 1 << 62  # elements along a dimension, so that sums of offsets are numbers of 64 bits
_LABELS = "iufbSUV"


def texts(value: Any) -> list[str]:
    """Return a list of texts. Raises ``TypeError``."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"not a list of strings: {_text_of(value)}")
    return value


def places_of(value: Any) -> list[str]:
    """Return URLs of directories. Raises ``TypeError`` or ``ValueError``."""
    found = texts(value)
    if wrong := [each for each in found if not is_url(each) or not each.endswith("/")]:
        raise ValueError(f"not the URL of a directory: {_text_of(wrong[0])}")
    return found


def check_path(text: str | None) -> None:
    """Raise ``ValueError`` for what is no absolute path of a node."""
    if text is None or paths.canonical(text) != text:
        raise ValueError(f"not the path of a variable: {_text_of(text)}")


def check_shape(text: str | None) -> None:
    """Raise ``ValueError`` for what is no list of lengths."""
    lengths = json.loads(text or "")
    if not isinstance(lengths, list) or not all(_is_count(each) for each in lengths):
        raise ValueError(f"not a shape: {_text_of(text)}")


def check_schema(text: str | None) -> None:
    """Raise ``ValueError`` or ``TypeError`` for what `ArraySchema.dumps` never says."""
    schema = ArraySchema.loads(text or "")
    names, edges = schema.dimension_names, schema.chunk_shape
    if not all(name is None or isinstance(name, str) for name in names):
        raise TypeError("dimension names must be strings")
    if edges is not None and (len(edges) != len(names) or not all(map(_is_count, edges))):
        raise ValueError(f"not the shape of a chunk: {_text_of(edges)}")
    if not all(isinstance(each, str | Mapping) for each in (schema.data_type, *schema.codecs)):
        raise TypeError("data type and codecs must be strings or objects")
    held, placed_by = schema.attributes, {} if schema.placed_by is None else schema.placed_by
    if not all(isinstance(each, dict) for each in (held.values, held.dtypes, placed_by)):
        raise TypeError("attributes must be objects")
    if not all(has_dtype(np.dtype(each)) for each in held.dtypes.values()):
        raise TypeError("an attribute has an unknown dtype")


def check_labels_dtype(text: str | None) -> None:
    """Raise ``TypeError`` for the type of no values that can be kept."""
    if text and np.dtype(text).kind not in _LABELS:
        raise TypeError(f"not a valid data type: {_text_of(text)}")


def check_alike(shape: str | None, schema: str | None) -> None:
    """Raise ``ValueError`` where a shape has another number of axes than its schema."""
    if len(json.loads(shape or "")) != len(ArraySchema.loads(schema or "").dimension_names):
        raise ValueError(f"a shape of other dimensions: {_text_of(shape)}")


CHECKS: Mapping[str, Callable[[str | None], None]] = {
    "path": check_path,
    "shape": check_shape,
    "schema": check_schema,
    "labels_dtype": check_labels_dtype,
}


def finding_of(value: Any) -> tuple[str, str]:
    """Return path and message of a finding. Raises ``TypeError``, or ``KeyError``."""
    path, message = texts([value["path"], value["message"]])
    return path, message


def group_of(value: Any) -> ScannedGroup:
    """Return a group. Raises ``TypeError``, ``ValueError`` or ``KeyError``."""
    path, values, dtypes = value["path"], value["values"], value["dtypes"]
    if paths.canonical(path) != path or not all(isinstance(e, dict) for e in (values, dtypes)):
        raise ValueError(f"not a group: {_text_of(path)}")
    if not all(has_dtype(np.dtype(each)) for each in dtypes.values()):
        raise TypeError("an attribute has an unknown dtype")
    return ScannedGroup(path=path, attributes=Attributes(values=values, dtypes=dtypes))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _text_of(value: Any) -> str:
    return repr(value)[:80]
