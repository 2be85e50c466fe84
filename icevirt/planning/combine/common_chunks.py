"""Find what files have in common though they say it differently: chunks, and fill values.

A chunk of uncompressed values is a run of bytes, and so is each part of it along its first axis. If
granules do not begin where a chunk of one length begins, shorter chunks may fit them all, and
nothing needs to be stored. Compressed chunks cannot be cut.

The fill value of chunks that were never written does not matter in files that wrote all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns
from icevirt.archive.joining import STEP, cut_along
from icevirt.archive.kinds import KindColumn
from icevirt.archive.schema import ArraySchema
from icevirt.model.json import JSON
from icevirt.planning.combine.hints import CombineHints, Recorded

_ROWS = 1 << 16  # that are looked at together

type Kind = tuple[Recorded, ArraySchema]
"""Arrays of one path, schema and shape."""


def common_edges(
    arrays: ArrayColumns,
    kinds: Sequence[Kind],
    kind: KindColumn,
    joined: NDArray[np.bool_],
    hints: CombineHints,
) -> dict[int, int]:
    """Return how long the chunks of some kinds of arrays become along their first axis.

    Args:
        arrays: As a scan recorded them.
        kinds: What occurs among them.
        kind: Of each row.
        joined: (kinds,) Whether all values are stored, at any length.
        hints: How files are combined.
    """
    by_path: dict[str, list[int]] = {}
    for number, (array, _) in enumerate(kinds):
        if not (joined[number] or array.whole):
            by_path.setdefault(array.path, []).append(number)
    rows = _Rows(arrays, kinds, kind)
    found: dict[int, int] = {}
    for members in by_path.values():
        if not all(_is_plain(*kinds[number], hints) for number in members):
            continue
        some = [kinds[number][0] for number in members]
        edge = _common(some)
        if edge is None or not _needs(rows, members, some, hints):
            continue
        cut = [at for at, each in zip(members, some, strict=True) if each.chunk_shape[0] != edge]
        odd = [at for at in cut if kinds[at][0].shape[0] % kinds[at][0].chunk_shape[0]]
        if rows.full[odd].all():  # only then it is known how many parts lie behind the axis
            found |= dict.fromkeys(cut, edge)
    return found


def common_fills(arrays: ArrayColumns, kinds: Sequence[Kind], kind: KindColumn) -> dict[int, JSON]:
    """Return the fill values of kinds that can have another one, because it is never read.

    It is that of files with chunks that were never written, else that of the first file.
    """
    by_type: dict[tuple[str, str], list[int]] = {}  # a fill value is one of its data type
    for number, (array, schema) in enumerate(kinds):
        if not array.whole:
            data_type = json.dumps(schema.data_type)
            by_type.setdefault((array.path, data_type), []).append(number)
    rows = _Rows(arrays, kinds, kind)
    found: dict[int, JSON] = {}
    for members in by_type.values():
        fills = [json.dumps(kinds[number][1].fill_value) for number in members]
        if len(set(fills)) < 2:
            continue
        read = {fill for number, fill in zip(members, fills, strict=True) if not rows.there[number]}
        if len(read) > 1:
            continue
        first = fills[int(np.argmin(rows.first[members]))]
        wanted = next(iter(read), first)
        found |= {
            number: json.loads(wanted)
            for number, fill in zip(members, fills, strict=True)
            if fill != wanted
        }
    return found


class _Rows:
    """What is known of the rows of each kind; looked up once, where a variable asks for it."""

    def __init__(self, arrays: ArrayColumns, kinds: Sequence[Kind], kind: KindColumn) -> None:
        self._arrays, self._kinds, self._kind = arrays, kinds, kind

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many there are."""
        found = np.zeros(len(self._kinds), np.int64)
        for some in self._blocks():
            found += np.bincount(self._kind[some], minlength=len(found))
        return found

    @cached_property
    def last(self) -> NDArray[np.int64]:
        """The last file."""
        found = np.full(len(self._kinds), -1, np.int64)
        for some in self._blocks():
            np.maximum.at(found, self._kind[some], self._arrays.file[some])
        return found

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """The first file."""
        found = np.full(len(self._kinds), np.iinfo(np.int64).max)
        for some in self._blocks():
            np.minimum.at(found, self._kind[some], self._arrays.file[some])
        return found

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """Whether all chunks were written."""
        return self._of_all(lambda virtual, inline, grid: virtual + inline == grid)

    @cached_property
    def full(self) -> NDArray[np.bool_]:
        """Whether all chunks are references."""
        return self._of_all(lambda virtual, inline, grid: (virtual == grid) & (inline == 0))

    def _of_all(self, says: Callable[..., NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Say of which kinds something is so in all rows, given counts of references and chunks."""
        grid = np.array([_chunks(array) for array, _ in self._kinds], np.int64)
        found = np.ones(len(self._kinds), np.bool_)
        for some in self._blocks():
            kind = self._kind[some]
            is_so = says(self._arrays.virtual[some], self._arrays.inline[some], grid[kind])
            found[kind[~is_so]] = False
        return found

    def _blocks(self) -> Iterator[slice]:
        for low in range(0, len(self._kind), _ROWS):
            yield slice(low, low + _ROWS)


def _chunks(array: Recorded) -> int:
    return prod(-(-n // edge) for n, edge in zip(array.shape, array.chunk_shape, strict=True))


def _is_plain(array: Recorded, schema: ArraySchema, hints: CombineHints) -> bool:
    """Say whether the parts of a chunk are runs of bytes, along a first axis that is joined."""
    axes = hints.joined_axes(array.dimension_names)
    return 0 in axes and len(schema.codecs) == 1 and prod(array.shape) > 0


def _common(arrays: Sequence[Recorded]) -> int | None:
    """Return the longest chunks that divide all chunks and lengths; None if they are too small."""
    first = arrays[0]
    if any(each.chunk_shape[1:] != first.chunk_shape[1:] for each in arrays):
        return None
    step = prod(first.chunk_shape[1:]) * first.itemsize
    if step >= STEP and any(each.contiguous for each in arrays):
        return 1  # as contiguous values are cut in any case
    edge = gcd(*(n for each in arrays for n in (each.chunk_shape[0], each.shape[0])))
    return edge if edge * step >= STEP else None


def _needs(
    rows: _Rows, members: Sequence[int], some: Sequence[Recorded], hints: CombineHints
) -> bool:
    """Say whether chunks differ, or files but the last one listed end within a chunk."""
    edges = {_edge(each, hints) for each in some}
    if len(edges) > 1:
        return True
    (edge,) = edges
    odd = [at for at, each in zip(members, some, strict=True) if each.shape[0] % edge]
    if not odd:
        return False
    last = members[int(np.argmax(rows.last[members]))]
    return int(rows.counts[odd].sum()) > int(last in odd)


def _edge(array: Recorded, hints: CombineHints) -> int:
    """Return how long chunks are, where nothing but their own file decides it."""
    if not array.contiguous:
        return array.chunk_shape[0]
    axes = hints.joined_axes(array.dimension_names)
    return cut_along(array.chunk_shape, axes, array.itemsize)[0]
