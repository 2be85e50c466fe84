"""Files that are damaged or made to harm: FormatError or a value, nothing else, and soon.

Every example is decompressed, changed and compressed again, since damage to the zstd frame itself
would be noticed before anything of ours. ``ICEVIRT_FUZZ_SECONDS`` makes the random part longer.
"""

import dataclasses
import os
import random
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable
from icevirt.model.transaction_log import TransactionLog
from icevirt.wire import header, snapshot, transaction_log
from icevirt.wire.flatbuffer.builder import build
from icevirt.wire.flatbuffer.reader import FlatBufferReader
from icevirt.wire.flatbuffer.schema import BYTES, SNAPSHOT
from icevirt.wire.header import FileKind
from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.encoding import LocationCompression, LocationEncoding
from icevirt.wire.repo_info import file
from unit.wire.wire_values import virtual_table

SECONDS = float(os.environ.get("ICEVIRT_FUZZ_SECONDS", "4"))
FIXTURES = Path(__file__).parents[3] / "fixtures" / "icechunk"


def read_all_of_repo_info(raw):
    """Decode, and ask for all that is decoded only when somebody asks for it."""
    found = file.decode(raw)
    log = tuple(found.latest_updates)
    return found._replace(snapshots=dict(found.snapshots), latest_updates=log)


def read_all_of_manifest(raw):
    """Decode, and ask for the locations that are left as they stand until somebody asks."""
    found = manifest.decode(raw)
    for table in found.arrays.values():
        assert len(list(table.locations.url)) == len(table.locations)
    return found


DECODERS = {
    FileKind.snapshot: snapshot.decode,
    FileKind.manifest: read_all_of_manifest,
    FileKind.transaction_log: transaction_log.decode,
    FileKind.repo_info: read_all_of_repo_info,
}
FOLDERS = {
    "snapshots": FileKind.snapshot,
    "manifests": FileKind.manifest,
    "transactions": FileKind.transaction_log,
    "repo": FileKind.repo_info,
}
NODE = ObjectId8(b"12345678")


def seeds():
    """Return (kind, spec version, payload) of small real files of every client, and of ours."""
    found = []
    for path in sorted(FIXTURES.glob("*.zip")):
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                kind = FOLDERS.get(name.split("/")[0])
                found += [(kind, *header.unpack(packed.read(name), kind))] if kind else []
    mixed = ChunkTable.concatenate(
        [
            virtual_table(12, per_file=3, etag="x"),
            virtual_table(12, per_file=3, last_modified=3).shift([20]),
            ChunkTable.of_inline(index=np.arange(40, 44)[:, None], chunks=[b"abc"] * 4),
        ]
    )
    for encoding in LocationEncoding:
        how = LocationCompression(encoding=encoding, min_num_chunks=1)
        raw = manifest.encode({NODE: mixed}, locations=how).raw
        found.append((FileKind.manifest, *header.unpack(raw, FileKind.manifest)))
    log = TransactionLog(id=ObjectId12(bytes(12)), updated_chunks={NODE: mixed.index})
    raw = transaction_log.encode(log)
    found.append((FileKind.transaction_log, *header.unpack(raw, FileKind.transaction_log)))
    return sorted({seed for seed in found if len(seed[2]) < 20_000}, key=lambda s: (len(s[2]), s))


SEEDS = seeds()


def decoded(kind, payload, spec_version=2):
    """Decode, and return what came out; anything but FormatError falls through and fails."""
    raw = bytearray(header.pack(kind, payload, level=1))
    raw[36] = spec_version
    try:
        return DECODERS[kind](bytes(raw))
    except FormatError as error:
        refusal = error
    assert refusal.facts["file"] == kind.name
    return None


