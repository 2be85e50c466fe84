"""Manifests: columns to bytes and back, without a loop over references."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.strings import StringsWithin
from icevirt.wire import header
from icevirt.wire.flatbuffer.builder import build
from icevirt.wire.flatbuffer.reader import FlatBufferReader
from icevirt.wire.flatbuffer.schema import ARRAY_MANIFEST, CHUNK_REF, MANIFEST, Field, Table, Vector
from icevirt.wire.header import FileKind
from icevirt.wire.manifests import manifest, open_manifest
from icevirt.wire.manifests.encoding import LocationCompression, LocationEncoding
from unit.wire.wire_values import manifests, meaning, virtual_table

NODE = ObjectId8(b"12345678")
ALWAYS = LocationCompression(encoding=LocationEncoding.dictionary, min_num_chunks=1)
PLAIN = LocationCompression(encoding=LocationEncoding.plain)

# the same tables with their references as ordinary vectors: the obvious, slow way to read and write
SLOW_ARRAY = Table(
    "ArrayManifest",
    tuple(
        Field("refs", Vector(CHUNK_REF), required=True) if field.name == "refs" else field
        for field in ARRAY_MANIFEST.fields
    ),
)
SLOW = Table(
    "Manifest",
    tuple(
        Field("arrays", Vector(SLOW_ARRAY), required=True) if field.name == "arrays" else field
        for field in MANIFEST.fields
    ),
)


def payload_of(raw):
    return header.unpack(raw, FileKind.manifest)[1]


def slowly(raw):
    return FlatBufferReader(payload_of(raw)).root(SLOW)


def slow_meaning(refs):
    """Say what rows read one by one mean; plain locations only."""
    found = {}
    for ref in refs:
        span = (ref["offset"], ref["length"])
        if ref["chunk_id"] is not None:
            found[tuple(ref["index"])] = (ref["chunk_id"], *span)
        elif ref["location"] is not None:
            etag, modified = ref["checksum_etag"] or "", ref["checksum_last_modified"]
            found[tuple(ref["index"])] = (ref["location"], etag, modified, *span)
        else:
            found[tuple(ref["index"])] = ref["inline"]
    return found


def slow_refs(table):
    refs = []
    for index, what in meaning(table).items():
        ref = {"index": list(index)}
        if isinstance(what, bytes):
            ref |= {"inline": what}
        elif len(what) == 3:
            ref |= dict(zip(("chunk_id", "offset", "length"), what, strict=True))
        else:
            fields = ("location", "checksum_etag", "checksum_last_modified", "offset", "length")
            ref |= {k: v or None for k, v in zip(fields, what, strict=True)}
        refs.append(ref)
    return refs


def slow_file(arrays, **more):
    values = {
        "id": bytes(12),
        "arrays": [{"node_id": node, "refs": refs} for node, refs in sorted(arrays.items())],
        "compression_algorithm": 0,
        **more,
    }
    return header.pack(FileKind.manifest, build(SLOW, values))


def meanings(arrays):
    return {node: meaning(table) for node, table in arrays.items()}


# -- both ways ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [PLAIN, ALWAYS], ids=["plain", "dictionary"])
@given(arrays=manifests)
def test_tables_read_back(how, arrays):
    made = manifest.encode(arrays, locations=how)
    found = manifest.decode(made.raw)
    assert meanings(found.arrays) == meanings(arrays)
    assert (found.id, found.num_chunk_refs) == (made.id, made.num_chunk_refs)


@given(manifests)
def test_writing_agrees_with_reading_row_by_row(arrays):
    values = slowly(manifest.encode(arrays, locations=PLAIN).raw)
    found = {each["node_id"]: slow_meaning(each["refs"]) for each in values["arrays"]}
    assert found == meanings(arrays)
    assert [each["node_id"] for each in values["arrays"]] == sorted(arrays)


@given(manifests)
def test_reading_agrees_with_writing_row_by_row(arrays):
    """Tables of an ordinary builder: any vtable, absent zeros, nothing shared."""
    raw = slow_file({node: slow_refs(table) for node, table in arrays.items()})
    assert meanings(manifest.decode(raw).arrays) == meanings(arrays)


@given(manifests)
def test_indices_of_all_arrays_are_read_together(arrays):
    """As whole tables have them, whatever wrote the manifest."""
    slow = slow_file({node: slow_refs(table) for node, table in arrays.items()})
    for raw in (manifest.encode(arrays).raw, slow):
        found = open_manifest.OpenManifest(raw).read_indices()
        assert {node: index.tolist() for node, index in found.items()} == {
            node: table.index.tolist() for node, table in arrays.items() if len(table)
        }


@given(manifests)
@settings(max_examples=15)
def test_a_manifest_written_again_is_the_same(arrays):
    """Once equal locations of a table are one, which reading makes of them."""
    made = manifest.encode(manifest.decode(manifest.encode(arrays).raw).arrays)
    assert manifest.encode(manifest.decode(made.raw).arrays) == made


def test_the_id_is_that_of_the_content():
    one, two = virtual_table(20), virtual_table(20, etag="x")
    ids = {
        manifest.encode({NODE: one}).id,
        manifest.encode({NODE: two}).id,
        manifest.encode({ObjectId8(bytes(8)): one}).id,
        manifest.encode({NODE: one}, level=1).id,
    }
    assert len(ids) == 4, "a difference in the file without one in its name"
    assert manifest.encode({NODE: one}) == manifest.encode({NODE: virtual_table(20)})


def test_the_id_in_the_file_is_its_name():
    made = manifest.encode({NODE: virtual_table(3000)})
    assert slowly(made.raw)["id"] == made.id


def test_the_algorithm_is_stored_when_it_is_none():
    """Absent means zstd."""
    assert slowly(manifest.encode({NODE: virtual_table(3)}).raw)["compression_algorithm"] == 0


def test_locations_are_shared():
    made = manifest.encode({NODE: virtual_table(5000, per_file=500)}, locations=PLAIN)
    assert payload_of(made.raw).count(b"s3://bucket/some/prefix/file_000003.nc") == 1


def test_an_etag_goes_before_a_time():
    table = virtual_table(3, etag="abc", last_modified=7)
    found = manifest.decode(manifest.encode({NODE: table}).raw).arrays[NODE].locations
    assert (found.etag[0], found.last_modified[0]) == ("abc", 0)


def test_arrays_without_references_are_left_out():
    made = manifest.encode({NODE: ChunkTable.empty(3)})
    assert manifest.decode(made.raw).arrays == {}


def test_every_number_is_aligned_and_every_reference_goes_forward():
    """What the official verifier checks; it is repeated here so that a failure says where."""
    table = ChunkTable.concatenate(
        [
            virtual_table(50, etag="x"),
            virtual_table(50).shift([50]),
            ChunkTable.of_inline(index=np.arange(100, 110)[:, None], chunks=[b"abc"] * 10),
        ]
    )
    payload = payload_of(manifest.encode({NODE: table, ObjectId8(bytes(8)): table}).raw)
    Verifier(payload).table(SLOW, int.from_bytes(payload[:4], "little"))


class Verifier(FlatBufferReader):
    """Reads row by row and asserts alignment on the way."""

    def table(self, table, at):
        assert at % 4 == 0
        return self._table(table, at)

    def _table(self, table, at):
        assert at % 4 == 0
        return super()._table(table, at)

    def _inside(self, kind, place):
        size = getattr(kind, "align", getattr(kind, "size", 4))
        assert place % size == 0, kind
        return super()._inside(kind, place)

    def _vector(self, kind, at):
        assert at % 4 == 0
        assert (at + 4) % getattr(kind.of, "size", 4) == 0
        return super()._vector(kind, at)


# -- refusals -------------------------------------------------------------------------------------


def changed(table, **columns):
    return dataclasses.replace(table, **columns)


GOOD = virtual_table(4)


@pytest.mark.parametrize(
    "table",
    {
        "rows out of order": GOOD.take(np.array([1, 0])),
        "an index twice": GOOD.take(np.array([1, 1])),
        "two rows without dimensions": changed(GOOD, index=np.zeros((4, 0), np.uint32)),
        "no such location": changed(GOOD, source=np.array([0, 0, 0, 1], np.uint32)),
        "no such chunk": changed(GOOD, kind=np.full(4, ChunkType.native, np.uint8)),
        "no such inline bytes": changed(GOOD, kind=np.full(4, ChunkType.inline, np.uint8)),
        "no kind": changed(GOOD, kind=np.zeros(4, np.uint8)),
    }.items(),
    ids=lambda case: case[0],
)
def test_what_no_reader_could_find_is_not_written(table):
    with pytest.raises(InvalidInputError):
        manifest.encode({NODE: table[1]})


def test_new_references_have_bytes_and_stored_ones_are_written_again_as_they_are():
    empty = changed(GOOD, length=np.array([1, 1, 0, 1], np.uint64))
    manifest.refuse_empty(GOOD)
    with pytest.raises(InvalidInputError, match=r"no bytes \(index=\(2,\)\)"):
        manifest.refuse_empty(empty)
    assert manifest.decode(manifest.encode({NODE: empty}).raw).arrays[NODE] == empty


def ref(*index, **fields):
    return {"index": list(index), "inline": b"x", **fields}


@pytest.mark.parametrize(
    "refs",
    {
        "rows out of order": [ref(1), ref(0)],
        "an index twice": [ref(0), ref(0)],
        "indices of two lengths": [ref(0), ref(1, 0)],
        "neither native nor virtual nor inline": [{"index": [0], "offset": 3}],
        "compressed without a dictionary": [{"index": [0], "compressed_location": b"abcdefgh"}],
    }.values(),
)
def test_what_would_mislead_a_reader_is_not_read(refs):
    with pytest.raises(FormatError):
        manifest.decode(slow_file({NODE: refs}))


def test_the_official_precedence_of_contradictory_fields_holds():
    """chunk_id, then location, then inline."""
    refs = [
        ref(0, location="a://b", length=1),
        ref(1, location="a://b", chunk_id=bytes(12), length=1),
        ref(2),
    ]
    found = manifest.decode(slow_file({NODE: refs})).arrays[NODE]
    kinds = [ChunkType.virtual, ChunkType.native, ChunkType.inline]
    assert found.kind.tolist() == kinds
    assert found.inline.tobytes() == b"x"


# -- locations ------------------------------------------------------------------------------------


def test_equal_locations_that_are_not_shared_are_found_equal():
    """As in the official client's files: 3,000 rows, 30 files, nothing shared."""
    rows = [
        {"index": [i], "location": f"s3://b/{i % 30:02d}", "offset": i, "length": 1}
        for i in range(3000)
    ]
    found = manifest.decode(slow_file({NODE: rows})).arrays[NODE]
    assert len(found.locations) == 30
    assert [found.locations.url[s] for s in found.source.tolist()] == [r["location"] for r in rows]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=30), st.data())
