"""Combine the encodings of a variable across eras: the shared entries, and its chunks.

Packing is kept completely or not at all. Writing the dataset with half of it (integers without
their scale) would silently lose values.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xarray import Variable

from icevirt.access.xarray.era_arrays import EraSteps

_PACKING = ("dtype", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
_CODECS = ("fill_value", "filters", "serializer", "compressors")  # made for packed values
_CHUNKS = ("chunks", "preferred_chunks", "original_shape")
_MANY = 100_000  # runs of steps; the chunks of more are not told one by one


def shared(
    parts: Sequence[Variable | None],
    steps: EraSteps | None = None,
    *,
    axis: int = 0,
    dims: Sequence[Hashable] = (),
) -> dict[Any, Any]:
    """Return the encoding of a variable made of parts.

    Args:
        parts: The variable of each era, None where it has none.
        steps: How they are put together; None where they are all the same.
        axis: Along which.
        dims: Its dimensions.
    """
    held = [part for part in parts if part is not None]
    first = held[0].encoding
    kept = {
        name: value
        for name, value in first.items()
        if all(name in each.encoding and equal(each.encoding[name], value) for each in held[1:])
    }
    if any(name in each.encoding and name not in kept for name in _PACKING for each in held):
        kept = {name: value for name, value in kept.items() if name not in (*_PACKING, *_CODECS)}
    if steps is None:
        return kept
    kept = {name: value for name, value in kept.items() if name not in _CHUNKS}
    chunks = _preferred([each.encoding for each in held], dims)
    if chunks:
        along = _along(parts, steps, dims[axis])
        kept["preferred_chunks"] = chunks | ({} if along is None else {dims[axis]: along})
    return kept


def _preferred(
    encodings: Sequence[Mapping[Any, Any]], dims: Sequence[Hashable]
) -> dict[Hashable, Any]:
    """Return the chunks along each dimension, of the era whose chunks are the largest."""
    told = [each["preferred_chunks"] for each in encodings if "preferred_chunks" in each]
    return {
        dim: max((each[dim] for each in told if dim in each), key=_largest)
        for dim in dims
        if any(dim in each for each in told)
    }


def _largest(edge: int | tuple[int, ...]) -> int:
    return edge if isinstance(edge, int) else max(edge)


def _along(
    parts: Sequence[Variable | None], steps: EraSteps, dim: Hashable
) -> int | tuple[int, ...] | None:
    """Return the chunks along the concatenated dimension, cut where another era begins."""
    edges = [
        None if part is None else part.encoding.get("preferred_chunks", {}).get(dim)
        for part in parts
    ]
    known = [edge for edge in edges if edge is not None]
    if not known or len(steps.start) > _MANY or not steps.total:
        return None
    cuts = [
        start + _cuts(known[0] if edges[era] is None else edges[era], inner, length) - inner
        for start, era, inner, length in zip(
            steps.start.tolist(),
            steps.era.tolist(),
            steps.inner.tolist(),
            steps.lengths.tolist(),
            strict=True,
        )
    ]
    found = np.diff(np.concatenate([*cuts, [steps.total]]))
    if (found[:-1] == found[0]).all() and found[-1] <= found[0]:
        return int(found[0])
    return tuple(found.tolist())


def _cuts(edge: int | tuple[int, ...] | None, low: int, length: int) -> NDArray[np.int64]:
    """Return where chunks begin within a run of steps, the run's own beginning included."""
    if edge is None:
        return np.array([low], np.int64)
    high = low + length
    if isinstance(edge, int):
        begins = np.arange(low - low % edge, high, edge)
    else:
        begins = np.cumsum([0, *edge])
        begins = begins[(begins < high) & (np.append(begins[1:], high) > low)]
    return np.maximum(begins, low).astype(np.int64)


def equal(one: Any, other: Any) -> bool:
    """Say whether two attributes, or two settings of an encoding, are the same."""
    if one is None or other is None:
        return one is other
    try:
        if bool(np.array_equal(one, other)):
            return True
        return bool(np.array_equal(one, other, equal_nan=True))
    except (TypeError, ValueError):
        return bool(one is other)
