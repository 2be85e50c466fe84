"""Show recorded facts as a way of combining files wants them, or say which facts are lacking.

A scan knows nothing of how files will be combined. What is decided here, for each kind of array
once: which runs are cut, which arrays are stored whole, which digests and labels count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, BesideColumns, CatalogFacts, Coded, Counts, Labels
from icevirt.archive.joining import Fact, Form, cut_along
from icevirt.archive.schema import ArraySchema
from icevirt.planning.combine.common_chunks import common_edges, common_fills
from icevirt.planning.combine.data_vars import listing_groups, variables_of
from icevirt.planning.combine.hints import CombineHints, Recorded, covered_by

type IsReferenced = Callable[[str], bool]
"""Given the path of an array: whether a policy wants its chunks to be references."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LackingFacts:
    """Facts that have to be taken from files."""

    file: NDArray[np.int32]  # (n,) row in the file columns
    path: Coded  # (n,)
    fact: NDArray[np.uint8]  # (n,) of `Fact`
    equal: tuple[str, ...]  # paths of arrays that must be equal though files are stacked
    tolerant: tuple[str, ...] = ()  # names and paths of arrays whose values are compared


class _ArrayKind(NamedTuple):
    """Arrays of one path, schema and shape."""

    array: Recorded
    schema: ArraySchema

    def cut(self, hints: CombineHints, edge: int | None) -> tuple[str, int, int]:
        """Return the schema of its chunks, into how many each recorded one is cut, and of how many.

        Args:
            hints: How files are combined.
            edge: Of chunks along the first axis that fit files of several lengths.
        """
        array = self.array
        if not array.contiguous and edge is None:
            return self.schema.dumps(), 1, 1
        axes = hints.joined_axes(array.dimension_names)
        edges = (
            cut_along(array.chunk_shape, axes, array.itemsize)
            if edge is None
            else (edge, *array.chunk_shape[1:])
        )
        times = array.chunk_shape[0] // edges[0] if edges else 1
        schema = replace(self.schema, chunk_shape=edges, contiguous=False).dumps()
        if edge is None or array.shape[0] % array.chunk_shape[0] == 0:
            return schema, times, 1
        # the last chunk is as long as all others, but ends behind the values
        return schema, array.shape[0] // edge, -(-array.shape[0] // array.chunk_shape[0])


def resolved(
    facts: CatalogFacts,
    beside: BesideColumns,
    hints: CombineHints,
    is_referenced: IsReferenced,
    *,
    affordable: int,
) -> CatalogFacts | LackingFacts:
    """Return the facts of arrays as they will lie beside others, or those that are lacking.

    Args:
        facts: As a scan recorded them.
        beside: Facts that were taken for some ways of combining.
        hints: How files are combined.
        is_referenced: What a policy says of an array.
        affordable: Bytes of values that may be stored of a file.
    """
    arrays = facts.arrays
    hints = _covering(facts, hints)
    kinds, kind = _kinds(arrays)
    hints = hints.with_uneven_texts(each.array for each in kinds)
    for at, fill in common_fills(arrays, kinds, kind).items():
        kinds[at] = kinds[at]._replace(schema=replace(kinds[at].schema, fill_value=fill))
    equal = _equal(facts, hints)
    of_kind = np.array(
        [
            int(
                hints.wanted(
                    each.array,
                    is_equal=each.array.path in equal,
                    is_referenced=is_referenced(each.array.path),
                    affordable=affordable,
                )
            )
            for each in kinds
        ],
        np.uint8,
    )
    wanted: NDArray[np.uint8] = of_kind[kind]
    found = _Beside.of(arrays, beside)
    lacking = wanted & ~(found.asked | _recorded(arrays))
    if lacking.any():
        rows = np.flatnonzero(lacking)
        return LackingFacts(
            file=arrays.file[rows],
            path=arrays.path.take(rows),
            fact=lacking[rows],
            equal=tuple(sorted(equal)),
            tolerant=hints.tolerant,
        )
    if not hints.concat_dims:  # labels of variables with one value, which may become a dimension's
        wanted |= _recorded(arrays) & np.uint8(Fact.labels)
    return replace(facts, arrays=_made(arrays, beside, found, wanted, (kinds, kind), hints))


