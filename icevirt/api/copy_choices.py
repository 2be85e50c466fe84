"""Read what a caller of `icevirt.materialize` asks for: new chunks and codecs, or a region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, Extents, chunk_shape, document_of
from icevirt.planning.stored_form import StoredForm, refuse_misfit
from icevirt.repo.session import Session

type Where = Mapping[str, Any]
"""By dimension: a label, text like "2024" for all times in it, or a slice of labels."""


def form_of(
    node: ArrayNode,
    chunks: Mapping[str, int] | None,
    codec: str | None,
    before: StoredForm | None = None,
) -> StoredForm:
    """Return in which chunks and codecs a variable is to be stored.

    Args:
        node: The variable.
        chunks: New lengths of chunks, by dimension.
        codec: The new codec.
        before: The form in which it is stored already.

    Raises:
        InvalidInputError: A name or a length is wrong, or a chunk would be too large.
        UnsupportedError: Values of this type cannot be encoded anew.
    """
    if codec not in (None, "zstd"):
        raise InvalidInputError("unknown codec", do='Pass codec="zstd", or None.', codec=codec)
    before = before or StoredForm()
    if not chunks and codec is None:
        return before
    form = StoredForm(
        chunk_shape=_edges(node, chunks or {}), codec="zstd" if codec else before.codec
    )
    refuse_misfit(form, node.path, document_of(node))
    return form


def _edges(node: ArrayNode, chunks: Mapping[str, int]) -> tuple[int, ...]:
    """Return the lengths of new chunks."""
    edges, names = chunk_shape(node), list(node.dimension_names or ())
    if edges is None:
        raise UnsupportedError(
            "the chunks of this array differ in length, and only regular ones are encoded anew",
            do="Leave out chunks and codec (--chunks, --codec): chunks are copied as they are.",
            variable=node.path,
        )
    wanted = list(edges)
    for name, length in chunks.items():
        if name not in names or isinstance(length, bool) or not isinstance(length, int):
            raise InvalidInputError(
                "this is not a chunk length of a dimension",
                do='Pass chunks={"time": 365} (--chunks time=365), with names of dimensions.',
                variable=node.path,
                dimensions=names,
                found=f"{name}={length}",
            )
        axis = names.index(name)
        wanted[axis] = max(1, node.shape[axis]) if length == -1 else length
    if any(length < 1 for length in wanted):
        raise InvalidInputError("a chunk has no elements", do="Pass 1 or more; -1 means all.")
    return tuple(wanted)


def region_of(
    session: Session, node: ArrayNode, where: Where
) -> tuple[tuple[tuple[int, int], ...], Extents, bool]:
    """Return a region in elements and in chunks, and whether it was extended to whole chunks."""
    whole = tuple((0, length) for length in node.shape)
    every = tuple((0, count) for count in node.num_chunks)
    if not where:
        return whole, every, False
    edges, names = chunk_shape(node), list(node.dimension_names or ())
    unknown = [name for name in where if name not in names]
    if unknown or edges is None:
        raise InvalidInputError(
            "this variable has no such dimension"
            if unknown
            else "regions of arrays whose chunks differ in length are not supported",
            do="Name dimensions of the variable, or leave out where (--where).",
            variable=node.path,
            dimensions=names,
            found=unknown,
        )
    region, box, is_widened = list(whole), list(every), False
    for name, labels in where.items():
        axis = names.index(name)
        low, high = _span(session, node, name, labels)
        first, last = low // edges[axis], -(-high // edges[axis])
        box[axis] = (first, last)
        region[axis] = (first * edges[axis], min(last * edges[axis], node.shape[axis]))
        is_widened |= region[axis] != (low, high)
    return tuple(region), tuple(box), is_widened


def _shown(labels: Any) -> str:
    return f"{labels.start}:{labels.stop}" if isinstance(labels, slice) else str(labels)


def _ends(places: Any, name: str) -> dict[str, str]:
    """Return the first and the last label of a coordinate, as facts."""
    if name not in places.coords or not places.size:
        return {}
    first, last = (str(places[name].values[at]).removesuffix(".000000000") for at in (0, -1))
    return {"begins": first, "ends": last}


def _span(session: Session, node: ArrayNode, name: str, labels: Any) -> tuple[int, int]:
    """Return the first element with one of some labels, and the one after the last."""
    import xarray as xr

    group = paths.parent(node.path)
    storage, access = session.assets.storage, session.credentials
    with xr.open_dataset(
        storage,  # type: ignore[arg-type]  # the engine takes storages
        engine="icevirt",
        group=group,
        snapshot_id=session.snapshot_id,
        authorize_virtual_chunk_access=access,
    ) as dataset:
        length = dataset.sizes[name]
        places = xr.DataArray(np.arange(length), dims=name)
        if name in dataset.coords:
            places = places.assign_coords({name: dataset[name]})
        try:
            kind = dataset[name].dtype.kind if name in dataset.coords else "i"
            found = np.atleast_1d(places.sel({name: _as_numbers(labels, kind)}).values)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise InvalidInputError(
                "the coordinate has no such label",
                do='Pass labels of the coordinate: where={"time": "2024"} (--where time=2024), or a'
                " slice (--where time=2020:2024).",
                dimension=name,
                label=_shown(labels),
                **_ends(places, name),
            ) from error
    if not len(found):
        raise InvalidInputError(
            "no element has one of these labels",
            do="Pass labels between the first and the last of the coordinate.",
            dimension=name,
            label=_shown(labels),
            **_ends(places, name),
        )
    return int(found.min()), int(found.max()) + 1


def _as_numbers(labels: Any, kind: str) -> Any:
    """Return labels of coordinates that are numbers as numbers."""
    if isinstance(labels, slice):
        return slice(_as_numbers(labels.start, kind), _as_numbers(labels.stop, kind))
    if isinstance(labels, str) and kind in "iuf":
        return int(labels) if kind != "f" else float(labels)
    return labels
