"""Old files that are damaged or made to harm: FormatError or a value, nothing else, and soon.

Each kind of file of each format generation is changed in the ways of `test_hostile`; MessagePack is
also nested to any depth, and claims to hold more than there is.
"""

import os
import random
import time
import tracemalloc

import msgpack
import pytest
import zstandard

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.legacy import decode, repository
from icevirt.legacy.generations import ENCODINGS, recognize
from icevirt.wire import header
from icevirt.wire.header import FileKind
from legacy.old_repositories import REAL, files, synthetic, unpacked
from unit.wire.test_hostile import changed

SECONDS = float(os.environ.get("ICEVIRT_FUZZ_SECONDS", "4"))
KINDS = {
    "snapshots": FileKind.snapshot,
    "s": FileKind.snapshot,
    "manifests": FileKind.manifest,
    "m": FileKind.manifest,
    "transactions": FileKind.transaction_log,
}
KEY = ObjectId12(bytes(12))


def seeds():
    """Return (generation, kind, id, payload) of each file."""
    found = []
    repositories = [(REAL[name], files(name)) for name in REAL]
    repositories += synthetic("s3://bucket/key").values()
    for generation, each in repositories:
        for path, raw in sorted(each.items()):
            kind = KINDS.get(path.partition("/")[0])
            if kind is not None:
                payload, _ = decode.payload(raw, kind)
                name = path.rpartition("/")[2].partition(".")[0]
                key = ObjectId12.parse(name) if len(name) == 20 else KEY
                found.append((generation, kind, key, payload))
    return found


SEEDS = seeds()


def file_of(generation, kind, payload):
    return header.pack(kind, payload, level=1) if generation >= "E4" else payload


def decoded(generation, kind, key, payload):
    """Decode; None where that is refused."""
    raw, encoding = file_of(generation, kind, payload), ENCODINGS[generation]
    try:
        match kind:
            case FileKind.snapshot:
                return decode.snapshot(raw, encoding)
            case FileKind.manifest:
                return decode.manifest(raw, encoding, key)
            case _:
                return decode.transaction_log(raw, encoding)
    except FormatError as error:
        refusal = error
    assert refusal.facts["file"] == kind.name
    return None


def test_seeds_are_read_and_cut_ones_are_refused():
    assert {(generation, kind) for generation, kind, _, _ in SEEDS} >= {
        (generation, kind)
        for generation in ENCODINGS
        for kind in KINDS.values()
        if generation >= "E2" or kind is not FileKind.transaction_log
    }
    smallest = {}
    for generation, kind, key, payload in SEEDS:
        assert decoded(generation, kind, key, payload) is not None
        if len(payload) < len(smallest.get((generation, kind), (0, bytes(1 << 20)))[1]):
            smallest[generation, kind] = key, payload
    for (generation, kind), (key, payload) in smallest.items():
        for size in range(len(payload)):
            assert decoded(generation, kind, key, payload[:size]) is None
        assert decoded(generation, kind, key, payload + b"\xc0") is None


