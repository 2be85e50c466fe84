"""Hold a manifest: the chunk tables of one or more arrays, as one immutable file.

Spec: "Chunk Manifest Files".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Chunk tables by node id."""

    id: ObjectId12
    arrays: Mapping[ObjectId8, ChunkTable]
    unkept: tuple[str, ...] = ()  # tables with facts that chunk tables have no column for

    @property
    def num_chunk_refs(self) -> int:
        """References of all arrays together."""
        return sum(len(table) for table in self.arrays.values())

    def refuse_loss(self) -> None:
        """Make sure that writing these references into another manifest loses nothing.

        Raises:
            FormatError: A newer client stored facts that would be lost.
        """
        if self.unkept:
            raise FormatError(
                "a manifest holds fields of a newer client, which rewriting would lose",
                do="Upgrade icevirt to change these arrays; reading them is safe.",
                manifest=str(self.id),
                tables=list(self.unkept),
            )
