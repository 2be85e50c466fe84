"""Remember who wrote each staged reference, so that a merge knows who read what of whom.

An author is a change set between two moments at which somebody else takes its changes over: by a
fork, a pickle or a merge. What it wrote is known to whoever took it over, and to nobody else. Of
two that wrote one chunk, the one that knew the other is right. If neither did, each wrote without
the other's values, and those of one would be lost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ConflictError
from icevirt.ids import ObjectId8
from icevirt.model.chunks import ChunkTable
from icevirt.model.indices import all_inside, inside
from icevirt.model.snapshot import ArrayNode, Node, chunk_shape
from icevirt.versioning import chunk_tables, hierarchy

_MANY = 16  # parts that are joined before each of them is compared


_forks = [0]  # of this process


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(before=_count_fork)


class Authors:
    """The authors whose changes a change set knows, by number; the last one may be its own."""

    def __init__(self, known: Sequence[ObjectId8] = ()) -> None:
        self.known = list(known)
        self._since: int | None = None  # forks of the process when the last began; None: it is done

    def __getstate__(self) -> dict[str, object]:
        self.close()
        return self.__dict__.copy()

    def close(self) -> None:
        """End the author, because somebody takes over what it wrote; the next is another."""
        self._since = None

    def current(self) -> int:
        """Return the number of the one who writes now; a fork of the process ends it, too."""
        if self._since != _forks[0]:
            self.known.append(ObjectId8.random())
            self._since = _forks[0]
        return len(self.known) - 1

    def unknown_to(self, other: Authors) -> NDArray[np.bool_]:
        """Say of each author, by number, whether the other does not know it."""
        known = set(other.known)
        return np.array([author not in known for author in self.known], np.bool_)

    def add(self, other: Authors, begin: int) -> tuple[list[ObjectId8], NDArray[np.int32]]:
        """Return who is known with the authors of another, from one on, and the number of each.

        Those whose changes are here already, and those before, have the number -1.
        """
        known, here = self.known.copy(), set(self.known)
        numbers = np.full(len(other.known), -1, np.int32)
        for old, author in enumerate(other.known[begin:], begin):
            if author not in here:
                numbers[old] = len(known)
                known.append(author)
        return known, numbers


class Part:
    """References of an array, and the number of the author of each."""

    __slots__ = ("_box", "_finder", "author", "table")

    def __init__(self, table: ChunkTable, author: int | NDArray[np.int32]) -> None:
        self.table = table
        self.author = author  # of all rows, or of each, shape (n,)
        self._box: NDArray[np.int64] | None = None
        self._finder: chunk_tables.RowFinder | None = None

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, {"table": self.table, "author": self.author, "_box": None, "_finder": None}

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of one part or more; where several have a chunk, that of the last."""
        if len(parts) == 1:
            return parts[0]
        table = chunk_tables.overlay_all([part.table for part in parts])
        numbers = {part.author if isinstance(part.author, int) else None for part in parts}
        if len(numbers) == 1 and None not in numbers:
            return cls(table, parts[0].author)
        author = np.empty(len(table), np.int32)
        joined = cls(table, author)
        for part in parts:
            author[joined.find(part.table.index)] = part.author
        return joined

    def of(self, chosen: NDArray[np.bool_]) -> ChunkTable | None:
        """Return the rows of some authors, which are chosen by number; None: there are none."""
        if isinstance(self.author, int):
            return self.table if chosen[self.author] else None
        rows = chosen[self.author]
        return self.table.take(rows) if rows.any() else None

    def renumber(self, numbers: NDArray[np.int32]) -> Self | None:
        """Return the rows of authors that have a new number, which is not negative."""
        table = self.of(numbers >= 0)
        if table is None:
            return None
        author = numbers[self.author]
        return type(self)(table, int(author) if author.ndim == 0 else author[author >= 0])

    def has_any(self, chosen: NDArray[np.bool_]) -> bool:
        """Say whether there may be rows of some authors, who are chosen by number."""
        return bool(chosen[self.author].any())

    def find(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the row of each chunk, shape (k, ndim); -1 where there is none."""
        if self._finder is None:
            self._finder = chunk_tables.RowFinder.of(self.table)
        return self._finder.find(index)

    def meets(self, other: Part) -> bool:
        """Say whether the boxes around both have chunks in common."""
        one, two = self._bounds(), other._bounds()
        return bool(np.all((one[:, 0] < two[:, 1]) & (two[:, 0] < one[:, 1])))

    def _bounds(self) -> NDArray[np.int64]:
        if self._box is None:
            self._box = np.array(self.table.extents(), np.int64).reshape(-1, 2)
        return self._box


def join_small(parts: list[Part]) -> list[Part]:
    """Return parts, those joined that stand behind one that is not much larger; few remain."""
    while len(parts) > 1 and len(parts[-2].table) < 2 * len(parts[-1].table):
        parts = [*parts[:-2], Part.join(parts[-2:])]
    return parts


def join_many(parts: list[Part]) -> list[Part]:
    """Return parts, joined where comparing each would take longer."""
    return [Part.join(parts)] if len(parts) > _MANY else parts.copy()


def refuse_both(
    node: Node, ours: Sequence[Part | None], unknown: NDArray[np.bool_], theirs: Part
) -> None:
    """Refuse chunks that a fork wrote, and others wrote of whom it did not know.

    Args:
        node: The array.
        ours: What is there.
        unknown: Whether the fork did not know an author of ours, by number.
        theirs: What the fork wrote.

    Raises:
        ConflictError: There is such a chunk, and both did not write the same bytes.
    """
    for part in ours:
        if part is None or not part.has_any(unknown) or not part.meets(theirs):
            continue
        rows = part.find(theirs.table.index)
        both = (rows >= 0) & unknown[
            part.author if isinstance(part.author, int) else part.author[rows]
        ]
        if not both.any():
            continue
        one = chunk_tables.compact(part.table.take(rows[both]))
        other = chunk_tables.compact(theirs.table.take(both))
        same = chunk_tables.same_content(one, other)
        if not same.all():
            raise _both(node, one.index[~same])


def refuse_change(before: Node, after: Node | None, written: Sequence[ChunkTable]) -> None:
    """Refuse what one made of an array where another wrote chunks that it did not know of.

    Raises:
        ConflictError: The array is gone, its chunks mean something else, or some lie outside now.
    """
    if after is None or (before != after and not hierarchy.keeps_values(before, after)):
        raise hierarchy.both(before.path)
    for table in written:
        index = chunk_tables.drop_deleted(table).index
        if not isinstance(after, ArrayNode) or all_inside(index, after.num_chunks):
            continue
        outside = index[~inside(index, after.num_chunks)]
        raise ConflictError(
            "one of the sessions that are merged made an array smaller, and another wrote what"
            " lies outside now",
            do="Resize arrays before `fork`, and write only chunks in forks.",
            path=after.path,
            chunk=tuple(outside[0].tolist()),
            num_chunks=after.num_chunks,
        )


def _both(node: Node, index: NDArray[np.uint32]) -> ConflictError:
    block = chunk_shape(node) if isinstance(node, ArrayNode) else None
    return ConflictError(
        "two of the sessions that are merged wrote the same chunk, and neither read what the other"
        " wrote, so that values of one would be lost",
        do="Let each fork write whole chunks: blocks of "
        + ("the array's chunks" if block is None else f"{block} values, or multiples of it,")
        + " that begin where chunks begin. For dask, pass align_chunks=True or rechunk the array."
        " Or let one fork write both, one after the other.",
        path=node.path,
        chunk=tuple(index[0].tolist()),
        chunks=len(index),
        block=block,
    )