def _kinds(arrays: ArrayColumns) -> tuple[list[_ArrayKind], NDArray[np.int64]]:
    """Return the kinds of arrays, and which each row is."""
    schemas, shapes = len(arrays.schema.values), len(arrays.shape.values)
    key = arrays.path.codes.astype(np.int64) * schemas + arrays.schema.codes
    key = key * shapes + arrays.shape.codes
    distinct, kind = np.unique(key, return_inverse=True)
    loaded: dict[int, ArraySchema] = {}
    kinds = []
    for each in distinct.tolist():
        rest, shape = divmod(each, shapes)
        path, schema = divmod(rest, schemas)
        if schema not in loaded:
            loaded[schema] = ArraySchema.loads(arrays.schema.values[schema])
        name, edges = arrays.path.values[path], json.loads(arrays.shape.values[shape])
        chunk = loaded[schema].chunk_shape or tuple(max(1, length) for length in edges)
        array = Recorded.of(name, tuple(edges), chunk, loaded[schema])
        kinds.append(_ArrayKind(array, loaded[schema]))
    return kinds, kind.reshape(-1)


def _equal(facts: CatalogFacts, hints: CombineHints) -> frozenset[str]:
    """Return the arrays that must be equal in all files although these are stacked."""
    if not hints.stack:
        return frozenset(hints.equal)
    variables = (
        (path, schema.dimension_names, schema.attributes.values)
        for path, schema in variables_of(facts)
    )
    return hints.equal_in_files(variables, listing_groups(facts))


def _covering(facts: CatalogFacts, hints: CombineHints) -> CombineHints:
    """Return hints whose tolerances name what they cover: of coordinates, their bounds too."""
    if not hints.tolerant:
        return hints
    variables = [
        (path, schema.dimension_names, schema.attributes.values)
        for path, schema in variables_of(facts)
    ]
    covered = covered_by(dict.fromkeys(hints.tolerant, 0.0), variables)
    return replace(hints, tolerant=tuple(sorted({*hints.tolerant, *covered})))


def _recorded(arrays: ArrayColumns) -> NDArray[np.uint8]:
    """Say which facts the scan recorded with each array."""
    has_digest = np.array([bool(text) for text in arrays.digest.values], np.bool_)
    found: NDArray[np.uint8] = has_digest[arrays.digest.codes].astype(np.uint8) * np.uint8(
        Fact.digest
    )
    found[arrays.labels.row] |= np.uint8(Fact.labels)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Beside:
    """Rows of facts in the columns beside the catalog, by row of the arrays; -1: none."""

    asked: NDArray[np.uint8]
    digest: NDArray[np.int64]
    values: NDArray[np.int64]
    labels: NDArray[np.int64]  # place in the column of labels

    @classmethod
    def of(cls, arrays: ArrayColumns, beside: BesideColumns) -> _Beside:
        count = len(arrays.file)
        asked = np.zeros(count, np.uint8)
        at = {name: np.full(count, -1, np.int64) for name in ("digest", "values", "labels")}
        if len(beside.file):
            row = _rows_of(arrays, beside)
            kept = np.flatnonzero(row >= 0)
            np.bitwise_or.at(asked, row[kept], beside.asked[kept])
            for name, column in (("digest", beside.digest), ("values", beside.schema)):
                there = np.array([bool(text) for text in column.values], np.bool_)
                mine = kept[there[column.codes[kept]]]
                at[name][row[mine]] = mine
            own = row[beside.labels.row]
            mine = np.flatnonzero(own >= 0)
            at["labels"][own[mine]] = mine
        return cls(asked=asked, **at)


def _rows_of(arrays: ArrayColumns, beside: BesideColumns) -> NDArray[np.int64]:
    """Return the row of the array that each fact is of; -1 where there is no such array."""
    number = {path: code for code, path in enumerate(arrays.path.values)}
    code = np.array([number.get(path, -1) for path in beside.path.values], np.int64)
    paths = len(number)
    key = arrays.file.astype(np.int64) * paths + arrays.path.codes
    order = np.argsort(key, kind="stable")
    wanted = beside.file.astype(np.int64) * paths + code[beside.path.codes]
    at = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    same = (key[order[at]] == wanted) & (code[beside.path.codes] >= 0)
    rows: NDArray[np.int64] = np.where(same, order[at], -1)
    return rows


