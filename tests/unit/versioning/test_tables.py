"""Vectorised table arithmetic agrees with its obvious loop."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.config import containers
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.strings import Strings
from icevirt.versioning import chunk_tables as tables

PLACES = Locations(
    url=Strings.of([f"file:///d/{n}" for n in range(5)]),
    etag=Strings.of(["", "e", "", "f", ""]),
    last_modified=np.arange(5, dtype=np.uint32),
)


def rows_of(table):
    """Every reference as a plain tuple, by index."""
    found = {}
    for row, index in enumerate(map(tuple, table.index.tolist())):
        kind, source = int(table.kind[row]), int(table.source[row])
        offset, length = int(table.offset[row]), int(table.length[row])
        if kind == ChunkType.virtual:
            places = table.locations
            where = (
                places.url[source],
                places.etag[source],
                int(places.last_modified[source]),
                offset,
            )
        elif kind == ChunkType.native:
            where = (table.chunk_ids[source].tobytes(), offset)
        elif kind == ChunkType.inline:
            where = table.inline[offset : offset + length].tobytes()
        else:
            where = None
        found[index] = (kind, where, length)
    return found


@st.composite
def chunk_tables(draw, ndim=None, edge=4):
    ndim = draw(st.integers(1, 3)) if ndim is None else ndim
    spots = draw(st.sets(st.tuples(*[st.integers(0, edge - 1)] * ndim), max_size=20))
    n = len(spots)
    kind = np.array(draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=n, max_size=n)), np.uint8)
    source = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), np.uint32)
    length = np.array(draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)), np.uint64)
    length[kind == 0] = 0
    source[kind == 3] = 0
    offset = np.arange(n, dtype=np.uint64) * 10 + 3
    return ChunkTable(
        index=np.array(sorted(spots), np.uint32).reshape(n, ndim),
        kind=kind,
        source=source,
        offset=offset,
        length=length,
        locations=PLACES,
        chunk_ids=np.arange(60, dtype=np.uint8).reshape(5, 12),
        inline=np.arange(250, dtype=np.uint8),
    )


@given(chunk_tables())
def test_compacting_changes_no_reference(table):
    small = tables.compact(table)
    assert rows_of(small) == rows_of(table)
    used = {int(s) for s in table.source[table.kind == ChunkType.virtual]}
    assert len(small.locations) == len(used)
    assert len(small.inline) == int(table.length[table.kind == ChunkType.inline].sum())


@given(chunk_tables(ndim=2), chunk_tables(ndim=2))
def test_the_upper_table_wins(base, over):
    assert rows_of(tables.overlay(base, over)) == rows_of(base) | rows_of(over)


@given(chunk_tables())
def test_deleted_rows_are_not_stored(table):
    kept = {index: row for index, row in rows_of(table).items() if row[0]}
    assert rows_of(tables.drop_deleted(table)) == kept


@given(chunk_tables(ndim=2), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_the_finder_agrees_with_a_loop(table, wanted):
    index = np.array(wanted, np.int64).reshape(len(wanted), 2)
    rows = {tuple(found): row for row, found in enumerate(table.index.tolist())}
    expected = [rows.get(item, -1) for item in wanted]
    assert tables.RowFinder.of(table).find(index).tolist() == expected
    assert table.rows_of(index).tolist() == expected


def test_the_finder_finds_the_one_chunk_of_a_scalar():
    table = ChunkTable.of_inline(index=np.zeros((1, 0), np.uint32), chunks=[b"x"])
    assert tables.RowFinder.of(table).find(np.zeros((2, 0), np.int64)).tolist() == [0, 0]


prefixes = st.lists(st.sampled_from(["a/", "ab/", "a/b/", "ba/", "longer/than/most/"]), max_size=3)


@given(st.lists(st.text("ab/", max_size=12), max_size=10), prefixes)
def test_coverage_agrees_with_startswith(urls, starts):
    bad = [url for url in urls if not url.startswith(tuple(starts))]
    assert containers.first_uncovered(Strings.of(urls), starts) == (bad[0] if bad else None)


def test_a_named_container_covers_its_name_as_well():
    cont = VirtualChunkContainer("file:///d/", local_filesystem_store("/d"), "mine")
    assert containers.prefixes_of([cont]) == ("file:///d/", "vcc://mine/")


spots = st.lists(
    st.tuples(*[st.sampled_from([0, 1, 7, 2**31, 2**32 - 1])] * 4), min_size=2, max_size=30
)


@given(spots, spots)
def test_chunks_far_apart_in_many_dimensions_are_found(held, wanted):
    held = sorted({*held, (0, 0, 0, 0), (2**32 - 1,) * 4})
    n = len(held)
    table = ChunkTable(
        index=np.array(held, np.uint32),
        kind=np.full(n, 3, np.uint8),
        source=np.zeros(n, np.uint32),
        offset=np.arange(n, dtype=np.uint64),
        length=np.ones(n, np.uint64),
        inline=np.zeros(n, np.uint8),
    )
    rows = {spot: row for row, spot in enumerate(held)}
    found = tables.RowFinder.of(table).find(np.array(wanted, np.int64))
    assert found.tolist() == [rows.get(spot, -1) for spot in wanted]


@given(st.integers(0, 3).flatmap(lambda n: st.lists(chunk_tables(ndim=n), min_size=1, max_size=6)))
def test_many_layers_agree_with_a_loop(layers):
    expected = {}
    for layer in layers:
        expected |= rows_of(layer)
    whole = tables.overlay_all(layers)
    assert rows_of(whole) == dict(sorted(expected.items()))


@given(chunk_tables())
def test_a_few_rows_of_many_locations_compact_as_many_rows_do(table):
    urls = [f"file:///d/{n}" for n in range(1000)]
    many = Locations(
        url=Strings.of(urls), etag=Strings.of([""] * 1000), last_modified=np.zeros(1000, np.uint32)
    )
    table = replace(table, locations=many)
    small = tables.compact(table)
    assert rows_of(small) == rows_of(table)
    used = np.unique(table.source[table.kind == ChunkType.virtual])
    assert [small.locations.url[n] for n in range(len(used))] == [urls[n] for n in used]
