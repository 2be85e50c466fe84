"""A chunk is found by bisection where decoding the whole manifest finds it, and nowhere else."""

import random
import struct
import time

import icechunk
import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8
from icevirt.model.chunks import ChunkTable
from icevirt.wire import header
from icevirt.wire.flatbuffer.reader import FlatBufferReader
from icevirt.wire.flatbuffer.schema import CHUNK_REF, MANIFEST, Damage
from icevirt.wire.header import FileKind
from icevirt.wire.manifests import index_search, manifest, open_manifest
from icevirt.wire.manifests.open_manifest import OpenManifest
from unit.wire.test_hostile import SECONDS, SEEDS, changed, file_of
from unit.wire.test_manifest import ALWAYS, PLAIN, payload_of, slow_file, slow_refs
from unit.wire.wire_values import manifests, meaning, virtual_table

NODE = ObjectId8(b"12345678")
NUMBERS = (0, 1, 5, 2**31, 2**32 - 1)


@pytest.fixture(scope="module", autouse=True)
def unchecked():
    """Small manifests are looked up like large ones: without a check, until it is needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_search, "_LOOKUP", 0)
        patch.setattr(index_search, "_FOLLOWED", 0)
        yield


def neighbors(index, rng):
    """Return indices as a request has them: some of these, others near them, some twice."""
    far = rng.choice(NUMBERS, (4, index.shape[1]))
    near = np.clip(index.astype(np.int64) + rng.integers(-1, 2, index.shape), 0, 2**32 - 1)
    wanted = np.concatenate([index, near, far]).astype(np.int64)
    return wanted[rng.integers(0, len(wanted), len(wanted) + 2)]


def check_lookups(raw, seed=0):
    """Look up what is there and what is not; compare with the whole manifest. Return its tables."""
    rng = np.random.default_rng(seed)
    whole = manifest.decode(raw)
    for node, table in whole.arrays.items():
        opened = OpenManifest(raw)
        known = meaning(table)
        for wanted in (neighbors(table.index, rng), table.index[:1].astype(np.int64)):
            there, found = opened.find(node, wanted)
            places = [at for at, one in enumerate(wanted.tolist()) if tuple(one) in known]
            assert there.tolist() == places
            assert found.index.tolist() == wanted[there].tolist()
            assert meaning(found) == {tuple(one): known[tuple(one)] for one in found.index.tolist()}
        assert opened.decode() == whole
    return whole.arrays


# -- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [PLAIN, ALWAYS], ids=["plain", "dictionary"])
@given(arrays=manifests, seed=st.integers(0, 99))
def test_chunks_are_found_in_our_manifests(how, arrays, seed):
    check_lookups(manifest.encode(arrays, locations=how).raw, seed)


@given(arrays=manifests, seed=st.integers(0, 99))
def test_chunks_are_found_in_manifests_of_an_ordinary_builder(arrays, seed):
    check_lookups(slow_file({node: slow_refs(table) for node, table in arrays.items()}), seed)


@given(
    rows=st.integers(1, 300),
    sides=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    share=st.sampled_from([1.0, 0.9, 0.1]),
    etag=st.sampled_from(["", "x"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=50)
def test_chunks_are_found_in_records(rows, sides, share, etag, seed):
    """References of one kind are read where they stand: full boxes, and boxes with gaps."""
    rng = np.random.default_rng(seed)
    shape = (rows, *sides)
    index = np.indices(shape, np.uint32).reshape(len(shape), -1).T[:2000]
    kept = rng.random(len(index)) < share
    kept[:1] = True
    index = index[kept] + rng.integers(0, 2**31, len(shape)).astype(np.uint32)
    table = virtual_table(len(index), per_file=7, etag=etag).reindex(index)
    raw = manifest.encode({NODE: table}, locations=PLAIN).raw
    check_lookups(raw, seed)
    opened = OpenManifest(raw)
    unread = opened.nbytes
    absent = np.full((1, len(shape)), 2**32 - 1)
    there, _ = opened.find(NODE, np.concatenate([index.astype(np.int64), absent]))
    assert len(there) == len(index)
    assert opened.nbytes == unread  # no index was copied


def test_chunks_are_found_in_manifests_of_released_clients():
    tables = [
        table
        for kind, _, payload in SEEDS
        if kind is FileKind.manifest
        for table in check_lookups(file_of(kind, payload)).values()
    ]
    assert len(tables) > 20


VIRTUAL = st.integers(1, 40) | st.just(1300)  # from 1,000 on, locations are compressed


@given(virtual=VIRTUAL, inline=st.integers(0, 9), native=st.integers(0, 9), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_chunks_are_found_in_manifests_of_the_official_client(
    tmp_path_factory, virtual, inline, native, seed
):
    rng = np.random.default_rng(seed)
    root = tmp_path_factory.mktemp("official")
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(root)))
    session = repo.writable_session("main")
    side = 40
    array = zarr.create_array(
        session.store,
        name="x",
        shape=(side * 100, side * 100),
        chunks=(100, 100),
        dtype="f4",
        compressors=None,
    )
    cells = rng.permutation(side * side)[: virtual + inline + native]
    index = np.stack(np.unravel_index(cells, (side, side)), axis=1)
    specs = [
        icechunk.VirtualChunkSpec(
            index=row.tolist(),
            location=f"s3://bucket/prefix/{n // 4:09d}.nc",
            offset=n,
            length=n + 1,
            etag_checksum="e" if n % 2 else None,
        )
        for n, row in enumerate(index[:virtual])
    ]
    session.store.set_virtual_refs("x", specs, validate_containers=False)
    for row in index[virtual:]:
        corner = tuple(slice(at * 100, at * 100 + 100) for at in row.tolist())
        array[corner] = rng.random((100, 100))
    small = zarr.create_array(session.store, name="y", shape=(40,), chunks=(1,), dtype="f4")
    for at in range(inline):
        small[at] = 1 + at
    session.commit("all")
    raws = [path.read_bytes() for path in (root / "manifests").iterdir()]
    tables = [table for raw in raws for table in check_lookups(raw, seed).values()]
    assert sum(len(table) for table in tables) == virtual + 2 * inline + native


def test_locations_compressed_with_a_dictionary_are_found_one_by_one():
    table = virtual_table(3000, per_file=3)
    raw = manifest.encode({NODE: table}, locations=ALWAYS).raw
    assert OpenManifest(raw).count_compressed()[0]
    there, found = OpenManifest(raw).find(NODE, np.array([[2999], [0], [7000]]))
    assert there.tolist() == [0, 1]
    assert list(found.locations.url) == [table.locations.url[0], table.locations.url[999]]


def test_an_array_that_is_not_in_a_manifest_has_no_chunks():
    opened = OpenManifest(manifest.encode({NODE: virtual_table(5)}).raw)
    for node, wanted in ((ObjectId8(bytes(8)), np.zeros((2, 1))), (NODE, np.zeros((0, 1)))):
        there, found = opened.find(node, wanted.astype(np.int64))
        assert (len(there), len(found)) == (0, 0)


@pytest.mark.parametrize("how", [PLAIN, ALWAYS], ids=["plain", "dictionary"])
def test_few_references_are_decoded_for_a_few_lookups(how, monkeypatch):
    """Counted in rows, which do not vary as times do."""
    decoded = []
    read_rows = open_manifest.read_rows
    monkeypatch.setattr(
        open_manifest,
        "read_rows",
        lambda locator, span, rows: decoded.append(len(rows)) or read_rows(locator, span, rows),
    )
    opened = OpenManifest(manifest.encode({NODE: virtual_table(5000)}, locations=how).raw)
    for n in range(10):
        opened.find(NODE, np.array([[n], [n + 1], [n], [9000]]))
    assert decoded == [2] * 10


# -- what is refused ------------------------------------------------------------------------------


def test_indices_of_another_number_of_dimensions_are_refused():
    opened = OpenManifest(manifest.encode({NODE: virtual_table(5)}).raw)
    with pytest.raises(FormatError, match="dimensions"):
        opened.find(NODE, np.zeros((1, 2), np.int64))


SORTED = virtual_table(20_000, per_file=500)
MIXED = ChunkTable.concatenate(
    [
        virtual_table(300, per_file=3, etag="x"),
        ChunkTable.of_inline(index=np.arange(300, 350)[:, None], chunks=[b"abc"] * 50),
    ]
)


@pytest.mark.parametrize("table", [SORTED, MIXED], ids=["records", "several kinds"])
@pytest.mark.parametrize("row", [0, 100, 8191, 8192, 19_998])
def test_where_references_are_out_of_order_no_chunk_is_said_to_be_absent(table, row):
    """Two that follow each other, at the edges of what is looked at together too."""
    row %= len(table) - 1
    payload = bytearray(payload_of(manifest.encode({NODE: table}, locations=PLAIN).raw))
    one, two = (index_at(payload, each) for each in (row, row + 1))
    payload[one : one + 4], payload[two : two + 4] = payload[two : two + 4], payload[one : one + 4]
    raw = file_of(FileKind.manifest, payload)
    for wanted in ([row], [row + 1], [99_999], [(row + 20) % len(table), 99_999]):
        with pytest.raises(FormatError, match="order"):
            OpenManifest(raw).find(NODE, np.array(wanted)[:, None])
    other = np.array([(row + 20) % len(table)])
    there, found = OpenManifest(raw).find(NODE, other[:, None])
    assert there.tolist() == [0]
    assert meaning(found) == meaning(table.take(other))


@given(
    share=st.sampled_from([1.0, 0.5]),
    exchanged=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_where_indices_were_exchanged_lookups_are_refused_or_right(share, exchanged, seed):
    kept = np.flatnonzero(np.random.default_rng(seed).random(100) < share)
    table = virtual_table(100, per_file=3).take(kept if len(kept) else np.arange(1))
    payload = bytearray(payload_of(manifest.encode({NODE: table}, locations=PLAIN).raw))
    for pair in exchanged:
        one, two = (index_at(payload, each % len(table)) for each in pair)
        held = payload[one : one + 4], payload[two : two + 4]
        payload[two : two + 4], payload[one : one + 4] = held
    check_against_rows(bytes(payload))


@pytest.mark.parametrize("row", [0, 1, 77, 9000, 19_998, 19_999])
@pytest.mark.parametrize("index", [0, 5, 8999, 19_999, 50_000])
def test_a_reference_whose_index_was_changed_does_not_stand_for_another(row, index):
    """Of two for one chunk, that which stands in its place is found, or none."""
    payload = bytearray(payload_of(manifest.encode({NODE: SORTED}, locations=PLAIN).raw))
    struct.pack_into("<I", payload, index_at(payload, row), index)
    opened, known = OpenManifest(file_of(FileKind.manifest, payload)), meaning(SORTED)
    for wanted in {row, index, 3, 9000, 19_999} - ({row, index} if index == 50_000 else {row}):
        try:
            there, found = opened.find(NODE, np.array([[wanted]]))
        except FormatError:
            continue
        assert meaning(found) == ({(wanted,): known[wanted,]} if len(there) else {})
    if row != index and not (row == 19_999 and index == 50_000):
        with pytest.raises(FormatError, match="order"):
            opened.find(NODE, np.array([[row]]))


@pytest.mark.parametrize("writer", ["icevirt", "an ordinary builder"])
def test_the_order_is_checked_once_and_only_before_a_chunk_is_absent(writer, monkeypatch):
    """Or when lookups without it have cost as much."""
    monkeypatch.setattr(index_search, "_LOOKUP", 50)
    checked = []
    check = index_search._read_sorted
    monkeypatch.setattr(
        index_search,
        "_read_sorted",
        lambda payload, span: checked.append(span.count) or check(payload, span),
    )
    table = virtual_table(5000).take(np.arange(0, 5000, 3))
    ours = manifest.encode({NODE: table}, locations=PLAIN).raw
    raw = ours if writer == "icevirt" else slow_file({NODE: slow_refs(table)})
    opened, other = OpenManifest(raw), OpenManifest(raw)
    for n in range(30):
        assert len(opened.find(NODE, np.array([[3 * n], [3 * n + 300]]))[0]) == 2
    assert not checked
    for n in range(3):
        assert len(opened.find(NODE, np.array([[3 * n], [3 * n + 1]]))[0]) == 1
    assert checked == [len(table)]
    for n in range(100):
        other.find(NODE, np.array([[3 * n]]))
    assert checked == 2 * [len(table)]


def places_of(payload, row):
    """Return where the table of a row stands, its vtable, and its vector of coordinates."""
    span = FlatBufferReader(bytes(payload)).root(MANIFEST)["arrays"][0]["refs"]
    place = span.start + 4 * row
    table = place + struct.unpack_from("<I", payload, place)[0]
    vtable = table - struct.unpack_from("<i", payload, table)[0]
    field = table + struct.unpack_from("<H", payload, vtable + 4)[0]
    return table, vtable, field + struct.unpack_from("<I", payload, field)[0]


def index_at(payload, row):
    return places_of(payload, row)[2] + 4


def appended_vector(payload, index):
    """Append a vector of one coordinate, and return where it stands."""
    payload += bytes(-len(payload) % 4)
    payload += struct.pack("<II", 1, index)
    return len(payload) - 8


def by_another_offset(payload, table, vtable, index):
    """Let the field lead elsewhere."""
    field = table + struct.unpack_from("<H", payload, vtable + 4)[0]
    struct.pack_into("<I", payload, field, appended_vector(payload, index) - field)


def by_another_field(payload, table, vtable, index):
    """Let the vtable name another field: the upper half of the number ``offset``."""
    half = struct.unpack_from("<H", payload, vtable + 8)[0] + 4
    struct.pack_into("<H", payload, vtable + 4, half)
    at = appended_vector(payload, index)
    struct.pack_into("<I", payload, table + half, at - table - half)


def by_another_vtable(payload, table, vtable, index):
    """Let the table have a vtable at the end that names another field."""
    payload += bytes(-len(payload) % 4)
    other = len(payload)
    payload += payload[vtable : vtable + 20]
    struct.pack_into("<i", payload, table, table - other)
    by_another_field(payload, table, other, index)


@pytest.mark.parametrize("move", [by_another_offset, by_another_field, by_another_vtable])
@pytest.mark.parametrize("row", [0, 77, 9000, 9999])
def test_a_record_whose_index_lies_elsewhere_is_found_by_that_index(move, row):
    """What stands where the others have their index is no index of its."""
    table = SORTED.take(np.arange(0, 20_000, 2))
    payload = bytearray(payload_of(manifest.encode({NODE: table}, locations=PLAIN).raw))
    at, vtable, _ = places_of(payload, row)
    move(payload, at, vtable, 2 * row + 1)
    raw = file_of(FileKind.manifest, payload)
    assert manifest.decode(raw).arrays[NODE].index[row] == 2 * row + 1
    there, _ = OpenManifest(raw).find(NODE, np.array([[2 * row], [2 * row + 1]]))
    assert there.tolist() == [1]


ONE_BROKEN_RECORD = {
    "a longer vtable": lambda raw, at: struct.pack_into("<H", raw, at[1], 22),
    "a shorter vtable": lambda raw, at: struct.pack_into("<H", raw, at[1], 4),
    "a shorter table": lambda raw, at: struct.pack_into("<H", raw, at[1] + 2, 4),
    "no index": lambda raw, at: struct.pack_into("<H", raw, at[1] + 4, 0),
    "two dimensions": lambda raw, at: struct.pack_into("<I", raw, at[2], 2),
    "no dimension": lambda raw, at: struct.pack_into("<I", raw, at[2], 0),
    "no location": lambda raw, at: struct.pack_into("<H", raw, at[1] + 14, 0),
}


@pytest.mark.parametrize("damage", ONE_BROKEN_RECORD.values(), ids=ONE_BROKEN_RECORD.keys())
@pytest.mark.parametrize("row", [0, 77, 9000, 19_999])
def test_a_broken_record_is_refused_alone_or_with_its_manifest(damage, row):
    payload = bytearray(payload_of(manifest.encode({NODE: SORTED}, locations=PLAIN).raw))
    damage(payload, places_of(payload, row))
    rows = {0, max(row - 1, 0), row, min(row + 1, 19_999), 19_999}
    assert check_against_rows(bytes(payload), rows) in {None, 1, len(rows) - 1, len(rows)}


@pytest.mark.ci
def test_lookups_in_damaged_manifests_are_refused_or_right(record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    rng = random.Random(seed)
    payloads = [payload for kind, spec, payload in SEEDS if kind is FileKind.manifest]
    payloads += [
        payload_of(manifest.encode({NODE: table}, locations=how).raw)
        for table in (SORTED.take(np.arange(60)), MIXED)
        for how in (PLAIN, ALWAYS)
    ]
    others = [payload for _, _, payload in SEEDS]
    found = refused = attempt = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        attempt += 1
        payload = rng.choice(payloads)
        for _ in range(rng.choice((1, 1, 2))):
            payload = changed(payload, rng, rng.choice(others))
        try:
            count = check_against_rows(payload)
        except BaseException as error:
            error.add_note(f"seed {seed}, attempt {attempt}, payload {payload.hex()}")
            raise
        refused += count is None
        found += count or 0
    record_property("tried", attempt)
    assert found
    assert refused


def check_against_rows(payload, some=None):
    """Compare lookups with rows that an ordinary reader reads one by one, as far as it can.

    Returns:
        How many were found; None where the manifest was refused.
    """
    try:
        opened = OpenManifest(file_of(FileKind.manifest, payload))
    except FormatError:
        return None
    values = FlatBufferReader(payload).root(MANIFEST)
    count = None
    for node, span in ((each["node_id"], each["refs"]) for each in values["arrays"]):
        rows = some or range(span.count)
        known = {}  # several where damage made two references to one chunk
        readable = 0
        for index, one in one_by_one(payload, span, rows):
            known.setdefault(index, []).append([one])
            readable += 1
        for index in {*known, *((row,) for row in rows), (2**32 - 1,)}:
            try:
                there, table = opened.find(ObjectId8(node), np.array([index], np.int64))
            except FormatError:
                continue
            count = (count or 0) + len(there)
            found = meaning(table)
            assert found.keys() <= {index}
            if index in known:
                assert [*found.values()] in known[index]
            else:  # damage of a field that its kind of chunk does not use is seen by one_by_one only
                assert not found or readable < len(rows)
    return count


def one_by_one(payload, span, rows):
    """Yield index and meaning of references, of those that can be read."""
    trained = FlatBufferReader(payload).root(MANIFEST)["location_dictionary"]
    for row in rows:
        try:
            ref = FlatBufferReader(payload).read_reference(CHUNK_REF, span.start + 4 * row)
            yield tuple(ref["index"]), meaning_of(ref, trained)
        except (Damage, zstandard.ZstdError, UnicodeDecodeError, MemoryError):
            continue  # the last where a frame claims to be huge


def meaning_of(ref, trained):
    at = ref["offset"], ref["length"]
    if ref["chunk_id"] is not None:
        return ref["chunk_id"], *at
    location = ref["location"]
    if ref["compressed_location"] is not None:
        dictionary = zstandard.ZstdCompressionDict(trained or b"")
        reader = zstandard.ZstdDecompressor(dict_data=dictionary)
        # icevirt does not look at what a damaged length counts behind the frame
        location = reader.decompress(ref["compressed_location"], allow_extra_data=True).decode()
    if location is None:
        if ref["inline"] is None:
            raise Damage("neither native nor virtual nor inline", 0)
        return ref["inline"]
    return location, ref["checksum_etag"] or "", ref["checksum_last_modified"], *at


def test_a_large_payload_is_one_whole_frame():
    """Decompressing into an array refuses what decompressing into bytes does."""
    raw = manifest.encode({NODE: virtual_table(3000)}).raw
    for damaged in (raw[:-1], raw + b"x", raw + bytes(4), raw + raw[39:], raw[:39], raw[:50]):
        with pytest.raises(FormatError):
            OpenManifest(damaged)
    framed = header.pack(FileKind.manifest, payload_of(raw))  # with a checksum at its end
    assert OpenManifest(framed).num_chunk_refs == 3000
    with pytest.raises(FormatError):
        OpenManifest(framed[:-1])
