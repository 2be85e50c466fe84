"""Write the metadata of a session's nodes as zarr v2, which kerchunk references start with."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from icevirt.access.xarray.attributes import FILL, shown
from icevirt.errors import UnsupportedError
from icevirt.model.json import JSON
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.model.zarr_v2 import NoEquivalentError, decoding_of, document_v2

_NOTHING = (0, 0.0, False, "", [0.0, 0.0])  # fill values that v2 means where it says none


def group_documents(node: Node) -> dict[str, dict[str, Any]]:
    """Return ``.zgroup`` and ``.zattrs`` of a group."""
    attributes = {name: _jsonable(value) for name, value in shown(document_of(node)).items()}
    return {".zgroup": {"zarr_format": 2}, ".zattrs": attributes}


def array_documents(node: ArrayNode, *, complete: bool) -> dict[str, dict[str, Any]]:
    """Return ``.zarray`` and ``.zattrs`` of an array.

    Readers of v2 take the fill value of an array for its missing value, so it is ``_FillValue``
    where there is one, and left open where there is none.

    Args:
        node: The array.
        complete: Whether all its chunks are there.

    Raises:
        UnsupportedError: v2 cannot say it.
    """
    document = document_of(node)
    try:
        plain = document_v2(document, None)
        dtype = decoding_of(plain).dtype
        attributes = shown(document, dtype)
        zarray = {**plain, "fill_value": _fill(document, attributes, dtype, complete=complete)}
    except NoEquivalentError as error:
        raise UnsupportedError(
            f"kerchunk's references use zarr v2, which cannot express this array: {error}",
            do="Export other arrays.",
            path=node.path,
        ) from error
    held = {name: _jsonable(value) for name, value in attributes.items()}
    names = document.get("dimension_names") or []
    if len(names) == len(node.shape) and all(names):
        held["_ARRAY_DIMENSIONS"] = names
    return {".zarray": zarray, ".zattrs": held}


def _fill(
    document: dict[str, Any], attributes: dict[str, Any], dtype: np.dtype[Any], *, complete: bool
) -> JSON:
    """Return the fill value for ``.zarray``, and take ``_FillValue`` out of the attributes."""
    own: JSON = document["fill_value"]
    if dtype.kind in "iuf" and isinstance(attributes.get(FILL), int | float | np.number):
        missing = _spelt(dtype.type(attributes.pop(FILL)))
        if not complete and missing != own:
            raise NoEquivalentError("missing chunks that are not read as _FillValue")
        return missing
    if not complete and own not in _NOTHING and _holds(own):
        raise NoEquivalentError("missing chunks of other values than 0, without a _FillValue")
    return None


def _holds(fill: JSON) -> bool:
    """Say whether a fill value of bytes, which is base64, holds anything but zeros."""
    return not isinstance(fill, str) or bool(fill.strip("A="))


def _spelt(value: Any) -> JSON:
    number = value.item()
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return number  # type: ignore[no-any-return]


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def dumped(document: dict[str, Any]) -> str:
    """Write a metadata document; zarr v2 has bare NaN in attributes."""
    return json.dumps(document, allow_nan=True, ensure_ascii=False)