@pytest.mark.ci
def test_random_damage_raises_format_errors_only(record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    rng = random.Random(seed)
    until = time.monotonic() + SECONDS
    tried = survived = 0
    while time.monotonic() < until:
        generation, kind, key, payload = rng.choice(SEEDS)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            payload = changed(payload, rng, rng.choice(SEEDS)[-1])
        try:
            survived += decoded(generation, kind, key, payload) is not None
            if kind is FileKind.snapshot and generation != "E0":
                recognizes(file_of(generation, kind, payload))
        except BaseException as error:
            error.add_note(f"seed {seed}, attempt {tried}, {generation} {kind}: {payload.hex()}")
            raise
        tried += 1
    assert 20 < tried > survived


def recognizes(raw):
    try:
        recognize(raw, has_config=False)
    except FormatError:
        return


@pytest.mark.parametrize("generation", ENCODINGS)
@pytest.mark.parametrize("kind", set(KINDS.values()))
def test_noise_and_foreign_values_are_refused(generation, kind):
    rng = random.Random(1)
    values = [None, 1, "x", b"x", (), {}, {"a": 1}, (1, 2), ((),) * 7, ((),) * 8, ((),) * 9]
    values += [((),) * 11, (None,) * 11, ({}, {}), (0, {}, {1: 2}), (0, {}, {("x", 1): {}})]
    values += [({(1, (1 << 40,)): {"Inline": b""}},), (b"x", {}), ((bytes(12), ()), {1: 1})]
    payloads = [msgpack.packb(value) for value in values]
    payloads += [rng.randbytes(rng.randrange(200)) for _ in range(50)]
    payloads += [bytes([byte]) * 999 for byte in (0, 0x80, 0x90, 0x91, 0xC1, 0xC7, 0xDD, 0xFF)]
    payloads += [b'{"a": ' * 2000, b"{" + b" " * 99, b'{"nodes": 1}']
    for payload in payloads:
        if kind is FileKind.transaction_log and not ENCODINGS[generation].log:
            continue
        assert decoded(generation, kind, KEY, payload) is None, payload[:40]


def peak(action):
    """Return the most memory that an action takes, in bytes, before it is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BOMBS = {
    "arrays that claim a billion values": b"\xdd\x3f\xff\xff\xff" * 1000,
    "maps that claim a billion pairs": b"\xdf\x3f\xff\xff\xff" * 1000,
    "a text that claims a gigabyte": b"\xdb\x3f\xff\xff\xffx",
    "arrays in arrays": b"\x91" * 4_000_000 + b"\xc0",
    "maps in maps": b"\x81\xa1a" * 1_000_000 + b"\xc0",
    "millions of empty arrays": b"\xdd\x00\x04\x93\xe0" + b"\x90" * 300_000,
    "millions of empty maps": b"\xdd\x00\x04\x93\xe0" + b"\x80" * 300_000,
    "millions of nils": b"\xdd\x00\x0f\x42\x40" + b"\xc0" * 1_000_000,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_little_that_asks_for_much_is_refused_in_bounded_memory(bomb):
    for kind in (FileKind.snapshot, FileKind.manifest):
        small = header.pack(kind, bomb)
        for name, raw in (("E1", bomb), ("E6", small)):
            match kind:
                case FileKind.snapshot:
                    used = peak(lambda raw=raw, name=name: decode.snapshot(raw, ENCODINGS[name]))
                case _:
                    used = peak(
                        lambda raw=raw, name=name: decode.manifest(raw, ENCODINGS[name], KEY)
                    )
            assert used < 64 << 20


def test_a_frame_that_claims_or_becomes_terabytes_is_refused():
    frame = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    for raw in (frame, header.head(FileKind.snapshot, 1) + frame):
        assert peak(lambda raw=raw: decode.payload(raw, FileKind.snapshot)) < 64 << 20


def test_large_files_of_honest_writers_are_read_one_reference_at_a_time():
    node, count = (bytes(8), ()), 30_000
    index = [(at // 100, at % 100) for at in range(count)]
    chunks = {at: {"Ref": ((bytes(12), ()), 0, 9)} for at in index}
    manifest = msgpack.packb(((KEY, ()), {node: chunks}))
    ((table,),) = [
        each.values() for each in decoded("E6", FileKind.manifest, KEY, manifest).values()
    ]
    assert len(table) == count
    log = msgpack.packb((*((),) * 6, {node: index}))
    assert len(decoded("E6", FileKind.transaction_log, KEY, log).chunks[bytes(8)]) == count
    pair = msgpack.packb(node) + msgpack.packb([[0]])
    twice = b"\x97" + b"\x90" * 6 + b"\x82" + 2 * pair
    assert decoded("E6", FileKind.transaction_log, KEY, twice) is None


def test_one_node_with_a_thousand_dimensions_is_refused():
    manifest = list(unpacked(next(b for p, b in files("E1").items() if p.startswith("manif"))))
    for index in ((0,) * 1000, (-1,), (1 << 32,), ("x",)):
        manifest[2] = {(3, index): {"Inline": b"x"}}
        assert decoded("E1", FileKind.manifest, KEY, msgpack.packb(manifest)) is None


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"snapshot": 1}', b'{"snapshot": "x"}', b"[" * 9999, b"\xff"]
)
def test_references_that_name_no_snapshot_are_refused(raw):
    for encoding in ENCODINGS.values():
        with pytest.raises(FormatError):
            repository.target(raw, encoding, "refs/branch.main/ZZZZZZZZ.json")
