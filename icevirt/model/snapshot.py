"""Hold one version of a repository: its nodes, their metadata, and their manifests.

Spec: "Snapshot Files". A snapshot may come from any writer: only `document_of` reads the zarr.json
of its nodes, and `using` turns anything else that is wrong with it into a ``FormatError``. zarr's
own classes validate what a session stages first (`icevirt.repo`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import (
    FormatError,
    IcevirtError,
    InvalidInputError,
    MissingPackageError,
    NodeNotFoundError,
)
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.json import loads
from icevirt.remedy_notation import write_code, write_remedy

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject


type Extents = tuple[tuple[int, int], ...]
"""A box of the chunk grid: (from, to) per dimension, ``to`` excluded. () covers a 0-d array."""


class ManifestRef(NamedTuple):
    """A manifest and the tight box of the chunk grid whose references it holds."""

    object_id: ObjectId12
    extents: Extents

    def covers(self, index: tuple[int, ...]) -> bool:
        """Say whether the chunk at ``index`` can only be in this manifest."""
        return all(low <= at < high for at, (low, high) in zip(index, self.extents, strict=True))


class ArrayNode(NamedTuple):
    """An array. ``user_data`` is its zarr.json, byte for byte; other fields repeat parts of it."""

    id: ObjectId8
    path: str
    user_data: bytes
    shape: tuple[int, ...]
    num_chunks: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None  # None: the metadata names no dimensions at all
    manifests: tuple[ManifestRef, ...] = ()
    extra: bytes | None = None


class GroupNode(NamedTuple):
    """A group. ``user_data`` is its zarr.json, byte for byte."""

    id: ObjectId8
    path: str
    user_data: bytes
    extra: bytes | None = None


type Node = ArrayNode | GroupNode


class ManifestFile(NamedTuple):
    """Facts about a manifest file; readers fetch exactly ``size_bytes`` of it."""

    id: ObjectId12
    size_bytes: int  # of the whole file, header included
    num_chunk_refs: int
    extra: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of the repository. ``nodes`` are kept in the byte order of their paths."""

    id: ObjectId12
    nodes: tuple[Node, ...]
    flushed_at: int  # microseconds since 1970
    message: str
    metadata: JSONObject = field(default_factory=dict)
    manifest_files: tuple[ManifestFile, ...] = ()  # ascending by id
    parent_id: ObjectId12 | None = None  # V1 files only
    extra: bytes | None = None
    newer_tables: tuple[str, ...] = ()  # tables with fields that this icevirt cannot write again

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "nodes", tuple(sorted(self.nodes, key=lambda node: paths.order(node.path)))
        )
        object.__setattr__(
            self, "manifest_files", tuple(sorted(self.manifest_files, key=lambda info: info.id))
        )

    def find(self, path: str) -> Node | None:
        """Return the node at ``path`` or None, by binary search."""
        at = bisect_left(self.nodes, paths.order(path), key=lambda node: paths.order(node.path))
        return self.nodes[at] if at < len(self.nodes) and self.nodes[at].path == path else None

    def node(self, path: str) -> Node:
        """Return the node at ``path``.

        Raises:
            NodeNotFoundError: No repository there.
        """
        if (node := self.find(path)) is None:
            raise NodeNotFoundError(
                "no such array or group",
                do=write_remedy(
                    "See what is there: ",
                    write_code(
                        'zarr.open_group(session.store, mode="r").tree()', "icevirt info REPO"
                    ),
                    ".",
                ),
                path=path,
                snapshot=str(self.id),
            )
        return node

    def refuse_loss(self) -> None:
        """Make sure that writing these nodes into another snapshot loses nothing.

        Raises:
            FormatError: A newer client stored facts that would be lost.
        """
        if self.newer_tables:
            raise FormatError(
                "a snapshot holds fields of a newer client, which writing would lose",
                do="Upgrade icevirt to commit on top of it; reading it is safe.",
                snapshot=str(self.id),
                tables=list(self.newer_tables),
            )

    def below(self, path: str) -> Iterator[Node]:
        """Yield the nodes under ``path``, the node itself excluded, in snapshot order."""
        prefix = path.rstrip("/") + "/"
        return (node for node in self.nodes if node.path != path and node.path.startswith(prefix))

    def arrays(self) -> Iterator[ArrayNode]:
        """Yield the arrays, in snapshot order."""
        return (node for node in self.nodes if isinstance(node, ArrayNode))

    def manifest(self, object_id: ObjectId12) -> ManifestFile | None:
        """Return the facts about a manifest or None, by binary search."""
        at = bisect_left(self.manifest_files, object_id, key=lambda info: info.id)
        found = at < len(self.manifest_files) and self.manifest_files[at].id == object_id
        return self.manifest_files[at] if found else None