def _made(  # noqa: PLR0917 - what is known of the arrays
    arrays: ArrayColumns,
    beside: BesideColumns,
    found: _Beside,
    wanted: NDArray[np.uint8],
    kinds: tuple[list[_ArrayKind], NDArray[np.int64]],
    hints: CombineHints,
) -> ArrayColumns:
    """Return the arrays with what is wanted of them, and nothing else."""
    everything = np.arange(len(arrays.file))
    has_values = ((wanted & Fact.values) > 0) & (found.values >= 0)
    joined = np.zeros(len(kinds[0]), np.bool_)
    joined[kinds[1][has_values]] = True
    common = common_edges(arrays, kinds[0], kinds[1], joined, hints)
    cuts = [each.cut(hints, common.get(at)) for at, each in enumerate(kinds[0])]
    number: dict[str, int] = {}
    of_kind = np.array([number.setdefault(text, len(number)) for text, *_ in cuts], np.int64)
    of_beside = np.array(
        [number.setdefault(text, len(number)) for text in beside.schema.values], np.int64
    )
    schema = of_kind[kinds[1]]
    times = np.array([count for _, count, _ in cuts], np.int64)[kinds[1]]
    among = np.array([count for *_, count in cuts], np.int64)[kinds[1]]
    form = np.where(times > 1, Form.cut, Form.recorded).astype(np.uint8)
    at = found.values[has_values]
    schema[has_values] = of_beside[beside.schema.codes[at]]
    form[has_values] = Form.beside
    nbytes = np.zeros(len(everything), np.int64)
    nbytes[has_values] = beside.nbytes[at]

    def counted(column: Counts, values: NDArray[np.int64], times: NDArray[np.int64]) -> Counts:
        return Counts(np.where(has_values, values, column[everything] * times // among))

    none, once = np.zeros_like(nbytes), among
    return replace(
        arrays,
        schema=Coded(schema, tuple(number)).take(everything),
        digest=_digests(arrays, beside, found, wanted, has_values=has_values),
        labels=_labels(arrays.labels, beside.labels, found, wanted),
        virtual=counted(arrays.virtual, none, times),
        inline=counted(arrays.inline, (nbytes > 0).astype(np.int64), times),
        virtual_bytes=counted(arrays.virtual_bytes, none, once),
        inline_bytes=counted(arrays.inline_bytes, nbytes, once),
        form=form if form.any() else None,
    )


def _digests(
    arrays: ArrayColumns,
    beside: BesideColumns,
    found: _Beside,
    wanted: NDArray[np.uint8],
    *,
    has_values: NDArray[np.bool_],
) -> Coded:
    number = {"": 0}
    own = np.array([number.setdefault(t, len(number)) for t in arrays.digest.values], np.int64)
    other = np.array([number.setdefault(t, len(number)) for t in beside.digest.values], np.int64)
    codes = own[arrays.digest.codes]
    mine = np.flatnonzero((found.digest >= 0) & (has_values | (codes == 0)))
    codes[mine] = other[beside.digest.codes[found.digest[mine]]]
    codes[(wanted & Fact.digest) == 0] = 0
    return Coded(codes, tuple(number)).take(np.arange(len(codes)))


def _labels(own: Labels, beside: Labels, found: _Beside, wanted: NDArray[np.uint8]) -> Labels:
    """Return the labels that are wanted, of both columns."""
    is_wanted = (wanted & Fact.labels) > 0
    mine = np.flatnonzero(is_wanted[own.row])
    there = np.zeros(len(wanted), np.bool_)
    there[own.row] = True
    rows = np.flatnonzero(is_wanted & ~there & (found.labels >= 0))
    kept = Labels(
        row=own.row[mine],
        value=own.value[mine],
        data=own.data,
        starts=own.starts,
        dtype=own.dtype.take(mine),
    )
    if not len(rows):
        return kept
    places = found.labels[rows]
    dtype = beside.dtype.take(places)
    row = np.concatenate([kept.row, rows])
    order = np.argsort(row, kind="stable")
    value = np.concatenate(
        [kept.value.astype(np.int64), beside.value[places].astype(np.int64) + len(own.starts) - 1]
    )
    number: dict[str, int] = {}
    mapped = [
        np.array([number.setdefault(text, len(number)) for text in each.values], np.int64)[
            each.codes
        ]
        for each in (kept.dtype, dtype)
    ]
    return Labels(
        row=row[order],
        value=value[order],
        data=np.concatenate([own.data, beside.data]),
        starts=np.concatenate([own.starts, beside.starts[1:] + own.starts[-1]]),
        dtype=Coded(np.concatenate(mapped)[order], tuple(number)),
    )
