"""Convert arrays of kerchunk's references, with v2 or v3 metadata, to scanned arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.model.names import dimension_name
from icevirt.model.zarr_v2 import NoEquivalentError, decoding_of, document_v2
from icevirt_scanners.cf import FILL, with_fit_fill
from icevirt_scanners.context import ScanContext
from icevirt_scanners.given import GivenArray, damaged
from icevirt_scanners.kerchunk.hierarchy import Described

_DIMENSIONS = "_ARRAY_DIMENSIONS"  # xarray's attribute in v2
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def array_of(path: str, node: Described, context: ScanContext) -> GivenArray:
    """Read the metadata of an array.

    Raises:
        ScanError: It is damaged.
        UnsupportedError: zarr v3 has no words for it.
    """
    url = context.source.file.url
    if packing := sorted({"scale_factor", "add_offset"} & set(node.attributes)):
        context.warn(
            path,
            "attribute-types-lost",
            f"references lack the types of {' and '.join(packing)}; if the file has float32, "
            "decoded values are float64 and differ after the seventh digit",
        )
    try:
        return _of_v3(path, node) if node.v3 else _of_v2(path, node, context)
    except NoEquivalentError as error:
        raise UnsupportedError(
            f"an array that zarr cannot read: {error}",
            do="Leave it out with drop_variables.",
            file=url,
            variable=path,
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise damaged(url, variable=path, cause=f"metadata: {cause}") from error


def _of_v2(path: str, node: Described, context: ScanContext) -> GivenArray:
    document = node.array or {}
    if document.get("zarr_format", 2) != 2:
        raise NoEquivalentError(f"zarr_format {document['zarr_format']!r}")
    decoding = decoding_of(document)
    attributes = {k: v for k, v in node.attributes.items() if k != _DIMENSIONS}
    if decoding.has_fill and decoding.dtype.kind in "iuf":
        # readers of v2 take the fill value of an array for its missing value
        attributes[FILL] = decoding.fill_value
    shape = _lengths(document["shape"])
    return GivenArray(
        scanned=ScannedArray(
            path=path,
            dimension_names=_names(node.attributes.get(_DIMENSIONS), shape),
            shape=shape,
            chunk_shape=_edges(document["chunks"], shape),
            data_type=decoding.data_type,
            codecs=decoding.codecs,
            fill_value=decoding.fill_value,
            attributes=_attributes(path, attributes, decoding.dtype, context),
            references=ChunkTable.empty(len(shape)),
        ),
        dtype=decoding.dtype,
    )


def _of_v3(path: str, node: Described) -> GivenArray:
    document = node.array or {}
    if document["chunk_grid"]["name"] != "regular":
        raise NoEquivalentError(f"the chunk grid {document['chunk_grid']['name']!r}")
    dtype = decoding_of(document_v2(document, None)).dtype
    return regular_array(path, document, dtype, node.attributes)


def regular_array(
    path: str, document: Mapping[str, Any], dtype: np.dtype[Any], attributes: Mapping[str, Any]
) -> GivenArray:
    """Return the array that a zarr.json with a regular chunk grid describes.

    Raises:
        ValueError: Lengths, chunks and dimensions do not fit together.
    """
    shape = _lengths(document["shape"])
    return GivenArray(
        scanned=ScannedArray(
            path=path,
            dimension_names=_names(document.get("dimension_names"), shape),
            shape=shape,
            chunk_shape=_edges(document["chunk_grid"]["configuration"]["chunk_shape"], shape),
            data_type=document["data_type"],
            codecs=tuple(document["codecs"]),
            fill_value=document["fill_value"],
            attributes=Attributes.of(attributes),
            references=ChunkTable.empty(len(shape)),
        ),
        dtype=dtype,
    )


def _lengths(given: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(length, int) and 0 <= length < 1 << 62 for length in given):
        raise ValueError(f"lengths {list(given)}")
    return tuple(given)


def _names(given: Any, shape: Sequence[int]) -> tuple[str | None, ...]:
    names = [None] * len(shape) if given is None else list(given)
    if len(names) != len(shape):
        raise ValueError(f"{len(names)} dimension names, {len(shape)} dimensions")
    return tuple(dimension_name(name) for name in names)


def _edges(given: Sequence[Any], shape: Sequence[int]) -> tuple[int, ...]:
    edges = tuple(max(edge, 1) for edge in _lengths(given))
    if len(edges) != len(shape):
        raise ValueError(f"chunks {list(given)} of shape {list(shape)}")
    return edges


def _attributes(
    path: str, given: Mapping[str, Any], dtype: np.dtype[Any], context: ScanContext
) -> Attributes:
    shown = dict(given)
    fill = shown.get(FILL)
    if dtype.kind in "iuf" and isinstance(fill, int | float | str):
        shown[FILL] = _number(fill, dtype)
    return with_fit_fill(shown, dtype, lambda code, text: context.warn(path, code, text))


def _number(value: JSON, dtype: np.dtype[Any]) -> Any:
    """Give a number the dtype of its variable, where that is exactly possible."""
    try:
        number = np.float64(_WORDS[value]) if isinstance(value, str) else np.asarray(value)[()]
    except KeyError:
        return value
    with np.errstate(all="ignore"):
        cast = number.astype(dtype)
    same = cast == number or (cast != cast and number != number)  # noqa: PLR0124 - both NaN
    # a double that is no value of a float32 variable is one that was printed with fewer digits
    return cast if same or (dtype.kind == "f" and number.dtype.kind == "f") else number
