"""Cut files that overlap in part into pieces, so that files share whole cells or none.

A piece is a run of steps of one file. Where any file begins or ends, or lacks a step that another
one has, pieces begin and end; so two pieces hold the same steps, or share none. Which piece counts
where several files hold one variable is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, Labels, StepCuts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model.strings import gather
from icevirt.planning.axes.coordinates import Coordinate, Keys, coordinate_of
from icevirt.planning.axes.placement import files_along, number_rows
from icevirt.planning.remedies import leave_out
from icevirt.remedy_notation import write_remedy


@dataclass(frozen=True, slots=True, eq=False)
class FileLabels:
    """The labels of files along one dimension."""

    column: NDArray[np.int64]  # (files,) equal where labels are; -1: the file lacks some
    row: NDArray[np.int64]  # (files,) among the keys, -1: the file lacks the dimension
    keys: Keys

    def ends(self, file: int, skip: int = 0, count: int | None = None) -> list[str]:
        """Return the first label and the last of some steps of a file, as people read them."""
        places = self.keys.runs.places(self.row[[file]])[skip:]
        return self.keys.shown(places[:count][[0, -1]])


def labels_of(facts: CatalogFacts, dimension: str) -> FileLabels | None:
    """Return the labels of files along a dimension; None where there are none."""
    there = files_along(facts, dimension)
    found = coordinate_of(facts, dimension, there)
    return None if found is None else labels_by(found, there, len(facts.files))


def labels_by(found: Coordinate, there: NDArray[np.int64], files: int) -> FileLabels:
    """Return the labels of some of all files, given their coordinate."""
    keys = found.keys()
    column, row = (np.full(files, -1, np.int64) for _ in range(2))
    gone = np.concatenate([[0], np.cumsum(keys.missing)])[keys.runs.starts]
    known = (keys.runs.lengths > 0) & (np.diff(gone) == 0)
    column[there] = np.where(known, keys.runs.numbers(), -1)
    row[there] = np.arange(len(there))
    return FileLabels(column, row, keys)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilePieces:
    """Runs of steps of files, a row each; of a file that no other one cuts, all of it."""

    file: NDArray[np.int64]  # (p,) rows of the files, ascending
    cell: Mapping[str, NDArray[np.int64]]  # (p,) by dimension: equal where steps are; -1: none
    skip: Mapping[str, NDArray[np.int64]]  # (p,) by dimension along which files are cut
    count: Mapping[str, NDArray[np.int64]]  # (p,)

    def take(self, rows: NDArray[np.integer]) -> FilePieces:
        """Return some of the pieces."""
        return FilePieces(
            file=self.file[rows],
            cell={name: column[rows] for name, column in self.cell.items()},
            skip={name: column[rows] for name, column in self.skip.items()},
            count={name: column[rows] for name, column in self.count.items()},
        )


def pieces_of(files: int, labels: Mapping[str, FileLabels]) -> FilePieces:
    """Return the pieces of files, given their labels by dimension."""
    found = FilePieces(file=np.arange(files), cell={}, skip={}, count={})
    for name, mine in labels.items():
        runs = _runs(mine)
        if runs is None:
            found = replace(found, cell={**found.cell, name: mine.column[found.file]})
        else:
            number = mine.column[found.file]
            known = number >= 0
            begin, times = runs.starts[number], np.where(known, np.diff(runs.starts)[number], 1)
            rows = np.repeat(np.arange(len(number)), times)
            within = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
            at = np.where(known[rows], begin[rows] + within, 0)
            found = found.take(rows)
            found = FilePieces(
                file=found.file,
                cell={**found.cell, name: np.where(known[rows], runs.cell[at], -1)},
                skip={**found.skip, name: np.where(known[rows], runs.skip[at], 0)},
                count={**found.count, name: np.where(known[rows], runs.count[at], 0)},
            )
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """The pieces of labels, those of equal labels once."""

    starts: NDArray[np.int64]  # (labels + 1,) pieces of labels n are starts[n] to starts[n + 1]
    cell: NDArray[np.int64]
    skip: NDArray[np.int64]
    count: NDArray[np.int64]


def _runs(labels: FileLabels) -> _Runs | None:
    """Return the pieces of labels; None where no file overlaps another in part, or none is cut.

    Labels that are not sorted, repeat, or count other things are not cut: no order tells where.
    """
    if labels.keys.runs.ascends:
        return None
    there = np.flatnonzero(labels.row >= 0)
    column = labels.column[there]
    if labels.keys.runs.kind.any() or (column < 0).any() or not len(there):
        return None
    distinct, first = np.unique(column, return_index=True)
    if len(distinct) != int(distinct[-1]) + 1:
        return None
    keys = labels.keys.take(labels.row[there[first]])
    flat, starts, ends = keys.runs.flat, keys.runs.starts[:-1], keys.runs.starts[1:] - 1
    rises, falls, inside = keys.runs.directions()
    falling = bool(falls.any())
    if (falling and rises.any()) or ((rises | falls) != inside).any():
        return None
    low, high = (ends, starts) if falling else (starts, ends)
    order = np.lexsort((flat[high], flat[low]))
    if (flat[high][order[:-1]] < flat[low][order[1:]]).all():
        return None
    union, place = np.unique(flat, return_inverse=True)
    place = len(union) - 1 - place if falling else place
    gap = np.flatnonzero(inside & (np.diff(place) != 1))
    begins = [place[starts], place[gap + 1], place[ends] + 1, place[gap] + 1]
    cell = np.searchsorted(np.unique(np.concatenate(begins)), place, side="right") - 1
    is_first = np.ones(len(flat), np.bool_)
    is_first[1:] = ~inside | (np.diff(cell) != 0)
    at = np.flatnonzero(is_first)
    of = np.searchsorted(starts, at, side="right") - 1
    return _Runs(
        starts=np.searchsorted(of, np.arange(len(starts) + 1)),
        cell=cell[at].astype(np.int64),
        skip=at - starts[of],
        count=np.diff(np.append(at, len(flat))),
    )


def merge_pieces(pieces: FilePieces) -> FilePieces:
    """Join pieces of a file that follow one another, where no other file needs them apart."""
    for name in pieces.skip:
        pieces = _merge_along(pieces, name)
    return pieces


def _merge_along(pieces: FilePieces, name: str) -> FilePieces:
    cell, skip, count = pieces.cell[name], pieces.skip[name], pieces.count[name]
    others = number_rows([pieces.cell[each] for each in pieces.cell if each != name], len(cell))
    order = np.lexsort((cell, others, pieces.file))
    one, two = order[:-1], order[1:]
    linked = (
        (pieces.file[one] == pieces.file[two])
        & (others[one] == others[two])
        & (cell[one] >= 0)
        & (cell[one] + 1 == cell[two])
        & (skip[one] + count[one] == skip[two])
    )
    size = max(1, int(cell.max(initial=-1)) + 1)
    held = np.bincount(cell[cell >= 0], minlength=size)
    links = np.bincount(cell[one[linked]], minlength=size)
    goes_on = np.zeros(size, np.bool_)  # a cell into the next
    goes_on[:-1] = (links[:-1] == held[:-1]) & (links[:-1] == held[1:]) & (held[:-1] > 0)
    linked &= goes_on[cell[one]]
    number = np.cumsum(np.concatenate([np.ones(1, np.bool_), ~goes_on]))[:size] - 1
    is_first = np.concatenate([np.ones(1, np.bool_), ~linked])[: len(order)]
    at = np.flatnonzero(is_first)
    total = np.add.reduceat(count[order], at) if len(at) else count
    joined = pieces.take(order[at])
    return replace(
        joined,
        cell={**joined.cell, name: np.where(cell[order[at]] >= 0, number[cell[order[at]]], -1)},
        count={**joined.count, name: total},
    )


# -- facts of pieces -----------------------------------------------------------------------------


def cut(facts: CatalogFacts, pieces: FilePieces, labels: Mapping[str, FileLabels]) -> CatalogFacts:
    """Return facts with a row for each piece in the place of its file.

    Raises:
        CombineError: A variable is shorter or longer along a dimension than its coordinate.
    """
    held = {
        name: np.where(mine.row >= 0, mine.keys.runs.lengths[mine.row], 0)[pieces.file]
        for name, mine in labels.items()
        if name in pieces.skip
    }
    before, rows, groups_of = facts.cuts, pieces.file, facts.groups_of
    source, skips, helds = rows, dict(pieces.skip), dict(held)
    if before is not None:  # files were cut before
        source = before.source[rows]
        for name, column in before.skip.items():
            skips[name] = skips.get(name, np.zeros_like(source)) + column[rows]
            helds[name] = before.held[name][rows]
    return replace(
        facts,
        files=facts.files.take(rows),
        arrays=_cut_arrays(facts, pieces, held),
        groups_of=lambda row, *, saying="": groups_of(int(rows[row]), saying=saying),
        cuts=StepCuts(source=source, skip=skips, held=helds),
    )


def _cut_arrays(
    facts: CatalogFacts, pieces: FilePieces, held: Mapping[str, NDArray[np.int64]]
) -> ArrayColumns:
    own = facts.arrays
    order = np.argsort(own.file, kind="stable")
    starts = np.searchsorted(own.file[order], np.arange(len(facts.files) + 1))
    times = np.diff(starts)[pieces.file]
    within = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    rows = order[np.repeat(starts[pieces.file], times) + within]
    piece = np.repeat(np.arange(len(pieces.file)), times)
    # labels of arrays that are repeated are looked up one by one
    none = np.zeros(0, np.int64)
    labels = replace(own.labels, row=none, value=none, dtype=own.labels.dtype.take(none))
    bare = replace(own, labels=labels).take(rows)
    arrays = replace(bare, file=piece.astype(np.int32))
    parts: dict[str, tuple[NDArray[np.int64], ...]] = {}
    for name, count in pieces.count.items():
        names = [ArraySchema.loads(text).dimension_names for text in arrays.schema.values]
        axis = np.array([each.index(name) if name in each else -1 for each in names], np.int64)
        found: NDArray[np.int64] = axis[arrays.schema.codes]
        axis = found
        skip, full = pieces.skip[name][piece], held[name][piece]
        cut_here = (axis >= 0) & (count[piece] != full)
        arrays = _cut_shapes(arrays, name, axis, np.where(cut_here, full, -1), count[piece])
        arrays = replace(arrays, digest=_cut_digests(arrays.digest, cut_here, skip, count[piece]))
        parts[name] = (np.where(axis == 0, full, 0), skip, count[piece])
    return replace(arrays, labels=_cut_labels(own.labels, rows, parts))


def _cut_shapes(
    arrays: ArrayColumns,
    name: str,
    axis: NDArray[np.int64],
    full: NDArray[np.int64],
    count: NDArray[np.int64],
) -> ArrayColumns:
    """Shorten shapes along an axis from its length in the file (-1: not at all)."""
    rows = np.flatnonzero(full >= 0)
    if not len(rows):
        return arrays
    columns = [arrays.shape.codes[rows].astype(np.int64), axis[rows], full[rows], count[rows]]
    key, first, inverse = np.unique(
        number_rows(columns, len(rows)), return_index=True, return_inverse=True
    )
    shapes = [*arrays.shape.values]
    new = np.empty(len(key), np.int64)
    for at, row in enumerate(rows[first].tolist()):
        shape = json.loads(arrays.shape[row])
        if shape[int(axis[row])] != int(full[row]):
            path = arrays.path[row]
            raise CombineError(
                f"{path} has another length along {name!r} than the coordinate, so its file cannot"
                " be cut where it overlaps others",
                do=write_remedy("Leave it out with ", leave_out(path), "."),
                variable=path,
                length=shape[int(axis[row])],
                of_the_coordinate=int(full[row]),
            )
        shape[int(axis[row])] = int(count[row])
        new[at] = len(shapes)
        shapes.append(json.dumps(shape))
    codes = arrays.shape.codes.astype(np.int64)
    codes[rows] = new[inverse]
    return replace(arrays, shape=_recode(codes, shapes))


def _cut_digests(
    digest: Coded, is_cut: NDArray[np.bool_], skip: NDArray[np.int64], count: NDArray[np.int64]
) -> Coded:
    """Let digests say which part of the values they are of; none stays none."""
    known = np.array([bool(text) for text in digest.values], np.bool_)
    rows = np.flatnonzero(is_cut & known[digest.codes])
    if not len(rows):
        return digest
    columns = [digest.codes[rows].astype(np.int64), skip[rows], count[rows]]
    _, first, inverse = np.unique(
        number_rows(columns, len(rows)), return_index=True, return_inverse=True
    )
    texts = [*digest.values]
    new = len(texts) + np.arange(len(first))
    texts += [f"{digest[row]}:{skip[row]}+{count[row]}" for row in rows[first].tolist()]
    codes = digest.codes.astype(np.int64)
    codes[rows] = new[inverse]
    return _recode(codes, texts)


def _recode(codes: NDArray[np.int64], values: Sequence[str]) -> Coded:
    """Return a column in which each value stands once."""
    number: dict[str, int] = {}
    of = np.array([number.setdefault(value, len(number)) for value in values], np.int64)
    return Coded(of[codes], tuple(number)).take(np.arange(len(codes)))


def _cut_labels(
    labels: Labels, rows: NDArray[np.int64], parts: Mapping[str, tuple[NDArray[np.int64], ...]]
) -> Labels:
    """Return the labels of arrays, cut along their first axis."""
    places = labels.places(rows)
    row = np.flatnonzero(places >= 0)
    value = labels.value[places[row]].astype(np.int64)
    begin, size = labels.starts[value], np.diff(labels.starts)[value]
    for full, skip, count in (tuple(column[row] for column in each) for each in parts.values()):
        step = size // np.maximum(full, 1)
        begin = np.where(full > 0, begin + skip * step, begin)
        size = np.where(full > 0, count * step, size)
    data, starts = gather(labels.data, begin, size)
    return Labels(
        row=row,
        value=np.arange(len(row)),
        data=data,
        starts=starts,
        dtype=labels.dtype.take(places[row]),
    )
