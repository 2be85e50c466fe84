"""Read the zarr.json of a node, and the facts that a snapshot repeats from it.

zarr's own classes validate what a session stages first (`icevirt.repo`). A snapshot may come from
any writer: only `document_of` reads its metadata, and `using` turns anything else that is wrong
with it into a ``FormatError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from icevirt.errors import FormatError, IcevirtError, InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model.json import loads
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestRef, Node

type Extent = tuple[int, int]
"""The least and the greatest length of chunks along an axis."""


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


def document_of(node: Node) -> dict[str, Any]:
    """Return the zarr.json of a node of a snapshot, in which the parts that we use can be used.

    Raises:
        FormatError: It is no zarr v3 metadata of such a node.
    """
    with using(node):
        document = loads(node.user_data)
        kind = "array" if isinstance(node, ArrayNode) else "group"
        if not isinstance(document, dict) or document.get("node_type") != kind:
            raise ValueError(f"it is not the metadata of a zarr v3 {kind}")
        _need(isinstance(document.get("attributes") or {}, dict), "attributes")
        if isinstance(node, ArrayNode):
            _check_array(node, document)
        return document


@contextmanager
def using(node: Node) -> Iterator[None]:
    """Turn whatever fails at the metadata of a node into a ``FormatError`` that names it."""
    try:
        yield
    except Warning:
        raise
    except InvalidInputError as error:
        raise _unusable(node, str(error)) from error
    except IcevirtError:
        raise
    except Exception as error:
        if type(error).__name__ == _NOT_ENABLED:
            raise FormatError(
                "the chunks of an array differ in length, and zarr does not read these by default",
                do='Call zarr.config.set({"array.rectilinear_chunks": True}), or set the'
                " environment variable ZARR_ARRAY__RECTILINEAR_CHUNKS=True.",
                path=node.path,
            ) from error
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise _unusable(node, reason) from error


def _unusable(node: Node, reason: str) -> FormatError:
    return FormatError(
        "the metadata of a node is not valid",
        do="It is damaged, or other software wrote it. Write the node again with zarr, or read an"
        " earlier snapshot.",
        file="snapshot",
        path=node.path,
        reason=reason[:_LONGEST],
    )


_NOT_ENABLED = "RectilinearChunksDisabledError"  # of zarr 3.4
_LONGEST = 500  # characters of a reason: hostile values are repeated in it


def _check_array(node: ArrayNode, document: dict[str, Any]) -> None:
    shape = document["shape"]
    _need(
        isinstance(shape, list) and all(type(edge) is int and 0 <= edge <= _MOST for edge in shape),
        "shape",
    )
    _need(_is_named(document["data_type"]), "data_type")
    codecs = document["codecs"]
    _need(isinstance(codecs, list) and codecs and all(map(_is_named, codecs)), "codecs")
    grid = document["chunk_grid"]
    _need(isinstance(grid, dict) and isinstance(grid.get("configuration"), dict), "chunk_grid")
    edges = _edges(grid["configuration"])
    _need(all(type(edge) is int and edge > 0 for edge in edges), _EDGES)
    _need("fill_value" in document, "fill_value")
    names = document.get("dimension_names")
    texts = isinstance(names, list) and all(name is None or isinstance(name, str) for name in names)
    _need(names is None or texts, "dimension_names")
    facts = grid_facts(document)
    inner = facts.dimension_names, node.dimension_names
    if any(found is not None and len(found) != len(shape) for found in (*inner, node.shape)):
        raise ValueError("its dimensions differ from those in the snapshot")
    most = _MOST if grid.get("name") == "regular" else _MOST_LISTED
    _need(all(0 <= count <= most for count in facts.num_chunks), _EDGES)


def _edges(configuration: dict[str, Any]) -> Iterator[Any]:
    """Yield the chunk lengths of a grid, and how often lengths repeat."""
    yield from configuration.get("chunk_shape", ())
    for axis in configuration.get("chunk_shapes", ()):
        for item in axis if isinstance(axis, list) else [axis]:
            yield from item if isinstance(item, list) and len(item) == 2 else [item]


_EDGES = "the length of a chunk"
_MOST = (1 << 63) - 1
_MOST_LISTED = 1 << 24  # chunks of different lengths along one axis: readers list them all


def _need(fits: object, name: str) -> None:
    if not fits:
        raise ValueError(f"{name} is not valid in zarr v3")


def _is_named(value: Any) -> bool:
    """Say whether a value is the name of an extension, or an object with one."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    return isinstance(value.get("name"), str) and isinstance(value.get("configuration", {}), dict)


def chunk_shape(node: ArrayNode) -> tuple[int, ...] | None:
    """Return the edges of the chunks of a regular grid; None for other grids."""
    grid = document_of(node)["chunk_grid"]
    return tuple(grid["configuration"]["chunk_shape"]) if grid.get("name") == "regular" else None


def node_of(
    path: str, user_data: bytes, node_id: ObjectId8, manifests: Sequence[ManifestRef] = ()
) -> Node:
    """Make the node that a zarr.json document describes.

    Raises:
        InvalidInputError: The document is neither an array's nor a group's.
    """
    metadata = loads(user_data)
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
                _ceil(length, axis)
                if isinstance(axis, int)  # else sizes, or pairs of a size and how often it occurs
                else sum(int(item[1]) if isinstance(item, list) else 1 for item in axis)
                for length, axis in zip(shape, configuration["chunk_shapes"], strict=True)
            )
        case other:
            raise InvalidInputError(
                "unknown chunk grid", do="Use the regular or rectilinear grid.", grid=other
            )


def chunk_extents(grid: dict[str, Any]) -> tuple[int | Extent, ...]:
    """Return the length of chunks along each axis; where they differ, the least and the greatest.

    Args:
        grid: The ``chunk_grid`` of an array's metadata.
    """
    configuration = grid["configuration"]
    edges = configuration.get("chunk_shape") or configuration.get("chunk_shapes") or ()
    return tuple(map(_extent, edges))


def _extent(axis: Any) -> int | Extent:
    if not isinstance(axis, list):
        return int(axis)
    sizes = [int(item[0] if isinstance(item, list) else item) for item in axis] or [0]
    least, greatest = min(sizes), max(sizes)
    return least if least == greatest else (least, greatest)


def _ceil(length: int, edge: int) -> int:
    return -(-length // edge) if edge else 0
