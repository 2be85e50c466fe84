"""The facts a snapshot repeats from zarr.json: shape, chunk counts and dimension names.

Metadata is validated with zarr's own classes where it enters (`icevirt.repo`), and only read here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestRef, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFacts:
    """Shape of an array and of its chunk grid."""

    shape: tuple[int, ...]
    num_chunks: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None


def grid_facts(metadata: dict[str, Any]) -> GridFacts:
    """Read the facts out of a zarr v3 array document.

    Raises:
        InvalidInputError: The chunk grid is neither regular nor rectilinear.
    """
    shape = tuple(int(length) for length in metadata["shape"])
    names = metadata.get("dimension_names")
    return GridFacts(
        shape=shape,
        num_chunks=_num_chunks(shape, metadata["chunk_grid"]),
        # an empty name counts as none, as in the official client
        dimension_names=None if names is None else tuple(name or None for name in names),
    )


def chunk_shape(node: ArrayNode) -> tuple[int, ...] | None:
    """Return the edges of the chunks of a regular grid; None where the grid is none."""
    grid = json.loads(node.user_data)["chunk_grid"]
    return tuple(grid["configuration"]["chunk_shape"]) if grid.get("name") == "regular" else None


def node_of(
    path: str, user_data: bytes, node_id: ObjectId8, manifests: Sequence[ManifestRef] = ()
) -> Node:
    """Make the node that a zarr.json document describes.

    Raises:
        InvalidInputError: The document is neither an array's nor a group's.
    """
    metadata = json.loads(user_data)
    match metadata.get("node_type"):
        case "group":
            return GroupNode(id=node_id, path=path, user_data=user_data)
        case "array":
            facts = grid_facts(metadata)
            return ArrayNode(
                id=node_id,
                path=path,
                user_data=user_data,
                shape=facts.shape,
                num_chunks=facts.num_chunks,
                dimension_names=facts.dimension_names,
                manifests=tuple(manifests),
            )
        case other:
            raise InvalidInputError("not a zarr v3 node", path=path, node_type=other)


def _num_chunks(shape: tuple[int, ...], grid: dict[str, Any]) -> tuple[int, ...]:
    configuration = grid.get("configuration", {})
    match grid.get("name"):
        case "regular":
            edges = configuration["chunk_shape"]
            return tuple(_ceil(length, edge) for length, edge in zip(shape, edges, strict=True))
        case "rectilinear":
            return tuple(
                _ceil(length, axis) if isinstance(axis, int) else sum(_run(item) for item in axis)
                for length, axis in zip(shape, configuration["chunk_shapes"], strict=True)
            )
        case other:
            raise InvalidInputError(
                "unknown chunk grid", do="Use the regular or rectilinear grid.", grid=other
            )


def _ceil(length: int, edge: int) -> int:
    return -(-length // edge) if edge else 0


def _run(item: int | list[int]) -> int:
    """Return how many chunks an entry stands for: a size, or a [size, count] pair."""
    return int(item[1]) if isinstance(item, list) else 1
