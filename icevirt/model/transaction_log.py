"""Hold what one commit changed, node by node, for diffs and conflict detection.

Spec: "Transaction Log Files".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12


class NodeType(IntEnum):
    """Group or array; numbers are the format's."""

    group = 0
    array = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A node that changed its path."""

    from_path: str
    to_path: str
    node_id: ObjectId8
    node_type: NodeType


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLog:
    """Changes of the commit that made snapshot ``id``; chunk indices are sorted (n, ndim) u32."""

    id: ObjectId12
    new_groups: frozenset[ObjectId8] = frozenset()
    new_arrays: frozenset[ObjectId8] = frozenset()
    deleted_groups: frozenset[ObjectId8] = frozenset()
    deleted_arrays: frozenset[ObjectId8] = frozenset()
    updated_arrays: frozenset[ObjectId8] = frozenset()
    updated_groups: frozenset[ObjectId8] = frozenset()
    updated_chunks: Mapping[ObjectId8, NDArray[np.uint32]] = field(default_factory=dict)
    moved_nodes: tuple[Move, ...] = ()
    extra: bytes | None = None
    newer_tables: tuple[str, ...] = ()  # tables with fields that this icevirt cannot write again

    def is_empty(self) -> bool:
        """Say whether the commit changed nothing."""
        nodes = (self.new_groups, self.new_arrays, self.deleted_groups, self.deleted_arrays)
        updated = (self.updated_arrays, self.updated_groups, self.updated_chunks)
        return not any((*nodes, *updated, self.moved_nodes))

    def refuse_loss(self) -> None:
        """Make sure that a log which takes the place of this one loses nothing.

        Raises:
            FormatError: A newer client stored facts that would be lost.
        """
        if self.newer_tables or self.extra is not None:
            raise FormatError(
                "a transaction log holds fields of a newer client, which rewriting would lose",
                do="Commit instead of amending, or upgrade icevirt.",
                snapshot=str(self.id),
                tables=list(self.newer_tables),
            )
