"""Hold one version of a repository: its nodes, their metadata, and their manifests.

Spec: "Snapshot Files".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError, NodeNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths

if TYPE_CHECKING:
    from icevirt.model.json import JSONObject


type Extents = tuple[tuple[int, int], ...]
"""A box of the chunk grid: (from, to) per dimension, ``to`` excluded. () covers a 0-d array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRef:
    """A manifest and the tight box of the chunk grid whose references it holds."""

    object_id: ObjectId12
    extents: Extents

    def covers(self, index: tuple[int, ...]) -> bool:
        """Say whether the chunk at ``index`` can only be in this manifest."""
        return all(low <= at < high for at, (low, high) in zip(index, self.extents, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayNode:
    """An array. ``user_data`` is its zarr.json, byte for byte; other fields repeat parts of it."""

    id: ObjectId8
    path: str
    user_data: bytes
    shape: tuple[int, ...]
    num_chunks: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None  # None: the metadata names no dimensions at all
    manifests: tuple[ManifestRef, ...] = ()
    extra: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNode:
    """A group. ``user_data`` is its zarr.json, byte for byte."""

    id: ObjectId8
    path: str
    user_data: bytes
    extra: bytes | None = None


type Node = ArrayNode | GroupNode


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
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
                do="See what is there:"
                ' zarr.open_group(session.store, mode="r").tree() (icevirt info REPO).',
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


@dataclass(frozen=True, slots=True)
class Boxes:
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
