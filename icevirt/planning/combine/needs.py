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
from icevirt.archive.kinds import KindColumn, NumberColumn, joint, mapped, narrow, spread
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
    found = _Beside.of(arrays, beside)
    lacking = spread(of_kind, kind)
    lacking &= ~found.asked_or(_recorded(arrays))
    if lacking.any():
        rows = np.flatnonzero(lacking)
        return LackingFacts(
            file=arrays.file[rows],
            path=arrays.path.take(rows),
            fact=lacking[rows],
            equal=tuple(sorted(equal)),
            tolerant=hints.tolerant,
        )
    wanted = KindColumn(kind.kind, of_kind[kind.of_kind])
    if not hints.concat_dims:  # labels of variables with one value, which may become a dimension's
        wanted = _with_labels(arrays, wanted)
    return replace(facts, arrays=_made(arrays, beside, found, wanted, (kinds, kind), hints))


def _with_labels(arrays: ArrayColumns, wanted: KindColumn) -> KindColumn:
    """Return what is wanted of each row, and the labels that were recorded."""
    rows: NDArray[np.uint8] = wanted.astype(np.uint8)
    rows[arrays.labels.row] |= np.uint8(Fact.labels)
    return KindColumn(rows, np.arange(int(rows.max(initial=0)) + 1, dtype=np.uint8))


def _kinds(arrays: ArrayColumns) -> tuple[list[_ArrayKind], KindColumn]:
    """Return the kinds of arrays, and which each row is."""
    columns = (arrays.path, arrays.schema, arrays.shape)
    distinct, kind = joint([e.codes for e in columns], [len(e.values) for e in columns])
    loaded: dict[int, ArraySchema] = {}
    kinds = []
    for path, schema, shape in distinct.tolist():
        if schema not in loaded:
            loaded[schema] = ArraySchema.loads(arrays.schema.values[schema])
        name, edges = arrays.path.values[path], json.loads(arrays.shape.values[shape])
        chunk = loaded[schema].chunk_shape or tuple(max(1, length) for length in edges)
        array = Recorded.of(name, tuple(edges), chunk, loaded[schema])
        kinds.append(_ArrayKind(array, loaded[schema]))
    return kinds, kind


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
    has_digest = np.array([bool(text) for text in arrays.digest.values], np.uint8)
    found = spread(has_digest * np.uint8(Fact.digest), arrays.digest.codes)
    found[arrays.labels.row] |= np.uint8(Fact.labels)
    return found