def changed(payload, rng, other):
    """Return the payload with one thing wrong with it."""
    raw = bytearray(payload)
    at = rng.randrange(len(raw))
    match rng.randrange(6):
        case 0:
            raw[at] ^= 1 << rng.randrange(8)
        case 1:
            raw[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        case 2:  # an offset or a count
            at -= at % 4
            value = rng.choice((0, 1, 4, 8, len(raw), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, at))
            raw[at : at + 4] = struct.pack("<I", value)
        case 3:  # an offset to somewhere
            at -= at % 4
            raw[at : at + 4] = struct.pack("<I", rng.randrange(len(raw) + 8))
        case 4:  # spliced
            size = rng.randrange(1, 64)
            begin = rng.randrange(len(other))
            raw[at : at + size] = other[begin : begin + size]
        case _:  # moved
            size = rng.randrange(1, 64)
            begin = rng.randrange(len(raw))
            raw[at : at + size] = payload[begin : begin + size]
    return bytes(raw)


def test_seeds_are_read():
    """Otherwise nothing below would get past the first check."""
    assert {kind for kind, _, _ in SEEDS} == set(FileKind)
    for kind, spec_version, payload in SEEDS:
        assert decoded(kind, payload, spec_version) is not None


@pytest.mark.ci
@pytest.mark.parametrize("kind", FileKind)
def test_random_damage_raises_format_errors_only(kind, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    rng = random.Random(seed)
    mine = [(spec, payload) for k, spec, payload in SEEDS if k == kind]
    others = [payload for _, _, payload in SEEDS]
    until = time.monotonic() + SECONDS / len(FileKind)
    tried = survived = 0
    while time.monotonic() < until:
        spec_version, payload = rng.choice(mine)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            payload = changed(payload, rng, rng.choice(others))
        started = time.monotonic()
        try:
            survived += decoded(kind, payload, spec_version) is not None
        except BaseException as error:
            error.add_note(f"seed {seed}, attempt {tried}, payload {payload.hex()}")
            raise
        assert time.monotonic() - started < 5, f"seed {seed}"
        tried += 1
    record_property("tried", tried)
    assert tried > 20
    assert survived < tried


@pytest.mark.parametrize("kind", FileKind)
def test_a_payload_cut_at_every_byte_raises_a_format_error(kind):
    spec_version, payload = next((s, p) for k, s, p in SEEDS if k == kind)
    for size in range(len(payload) - 8):
        decoded(kind, payload[:size], spec_version)
    assert decoded(kind, payload[: len(payload) // 2], spec_version) is None


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("byte", [0x00, 0x01, 0x04, 0x7F, 0x80, 0xFF])
def test_payloads_of_one_byte_over_and_over_are_refused(kind, byte):
    for size in (0, 1, 3, 4, 7, 8, 64, 4096):
        assert decoded(kind, bytes([byte]) * size) is None


@pytest.mark.parametrize("kind", FileKind)
def test_random_bytes_are_refused(kind):
    rng = random.Random(1)
    for _ in range(200):
        assert decoded(kind, rng.randbytes(rng.randrange(200))) is None


def test_an_error_says_which_file_which_field_and_where():
    values = {
        "id": bytes(12),
        "nodes": [
            {"id": bytes(8), "path": f"/{n}", "user_data": b"", "node_data": (2, {})}
            for n in range(3)
        ],
        "message": "",
        "metadata": [],
        "manifest_files": [],
    }
    payload = build(SNAPSHOT, values).replace(b"/2", b"\xff\xff")
    with pytest.raises(FormatError) as caught:
        snapshot.decode(header.pack(FileKind.snapshot, payload))
    output = caught.value.facts
    assert (output["file"], output["field"]) == ("snapshot", "Snapshot.nodes[2].path")
    assert payload[output["at"] + 4 : output["at"] + 6] == b"\xff\xff"


# -- little files that ask for much ---------------------------------------------------------------


def peak(action, match):
    """Return the most memory that an action takes, in bytes, before it is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=match):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def file_of(kind, payload):
    return header.pack(kind, bytes(payload), level=1)


def manifest_skeleton(arrays):
    """Return a payload with ``arrays`` ArrayManifests that all share one vector of references."""
    vtable = struct.pack("<6H", 8, 16, 4, 12, 0, 0)[:8]  # node_id at 4, refs at 12
    root_vtable = struct.pack("<4H", 8, 20, 4, 16)
    out = bytearray(struct.pack("<I4s", 16, b"Ichk")) + root_vtable
    root = len(out)
    assert root == 16
    out += struct.pack("<i12sI", 8, bytes(12), 4)
    vector = len(out)
    out += struct.pack("<I", arrays) + bytes(4 * arrays)
    out += vtable
    vtable_at = len(out) - 8
    tables = []
    for n in range(arrays):
        at = len(out)
        struct.pack_into("<I", out, vector + 4 + 4 * n, at - (vector + 4 + 4 * n))
        out += struct.pack("<i8sI", at - vtable_at, n.to_bytes(8, "big"), 0)
        tables.append(at)
    return out, tables


def test_many_arrays_that_share_one_vector_of_references_are_refused():
    """1,000 arrays times 20,000 shared references would be twenty million rows."""
    out, tables = manifest_skeleton(1000)
    shared = len(out)
    for at in tables:
        struct.pack_into("<I", out, at + 12, shared - (at + 12))
    out += struct.pack("<I", 20_000) + bytes(4 * 20_000)
    raw = file_of(FileKind.manifest, out)
    assert peak(lambda: manifest.decode(raw), "too many times") < 64 << 20


def test_references_that_share_one_long_index_are_refused():
    """20,000 references times an index of 20,000 dimensions would be 1.6 GB."""
    n = 20_000
    out, (table,) = manifest_skeleton(1)
    vector = len(out)
    struct.pack_into("<I", out, table + 12, vector - (table + 12))
    out += struct.pack("<I", n) + bytes(4 * n)
    out += struct.pack("<4H", 6, 8, 4, 0)
    ref = len(out)
    out += struct.pack("<iI", 8, 4) + struct.pack("<I", n) + bytes(4 * n)
    for row in range(n):
        place = vector + 4 + 4 * row
        struct.pack_into("<I", out, place, ref - place)
    raw = file_of(FileKind.manifest, out)
    assert peak(lambda: manifest.decode(raw), "overlap") < 64 << 20


def test_inline_chunks_that_overlap_are_refused():
    """Each reference has its own index, and all share one inline chunk of 1 MB."""
    n = 4000
    out, (table,) = manifest_skeleton(1)
    vector = len(out)
    struct.pack_into("<I", out, table + 12, vector - (table + 12))
    out += struct.pack("<I", n) + bytes(4 * n)
    out += struct.pack("<4H", 8, 12, 4, 8)
    vtable = len(out) - 8
    blob = len(out) + 20 * n
    for row in range(n):
        at = len(out)
        place = vector + 4 + 4 * row
        struct.pack_into("<I", out, place, at - place)
        out += struct.pack("<iIIII", at - vtable, 8, blob - (at + 8), 1, row)
    out += struct.pack("<I", 1 << 20) + bytes(1 << 20)
    raw = file_of(FileKind.manifest, out)
    assert peak(lambda: manifest.decode(raw), "overlap") < 64 << 20


def test_nodes_that_share_one_large_zarr_json_are_refused_beyond_reason():
    values = {
        "id": bytes(12),
        "nodes": [
            {"id": bytes(8), "path": f"/{n}", "user_data": b"", "node_data": (2, {})}
            for n in range(5000)
        ],
        "message": "x" * 1_000_000,
        "metadata": [],
        "manifest_files": [],
    }
    out = bytearray(build(SNAPSHOT, values))
    message = out.index(b"x" * 100) - 4
    places = PlacesOfBytes(bytes(out))
    places.root(SNAPSHOT)
    for at in places.found:
        struct.pack_into("<I", out, at, message - at)
    raw = file_of(FileKind.snapshot, out)
    assert peak(lambda: snapshot.decode(raw), "too many times") < 256 << 20


class PlacesOfBytes(FlatBufferReader):
    """Collects the places of references to byte vectors."""

    def __init__(self, payload):
        super().__init__(payload)
        self.found = []

    def _inside(self, kind, place):
        if kind == BYTES:
            self.found.append(place)
        return super()._inside(kind, place)


def test_a_frame_of_a_location_that_claims_a_gigabyte_is_refused():
    table = virtual_table(2000)
    how = LocationCompression(encoding=LocationEncoding.dictionary, min_num_chunks=1)
    payload = bytearray(
        header.unpack(manifest.encode({NODE: table}, locations=how).raw, FileKind.manifest)[1]
    )
    at = payload.index(bytes.fromhex("28B52FFD"))
    payload[at + 4] = 0xA3  # four bytes of size, a four-byte dictionary id
    payload[at + 9 : at + 13] = struct.pack("<I", 1 << 30)
    raw = file_of(FileKind.manifest, payload)
    assert peak(lambda: manifest.decode(raw), "impossible length") < 64 << 20


def test_deep_flexbuffers_of_another_writer_are_refused():
    deep: list = []
    for _ in range(150):
        deep = [deep]
    values = {
        "id": bytes(12),
        "nodes": [],
        "message": "",
        "metadata": [{"name": "x", "value": bytes(flexbuffers.Dumps(deep))}],
        "manifest_files": [],
    }
    with pytest.raises(FormatError, match="deep"):
        snapshot.decode(file_of(FileKind.snapshot, build(SNAPSHOT, values)))


def test_rows_that_share_one_table_are_refused():
    """A million nodes in a file of 4 MB would be a million dicts, and one node."""
    n = 1_000_000
    values = {
        "id": bytes(12),
        "nodes": [{"id": bytes(8), "path": "/a", "user_data": b"", "node_data": (2, {})}],
        "message": "",
        "metadata": [],
        "manifest_files": [],
    }
    one = bytearray(build(SNAPSHOT, values))
    # lead the reference to the nodes to a vector in front of nothing but the same node
    place = next(at for at in range(8, len(one), 4) if leads_to_one_node(one, at))
    vector = place + struct.unpack_from("<I", one, place)[0]
    node = vector + 4 + struct.unpack_from("<I", one, vector + 4)[0]
    # vectors come before what they refer to: write the long one in the place of the short one
    out = one[:vector] + struct.pack("<I", n)
    shift = 4 * n - 4
    out += b"".join(struct.pack("<I", node + shift - (vector + 4 + 4 * row)) for row in range(n))
    out += one[vector + 8 :]
    raw = file_of(FileKind.snapshot, out)
    assert peak(lambda: snapshot.decode(raw), "too many times") < 64 << 20


def leads_to_one_node(out, at):
    """Say whether the reference at ``at`` leads to a vector of one table whose path is /a."""
    vector = at + struct.unpack_from("<I", out, at)[0]
    if vector % 4 or vector + 8 > len(out) or out[vector : vector + 4] != b"\1\0\0\0":
        return False
    node = vector + 4 + struct.unpack_from("<I", out, vector + 4)[0]
    return node + 4 < len(out) and out.find(b"/a\0", node) > 0


def test_one_absurdly_long_location_among_many_takes_no_time():
    """Comparing goes word by word, as far as the longest."""
    table = ChunkTable.concatenate(
        [virtual_table(2000), virtual_table(1, url="a://" + "x" * 4_000_000).shift([2000])]
    )
    raw = manifest.encode({NODE: table}).raw
    started = time.process_time()
    assert len(manifest.decode(raw).arrays[NODE].locations) == 201
    assert time.process_time() - started < 2


@pytest.mark.parametrize("value", [1 << 62, (1 << 64) - 1])
@pytest.mark.parametrize("field", ["offset", "length"])
def test_references_farther_than_any_object_is_long_are_refused(field, value):
    table = virtual_table(3)
    column = getattr(table, field).copy()
    column[1] = value
    raw = manifest.encode({NODE: dataclasses.replace(table, **{field: column})}).raw
    with pytest.raises(FormatError, match=field):
        manifest.decode(raw)