def test_locations_of_all_lengths_keep_apart(urls, data):
    rows = [
        {
            "index": [i],
            "location": url,
            "checksum_etag": data.draw(st.none() | st.sampled_from(["a", "ab", "abcde"])),
            "length": 1,
        }
        for i, url in enumerate(urls)
    ]
    found = manifest.decode(slow_file({NODE: rows})).arrays[NODE]
    output = [(r["location"], r["checksum_etag"] or "") for r in rows]
    pairs = [(found.locations.url[s], found.locations.etag[s]) for s in found.source.tolist()]
    assert pairs == output
    assert len(found.locations) == len(set(output))


@pytest.mark.parametrize("bad", [b"\xff", "é".encode()[:1], "é".encode()[1:]])
def test_a_location_that_is_no_text_is_refused(bad):
    raw = slow_file({NODE: [{"index": [0], "location": "s3://bucket/??", "length": 1}]})
    payload = payload_of(raw).replace(b"??", bad.ljust(2, b"x"))
    with pytest.raises(FormatError, match="UTF-8"):
        manifest.decode(header.pack(FileKind.manifest, payload))


def test_half_characters_of_two_neighbours_do_not_make_a_whole_one():
    rows = [{"index": [i], "location": f"{i}?", "length": 1} for i in range(2)]
    payload = payload_of(slow_file({NODE: rows}))
    payload = payload.replace(b"0?", b"0\xc3").replace(b"1?", b"\xa91")
    with pytest.raises(FormatError, match="UTF-8"):
        manifest.decode(header.pack(FileKind.manifest, payload))