class _Facts(NamedTuple):
    """Facts beside some rows of the arrays."""

    rows: NDArray[np.int64]  # (k,) ascending
    at: NDArray[np.int64]  # (k,) in the columns beside the catalog, or in their labels

    @classmethod
    def of(cls, rows: NDArray[np.int64], at: NDArray[np.int64]) -> _Facts:
        """Return the facts of each row once: the last ones."""
        order = np.argsort(rows, kind="stable")
        last = order[np.flatnonzero(np.diff(rows[order], append=-1))]
        return cls(rows[last], at[last])

    def only(self, kept: NDArray[np.bool_]) -> _Facts:
        """Return the facts of some of the rows."""
        return _Facts(self.rows[kept], self.at[kept])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Beside:
    """Which facts beside the catalog are of which rows of the arrays."""

    asked: _Facts
    digest: _Facts
    values: _Facts
    labels: _Facts

    @classmethod
    def of(cls, arrays: ArrayColumns, beside: BesideColumns) -> _Beside:
        none = np.zeros(0, np.int64)
        row = _rows_of(arrays, beside) if len(beside.file) else none
        kept = np.flatnonzero(row >= 0)
        found = {}
        for name, column in (("digest", beside.digest), ("values", beside.schema)):
            there = np.array([bool(text) for text in column.values], np.bool_)
            mine = kept[spread(there, column.codes)[kept]]
            found[name] = _Facts.of(row[mine], mine)
        own = row[beside.labels.row] if len(row) else none
        mine = np.flatnonzero(own >= 0)
        asked = beside.asked[kept].astype(np.int64)
        return cls(
            asked=_Facts(row[kept], asked),  # what, in the place of where it stands
            labels=_Facts.of(own[mine], mine),
            **found,
        )

    def asked_or(self, recorded: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Add what was looked for to what the scan recorded, in place."""
        np.bitwise_or.at(recorded, self.asked.rows, self.asked.at.astype(np.uint8))
        return recorded


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
    wanted: KindColumn,
    kinds: tuple[list[_ArrayKind], KindColumn],
    hints: CombineHints,
) -> ArrayColumns:
    """Return the arrays with what is wanted of them, and nothing else."""
    kind = kinds[1]
    values = found.values.only((wanted[found.values.rows] & Fact.values) > 0)
    joined = np.zeros(len(kinds[0]), np.bool_)
    joined[kind[values.rows]] = True
    common = common_edges(arrays, kinds[0], kind, joined, hints)
    cuts = [each.cut(hints, common.get(at)) for at, each in enumerate(kinds[0])]
    number: dict[str, int] = {}
    of_kind = narrow(np.array([number.setdefault(text, len(number)) for text, *_ in cuts]))
    of_beside = np.array(
        [number.setdefault(text, len(number)) for text in beside.schema.values], np.int64
    )
    times = np.array([count for _, count, _ in cuts], np.int64)
    among = np.array([count for *_, count in cuts], np.int64)
    form = np.where(times > 1, Form.cut, Form.recorded).astype(np.uint8)
    nbytes = beside.nbytes[values.at]
    none = np.zeros_like(nbytes)

    def replaced(column: Counts, stored: NDArray[np.int64]) -> Counts:
        return Counts(_with(column.held, values.rows, stored))

    def counted(column: Counts, stored: NDArray[np.int64]) -> Counts:
        if (times == among).all():
            return replaced(column, stored)
        cut = mapped([column.held, kind], lambda count, at: count * times[at] // among[at])
        return replaced(Counts(cut), stored)

    schema = KindColumn(kind.kind, of_kind[kind.of_kind])
    forms = KindColumn(kind.kind, form[kind.of_kind])
    stored_there = np.full(len(values.rows), Form.beside)
    return replace(
        arrays,
        schema=Coded(
            _with(schema, values.rows, of_beside[beside.schema.codes[values.at]]), tuple(number)
        ).compact(),
        digest=_digests(arrays, beside, found, wanted, values.rows),
        labels=_labels(arrays.labels, beside.labels, found, wanted),
        virtual=counted(arrays.virtual, none),
        inline=counted(arrays.inline, (nbytes > 0).astype(np.int64)),
        virtual_bytes=replaced(arrays.virtual_bytes, none),
        inline_bytes=replaced(arrays.inline_bytes, nbytes),
        form=_with(forms, values.rows, stored_there) if len(values.rows) or form.any() else None,
    )


def _digests(
    arrays: ArrayColumns,
    beside: BesideColumns,
    found: _Beside,
    wanted: KindColumn,
    stored: NDArray[np.int64],
) -> Coded:
    """Return the wanted digests: of a row whose values are stored, the digest of these values."""
    number = {"": 0}
    own = np.array([number.setdefault(t, len(number)) for t in arrays.digest.values], np.int64)
    other = np.array([number.setdefault(t, len(number)) for t in beside.digest.values], np.int64)
    rows, at = found.digest
    mine = _among(rows, stored) | (own[arrays.digest.codes[rows]] == 0)
    mine &= (wanted[rows] & Fact.digest) > 0
    codes = mapped(
        [arrays.digest.codes, wanted],
        lambda code, facts: np.where((facts & Fact.digest) > 0, own[code], 0),
    )
    codes = _with(codes, rows[mine], other[beside.digest.codes[at[mine]]])
    return Coded(codes, tuple(number)).compact()


def _among(rows: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which rows are among others, which ascend."""
    at = np.searchsorted(ascending, rows)
    found = np.zeros(len(rows), np.bool_)
    inside = at < len(ascending)
    found[inside] = ascending[at[inside]] == rows[inside]
    return found


def _with(
    column: NumberColumn, rows: NDArray[np.int64], values: NDArray[np.integer]
) -> NumberColumn:
    """Return a column with other values in some rows."""
    if not len(rows):
        return column
    wide = np.promote_types(column.dtype, np.min_scalar_type(int(values.max())))
    found: NDArray[np.integer] = column.astype(wide)
    found[rows] = values
    return found


def _labels(own: Labels, beside: Labels, found: _Beside, wanted: KindColumn) -> Labels:
    """Return the labels that are wanted, of both columns."""
    mine = np.flatnonzero(wanted[own.row] & Fact.labels)
    rows, places = found.labels.only(
        ((wanted[found.labels.rows] & Fact.labels) > 0) & ~_among(found.labels.rows, own.row)
    )
    kept = own
    if len(mine) < len(own.row):
        kept = Labels(
            row=own.row[mine],
            value=own.value[mine],
            data=own.data,
            starts=own.starts,
            dtype=own.dtype.take(mine),
        )
    if not len(rows):
        return kept
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
