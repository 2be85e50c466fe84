"""Arrays that are gathered by kind are the rows of the parts, in the order of their files."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.kinds import KindColumn
from icevirt.archive.repeated import Repeated
from icevirt.archive.schema import ArraySchema
from icevirt.catalog import facts_reader
from icevirt.catalog.facts_reader import COUNTS, TEXTS, GatheredArrays
from icevirt.model.attributes import Attributes

SCHEMAS = [
    ArraySchema(
        dimension_names=("x",),
        chunk_shape=(edge,),
        data_type="int8",
        codecs=("bytes",),
        fill_value=0,
        attributes=Attributes(),
    ).dumps()
    for edge in (1, 2, 3)
]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["/a", "/b"]),
        st.sampled_from(SCHEMAS),
        st.integers(0, 5).map(lambda length: f"[{length}]"),
        st.sampled_from(["d", None]),
        *[st.integers(0, 3)] * 3,
        st.integers(0, 1 << 40),
    ),
    max_size=6,
)


@given(
    st.lists(ROWS, min_size=1, max_size=5),
    st.integers(1, 6),
    st.sampled_from([1, 1 << 40]),
    st.randoms(),
)
def test_they_are_the_rows_of_all_parts(parts, most, wide, random):
    """However many kinds may be, and in whichever order parts come."""
    order = [*range(len(parts))]
    random.shuffle(order)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(facts_reader, "_MOST", most)
        patched.setattr(facts_reader, "_WIDE", wide)
        gathered = GatheredArrays()
        for place, at in enumerate(order):
            gathered.add(table_of(parts[at]), np.full(len(parts[at]), order[place], np.int32))
        assert gathered.rows == sum(map(len, parts))
        places, columns, _ = gathered.take()
    wanted = [(at, *row) for at, rows in enumerate(parts) for row in rows]
    assert np.asarray(places).tolist() == [each[0] for each in wanted]
    for number, name in enumerate((*TEXTS, *COUNTS), 1):
        column, held = columns[name], [each[number] for each in wanted]
        if name in TEXTS:
            texts = [text or "" for text in held]
            assert [column[row] for row in range(len(wanted))] == texts
            assert column.values == tuple(dict.fromkeys(texts))
        else:
            assert column[np.arange(len(wanted))].tolist() == held


def test_what_differs_from_row_to_row_is_held_by_row():
    rows = [("/a", SCHEMAS[0], "[1]", "", 1, 0, n, 0) for n in range(facts_reader._MOST + 1)]
    gathered = GatheredArrays()
    gathered.add(table_of(rows), np.arange(len(rows), dtype=np.int32))
    gathered.add(table_of(rows[:3]), np.arange(3, dtype=np.int32) + len(rows))
    _, columns, _ = gathered.take()
    assert isinstance(columns["path"].codes, KindColumn)
    assert columns["path"].codes.of_kind.tolist() == [0]
    assert columns["virtual_bytes"].held.tolist() == [*range(len(rows)), 0, 1, 2]


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from([2, 1 << 12]),
    st.booleans(),
)
def test_files_take_what_they_do_not_repeat(parts, most, ends_with_another):
    """Whatever the number of their arrays; then they are as they were, if another file follows."""
    parts = [
        [("/a", SCHEMAS[0], f"[{at}]", "", 1, 0, at, 0) for at in range(8)]
        + [("/b", SCHEMAS[0], f"[{length}]", "", 1, 0, 9, 0)]
        for lengths in parts
        for length in lengths
    ]
    more = [parts[0][:5]] if ends_with_another else []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(facts_reader, "_MOST", most)
        gathered = GatheredArrays()
        for place, rows in enumerate([*parts, *more]):
            gathered.add(table_of(rows), np.full(len(rows), place, np.int32))
            gathered.add(table_of([]), np.zeros(0, np.int32))
        _, columns, _ = gathered.take()
    wanted = [row for rows in (*parts, *more) for row in rows]
    for number, name in enumerate((*TEXTS, *COUNTS)):
        column, held = columns[name], [row[number] for row in wanted]
        found = [column[row] for row in range(len(wanted))] if name in TEXTS else column[:].tolist()
        assert found == held
    assert isinstance(columns["path"].codes.kind, np.ndarray if more else Repeated)


def test_a_driver_holds_no_more_of_files_with_many_arrays():
    """80 files of 300 arrays, of which one has another digest in each."""
    gathered = GatheredArrays()
    for part in range(2):
        rows = [
            (f"/v{at}", SCHEMAS[0], "[1]", f"{part}{file}" if not at else "", 1, 0, 9, 0)
            for file in range(40)
            for at in range(300)
        ]
        places = np.repeat(np.arange(40, dtype=np.int32), 300) + 40 * part
        gathered.add(table_of(rows), places)
    _, columns, _ = gathered.take()
    kinds = columns["path"].codes.kind
    assert len(kinds) == 24_000
    assert kinds.own.nbytes + kinds.base.nbytes <= 4 * 80 + 2 * 300


def test_a_shape_of_other_dimensions_than_its_schema_is_found():
    """Also where one of the two is no longer part of a kind."""
    good = [("/a", SCHEMAS[0], json.dumps([n]), "", 1, 0, 0, 0) for n in range(3)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(facts_reader, "_MOST", 2)
        for first in (good[:1], good):
            gathered = GatheredArrays()
            gathered.add(table_of(first), np.arange(len(first), dtype=np.int32))
            bad = [("/a", SCHEMAS[0], "[1, 2]", "", 1, 0, 0, 0)]
            with pytest.raises(ValueError, match="a shape of other dimensions"):
                gathered.add(table_of(bad), np.array([9], np.int32))


def table_of(rows):
    """Return rows as a table of the catalog is read."""
    columns = [[*column] for column in zip(*rows, strict=True)] or [[]] * 8
    names = (*TEXTS, *COUNTS)
    return pa.table(
        {
            name: pa.array(column, pa.string()).dictionary_encode()
            if name in TEXTS
            else pa.array(column, pa.int64())
            for name, column in zip(names, columns, strict=True)
        }
    )