def test_the_dictionary_compresses_each_distinct_location_once():
    made = manifest.encode({NODE: virtual_table(3000)}, locations=ALWAYS)
    values = slowly(made.raw)
    frames = [row["compressed_location"] for row in values["arrays"][0]["refs"]]
    assert values["compression_algorithm"] == 1
    assert len(values["location_dictionary"]) <= 2048
    assert len(set(frames)) == 300
    assert all(frame.startswith(bytes.fromhex("28B52FFD")) for frame in frames)
    assert meanings(manifest.decode(made.raw).arrays) == {NODE: meaning(virtual_table(3000))}


@pytest.fixture(params=[PLAIN, ALWAYS], ids=["strings", "frames"])
def in_place(request, monkeypatch):
    """Read locations where they stand, however few and short they are."""
    monkeypatch.setattr(open_manifest, "_WORTH_KEEPING", 10**6)
    monkeypatch.setattr(open_manifest, "_FEW_FRAMES", 0)
    return request.param


@pytest.mark.parametrize("url", ["s3://b/{}", "s3://b/" + 200 * "x" + "{}", "s3://b/é{}"])
@pytest.mark.parametrize("checksum", [{}, {"etag": "x"}, {"last_modified": 3}], ids=str)
def test_locations_are_read_where_they_stand(in_place, url, checksum):
    """Beside inline and native chunks, with lengths that have bytes of no ASCII, and outside it."""
    table = virtual_table(3000, per_file=1, url=url, **checksum)
    more = ChunkTable.of_inline(index=np.arange(4000, 4004)[:, None], chunks=[b"\xff"] * 4)
    arrays = {NODE: ChunkTable.concatenate([table, more]), ObjectId8(b"87654321"): table}
    made = manifest.encode(arrays, locations=in_place)
    found = manifest.decode(made.raw)
    assert isinstance(found.arrays[NODE].locations.url, StringsWithin) is (
        in_place is ALWAYS or "é" not in url
    )
    assert meanings(found.arrays) == meanings(arrays)
    assert manifest.encode(manifest.decode(made.raw).arrays, locations=in_place) == made


