"""Show recorded facts as a way of combining files wants them, or say which facts are lacking.

A scan knows nothing of how files will be combined. What is decided here, for each kind of array
once: which runs are cut, which arrays are stored whole, which digests and labels count.

A chunk of uncompressed values is a run of bytes, and so is each part of it along its first axis. If
granules do not begin where a chunk of one length begins, shorter chunks may fit them all, and
nothing needs to be stored. Compressed chunks cannot be cut.
The fill value of chunks that were never written does not matter in files that wrote all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import (
    ArrayColumns,
    BesideColumns,
    CatalogFacts,
    Coded,
    Counts,
    Labels,
    describe_variables,
    listing_groups,
)
from icevirt.archive.joining import STEP, Fact, Form, find_edge
from icevirt.archive.kinds import KindColumn, NumberColumn, joint, map_columns, narrow, spread
from icevirt.archive.schema import ArraySchema
from icevirt.model.json import JSON
from icevirt.planning.combine.hints import CombineHints, Recorded, find_limits

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
        edges = hints.cut(array) if edge is None else (edge, *array.chunk_shape[1:])
        times = array.chunk_shape[0] // edges[0] if edges else 1
        schema = replace(self.schema, chunk_shape=edges, contiguous=False).dumps()
        if edge is None or array.shape[0] % array.chunk_shape[0] == 0:
            return schema, times, 1
        # the last chunk is as long as all others, but ends behind the values
        return schema, array.shape[0] // edge, -(-array.shape[0] // array.chunk_shape[0])


def resolve_needs(
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
    if hints.tolerant:  # tolerances of coordinates cover their bounds too
        covered = find_limits(dict.fromkeys(hints.tolerant, 0.0), describe_variables(facts))
        hints = replace(hints, tolerant=tuple(sorted({*hints.tolerant, *covered})))
    kinds, kind = _kinds(arrays)
    hints = hints.with_uneven_texts(each.array for each in kinds)
    for at, fill in common_fills(arrays, kinds, kind).items():
        kinds[at] = kinds[at]._replace(schema=replace(kinds[at].schema, fill_value=fill))
    equal = frozenset(hints.equal)
    if hints.stack:
        equal = hints.equal_in_files(describe_variables(facts), listing_groups(facts))
    of_kind = np.array(
        [
            int(
                hints.choose_facts(
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
    has_digest = np.array([bool(text) for text in arrays.digest.values], np.uint8)
    rows, fact = _find_lacking(arrays, of_kind, kind, has_digest, found)
    if len(rows):
        return LackingFacts(
            file=arrays.file[rows],
            path=arrays.path.take(rows),
            fact=fact,
            equal=tuple(sorted(equal)),
            tolerant=hints.tolerant,
        )
    wanted = KindColumn(kind.kind, of_kind[kind.of_kind])
    if not hints.concat_dims:  # labels of variables with one value, which may become a dimension's
        rows_wanted: NDArray[np.uint8] = wanted.astype(np.uint8)
        rows_wanted[arrays.labels.row] |= np.uint8(Fact.labels)
        most = int(rows_wanted.max(initial=0))
        wanted = KindColumn(rows_wanted, np.arange(most + 1, dtype=np.uint8))
    return replace(facts, arrays=_make(arrays, beside, found, wanted, (kinds, kind), hints))


def _find_lacking(
    arrays: ArrayColumns,
    needed: NDArray[np.uint8],
    kind: KindColumn,
    has_digest: NDArray[np.uint8],
    found: _Beside,
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the rows of arrays that lack facts which their kind needs, and which they lack."""
    places, facts = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
    recorded = has_digest * np.uint8(Fact.digest)
    for low in range(0, len(arrays.file), _ROWS):
        some = slice(low, low + _ROWS)
        lacking = needed[kind[some]] & ~recorded[arrays.digest.codes[some]]
        places.append(np.flatnonzero(lacking) + low)
        facts.append(lacking[lacking > 0])
    rows, fact = np.concatenate(places), np.concatenate(facts)
    fact[arrays.labels.places(rows) >= 0] &= ~np.uint8(Fact.labels)
    asked = np.searchsorted(rows, found.asked.rows)
    there = (
        np.flatnonzero(rows[np.minimum(asked, len(rows) - 1)] == found.asked.rows)
        if len(rows)
        else asked[:0]
    )
    np.bitwise_and.at(fact, asked[there], ~found.asked.at[there].astype(np.uint8))
    return rows[fact > 0], fact[fact > 0]


def _kinds(arrays: ArrayColumns) -> tuple[list[_ArrayKind], KindColumn]:
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
        row = _find_rows(arrays, beside) if len(beside.file) else none
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


def _find_rows(arrays: ArrayColumns, beside: BesideColumns) -> NDArray[np.int64]:
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