_CELLS_AT_ONCE = 1 << 22


class Boxes(NamedTuple):
    """The boxes of an array's manifests as columns, asked for many chunks at once."""

    low: NDArray[np.int64]  # (m, ndim)
    high: NDArray[np.int64]  # (m, ndim), excluded

    @classmethod
    def of(cls, manifests: Sequence[ManifestRef], ndim: int) -> Boxes:
        """Make the columns; empty extents cover everything."""
        anything = ((0, 1 << 32),) * ndim
        box = np.array([ref.extents or anything for ref in manifests], np.int64)
        box = box.reshape(len(manifests), ndim, 2)
        return cls(box[:, :, 0], box[:, :, 1])

    def first_containing(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return, for each index (k, ndim), the first box that contains it, or -1."""
        found = np.full(len(index), -1, np.int64)
        if not len(self.low):
            return found
        step = max(1, _CELLS_AT_ONCE // len(self.low))
        for start in range(0, len(index), step):
            wanted = index[start : start + step, None, :]
            inside = np.all((wanted >= self.low) & (wanted < self.high), axis=2)
            hit = inside.argmax(axis=1)
            found[start : start + step] = np.where(inside[np.arange(len(hit)), hit], hit, -1)
        return found

    def first_overlap(self) -> tuple[int, int] | None:
        """Return two boxes that meet, or None. Readers look into the first that fits only."""
        if not self.low.shape[1]:
            return (0, 1) if len(self.low) > 1 else None
        order = np.argsort(self.low[:, 0], kind="stable")
        low, high = self.low[order], self.high[order]
        ends = np.searchsorted(low[:, 0], high[:, 0], side="left")
        for first, end in enumerate(ends.tolist()):  # over manifests, of which there are few
            near = slice(first + 1, end)
            meets = np.all((low[near] < high[first]) & (high[near] > low[first]), axis=1)
            if meets.any():
                return int(order[first]), int(order[first + 1 + int(meets.argmax())])
        return None


type Extent = tuple[int, int]
"""The least and the greatest length of chunks along an axis."""


class GridFacts(NamedTuple):
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
        if type(error).__name__ == _NO_CODEC and (missing := _missing_codec(node, str(error))):
            raise missing from error
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise _unusable(node, reason) from error


def _missing_codec(node: Node, reason: str) -> MissingPackageError | None:
    """Return the error of a codec that a package has which we know; None for others."""
    from icevirt.model.codec_packages import package_of

    codec = next(iter(_QUOTED.findall(reason)), "")[:_LONGEST]
    package = package_of(codec)
    if package is None:
        return None
    return MissingPackageError(
        "the chunks of an array need a codec that is not installed",
        do=f"Run `pip install {package}`, and start again.",
        path=node.path,
        codec=codec,
        missing=package,
    )


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
_NO_CODEC = "UnknownCodecError"
_QUOTED = re.compile("'([^']+)'")
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
    found: list[int | Extent] = []
    for axis in configuration.get("chunk_shape") or configuration.get("chunk_shapes") or ():
        items = axis if isinstance(axis, list) else [axis]
        sizes = [int(item[0] if isinstance(item, list) else item) for item in items] or [0]
        least, greatest = min(sizes), max(sizes)
        found.append(least if least == greatest else (least, greatest))
    return tuple(found)


def _ceil(length: int, edge: int) -> int:
    return -(-length // edge) if edge else 0