def test_frames_asked_for_one_by_one_are_those_locations(monkeypatch):
    """However many: the first few are decompressed one by one, and then all."""
    monkeypatch.setattr(open_manifest, "_WORTH_KEEPING", 10**6)
    table = virtual_table(3000, per_file=1)
    raw = manifest.encode({NODE: table}, locations=ALWAYS).raw
    urls = manifest.decode(raw).arrays[NODE].locations.url
    assert isinstance(urls, open_manifest.Frames)
    assert [urls[row] for row in range(3000)] == list(table.locations.url)


def test_a_damaged_frame_is_reported_when_it_is_looked_up(monkeypatch):
    monkeypatch.setattr(open_manifest, "_WORTH_KEEPING", 10**6)
    table = virtual_table(3000, per_file=1)
    payload = bytearray(payload_of(manifest.encode({NODE: table}, locations=ALWAYS).raw))
    at = payload.rindex(bytes.fromhex("28B52FFD"))
    size = int.from_bytes(payload[at - 4 : at], "little")
    payload[at + 9 : at + size] = b"\xff" * (size - 9)
    urls = manifest.decode(header.pack(FileKind.manifest, payload)).arrays[NODE].locations.url
    assert urls[0] == table.locations.url[0]
    with pytest.raises(FormatError, match="damaged"):
        urls[len(urls) - 1]


@pytest.mark.parametrize("at", [0, 1500, 2999])
def test_one_string_of_many_that_is_no_text_is_refused(in_place, at):
    if in_place is ALWAYS:
        pytest.skip("frames are looked at when they are decompressed")
    url = virtual_table(3000, per_file=1).locations.url[at].encode()
    payload = payload_of(manifest.encode({NODE: virtual_table(3000, per_file=1)}).raw)
    assert payload.count(url + b"\0") == 1
    payload = payload.replace(url + b"\0", url[:-1] + b"\xc3\0")
    with pytest.raises(FormatError, match="UTF-8"):
        manifest.decode(header.pack(FileKind.manifest, payload))


def test_locations_over_1024_bytes_are_never_compressed():
    """The official client writes such and cannot read them again."""
    long = virtual_table(30, url="s3://bucket/" + "x" * 1020 + "{}")
    short = virtual_table(30, per_file=1).shift([30])
    table = ChunkTable.concatenate([long, short])
    refs = slowly(manifest.encode({NODE: table}, locations=ALWAYS).raw)["arrays"][0]["refs"]
    assert [row["location"] is None for row in refs] == [False] * 30 + [True] * 30
    made = manifest.encode({NODE: table}, locations=ALWAYS)
    assert meanings(manifest.decode(made.raw).arrays) == {NODE: meaning(table)}