def _make(  # noqa: PLR0917 - what is known of the arrays
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

    def replace_counts(column: Counts, stored: NDArray[np.int64]) -> Counts:
        return Counts(_put(column.held, values.rows, stored))

    def fill_counts(column: Counts, stored: NDArray[np.int64]) -> Counts:
        if (times == among).all():
            return replace_counts(column, stored)
        cut = map_columns([column.held, kind], lambda count, at: count * times[at] // among[at])
        return replace_counts(Counts(cut), stored)

    schema = KindColumn(kind.kind, of_kind[kind.of_kind])
    forms = KindColumn(kind.kind, form[kind.of_kind])
    stored_there = np.full(len(values.rows), Form.beside)
    return replace(
        arrays,
        schema=Coded(
            _put(schema, values.rows, of_beside[beside.schema.codes[values.at]]), tuple(number)
        ).compact(),
        digest=_choose_digests(arrays, beside, found, wanted, values.rows),
        labels=_choose_labels(arrays.labels, beside.labels, found, wanted),
        virtual=fill_counts(arrays.virtual, none),
        inline=fill_counts(arrays.inline, (nbytes > 0).astype(np.int64)),
        virtual_bytes=replace_counts(arrays.virtual_bytes, none),
        inline_bytes=replace_counts(arrays.inline_bytes, nbytes),
        form=_put(forms, values.rows, stored_there) if len(values.rows) or form.any() else None,
    )


def _choose_digests(
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
    mine = _find_among(rows, stored) | (own[arrays.digest.codes[rows]] == 0)
    mine &= (wanted[rows] & Fact.digest) > 0
    codes = map_columns(
        [arrays.digest.codes, wanted],
        lambda code, facts: np.where((facts & Fact.digest) > 0, own[code], 0),
    )
    codes = _put(codes, rows[mine], other[beside.digest.codes[at[mine]]])
    return Coded(codes, tuple(number)).compact()


def _find_among(rows: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which rows are among others, which ascend."""
    at = np.searchsorted(ascending, rows)
    found = np.zeros(len(rows), np.bool_)
    inside = at < len(ascending)
    found[inside] = ascending[at[inside]] == rows[inside]
    return found


def _put(
    column: NumberColumn, rows: NDArray[np.int64], values: NDArray[np.integer]
) -> NumberColumn:
    if not len(rows):
        return column
    wide = np.promote_types(column.dtype, np.min_scalar_type(int(values.max())))
    found: NDArray[np.integer] = column.astype(wide)
    found[rows] = values
    return found


def _choose_labels(own: Labels, beside: Labels, found: _Beside, wanted: KindColumn) -> Labels:
    mine = np.flatnonzero(wanted[own.row] & Fact.labels)
    rows, places = found.labels.only(
        ((wanted[found.labels.rows] & Fact.labels) > 0) & ~_find_among(found.labels.rows, own.row)
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
        some = [kinds[number][0] for number in members]
        is_joined = all(0 in hints.find_joined_axes(each.dimension_names) for each in some)
        if not is_joined or any(len(kinds[number][1].codecs) != 1 for number in members):
            continue
        if any(prod(each.shape) == 0 for each in some):
            continue
        edge = _find_common_edge(some, hints.most_together)
        if edge is None or not _needs_common_edge(rows, members, some, hints):
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
        grid = np.array(
            [
                prod(-(-n // edge) for n, edge in zip(each.shape, each.chunk_shape, strict=True))
                for each, _ in self._kinds
            ],
            np.int64,
        )
        found = np.ones(len(self._kinds), np.bool_)
        for some in self._blocks():
            kind = self._kind[some]
            is_so = says(self._arrays.virtual[some], self._arrays.inline[some], grid[kind])
            found[kind[~is_so]] = False
        return found

    def _blocks(self) -> Iterator[slice]:
        for low in range(0, len(self._kind), _ROWS):
            yield slice(low, low + _ROWS)


def _find_common_edge(arrays: Sequence[Recorded], most: int) -> int | None:
    """Return the longest chunks that divide all chunks and lengths; None if they are too small.

    Args:
        arrays: Of one variable.
        most: Bytes up to which contiguous values stay together; 0: they are cut to single steps.
    """
    first = arrays[0]
    if any(each.chunk_shape[1:] != first.chunk_shape[1:] for each in arrays):
        return None
    step = prod(first.chunk_shape[1:]) * first.itemsize
    cuts = any(each.contiguous for each in arrays)
    if step >= STEP and cuts and not most:
        return 1  # as contiguous values are cut in any case
    edge = gcd(*(n for each in arrays for n in (each.chunk_shape[0], each.shape[0])))
    if cuts and most:
        edge = find_edge(edge, most // max(step, 1))
    return edge if edge * step >= STEP else None


def _needs_common_edge(
    rows: _Rows, members: Sequence[int], some: Sequence[Recorded], hints: CombineHints
) -> bool:
    """Say whether chunks differ, or files but the last one listed end within a chunk."""
    edges = {  # where nothing but their own file decides it
        hints.cut(each)[0] if each.contiguous else each.chunk_shape[0] for each in some
    }
    if len(edges) > 1:
        return True
    (edge,) = edges
    odd = [at for at, each in zip(members, some, strict=True) if each.shape[0] % edge]
    if not odd:
        return False
    last = members[int(np.argmax(rows.last[members]))]
    return int(rows.counts[odd].sum()) > int(last in odd)