@pytest.mark.parametrize(
    ("table", "how", "compressed"),
    [
        (virtual_table(999), LocationCompression(encoding=LocationEncoding.dictionary), False),
        (virtual_table(1000), LocationCompression(encoding=LocationEncoding.dictionary), True),
        (virtual_table(1000), LocationCompression(), False),  # strings are smaller here
        (virtual_table(1000), PLAIN, False),
        (virtual_table(1000, url="a:{}"), ALWAYS, False),  # too short to be worth it
        (
            ChunkTable.of_inline(index=np.arange(1000)[:, None], chunks=[b"x"] * 1000),
            ALWAYS,
            False,
        ),
    ],
)
def test_the_official_thresholds_decide(table, how, compressed):
    values = slowly(manifest.encode({NODE: table}, locations=how).raw)
    assert (values["compression_algorithm"] == 1) is compressed
    assert (values["location_dictionary"] is not None) is compressed


def test_a_million_references_of_every_kind_read_back():
    n = 1_000_000
    index = np.stack(np.unravel_index(np.arange(n), (100, 100, 100)), axis=1).astype(np.uint32)
    kind = (np.arange(n) % 3 + 1).astype(np.uint8)
    source = (np.arange(n) % 1000).astype(np.uint32)
    source[kind == ChunkType.inline] = 0
    length = np.where(kind == ChunkType.inline, 8, np.arange(n) + 1).astype(np.uint64)
    offset = np.where(kind == ChunkType.inline, np.arange(n) * 2, np.arange(n)).astype(np.uint64)
    inline = np.arange(2 * n + 8, dtype=np.int64).astype(np.uint8)
    table = ChunkTable(
        index=index,
        kind=kind,
        source=source,
        offset=offset,
        length=length,
        inline=inline,
        locations=virtual_table(1000, per_file=1).locations,
        chunk_ids=np.random.default_rng(1).integers(0, 256, (1000, 12), np.uint8),
    )
    found = manifest.decode(manifest.encode({NODE: table}).raw).arrays[NODE]
    assert np.array_equal(found.index, index)
    assert np.array_equal(found.kind, kind)
    assert np.array_equal(found.length, length)
    stored = kind != ChunkType.inline
    assert np.array_equal(found.offset[stored], offset[stored])
    native = kind == ChunkType.native
    assert np.array_equal(found.chunk_ids[found.source[native]], table.chunk_ids[source[native]])
    virtual = kind == ChunkType.virtual
    assert found.locations.take(found.source[virtual]) == table.locations.take(source[virtual])
    inlined = ~stored
    at = found.offset[inlined].astype(np.int64)[:, None] + np.arange(8)
    want = offset[inlined].astype(np.int64)[:, None] + np.arange(8)
    assert np.array_equal(found.inline[at], inline[want])


def test_a_location_table_with_unused_rows_leaves_no_trace():
    table = virtual_table(10)
    padded = changed(table, locations=table.locations + Locations.one("s3://bucket/unused"))
    assert manifest.encode({NODE: padded}, locations=PLAIN) == manifest.encode(
        {NODE: table}, locations=PLAIN
    )


def test_ids_are_of_the_right_type():
    made = manifest.encode({NODE: virtual_table(3)})
    assert isinstance(made.id, ObjectId12)
    assert isinstance(manifest.decode(made.raw).id, ObjectId12)
    assert all(isinstance(node, ObjectId8) for node in manifest.decode(made.raw).arrays)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, LocationCompression()),
        ({"manifest": None}, LocationCompression()),
        ({"manifest": {"virtual_chunk_location_compression": None}}, LocationCompression()),
        (
            {
                "manifest": {
                    "virtual_chunk_location_compression": {
                        "min_num_chunks": 5,
                        "dictionary_max_training_samples": None,
                        "compression_level": -1,
                        "of_the_future": 3,
                    }
                }
            },
            LocationCompression(min_num_chunks=5, compression_level=-1),
        ),
    ],
)
def test_settings_come_from_the_persisted_configuration(document, expected):
    assert LocationCompression.of_config(document) == expected
