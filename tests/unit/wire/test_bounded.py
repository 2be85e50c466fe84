"""Chunks that decode to more than they declare stop there; sound ones decode as zarr has them."""

import bz2
import gzip
import json
import lzma
import pickle
import struct
import subprocess
import sys
import textwrap
import warnings
import zlib
from functools import cache

import numcodecs
import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.array import AsyncArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync
from zarr.storage import MemoryStore, StorePath

from icevirt.wire.bounded import OverlongError, decoder_of, limit_array, limit_of_encoder

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
CRC = {"name": "crc32c"}
COMPRESSORS = {
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": 1}},
    "gzip": {"name": "gzip", "configuration": {"level": 1}},
    "numcodecs.gzip": {"name": "numcodecs.gzip", "configuration": {"level": 1}},
    "bz2": {"name": "numcodecs.bz2", "configuration": {"level": 1}},
    "lzma": {"name": "numcodecs.lzma", "configuration": {"preset": 0}},
    "lzma, raw": {
        "name": "numcodecs.lzma",
        "configuration": {"format": 3, "filters": [{"id": 33, "preset": 0}]},
    },
    "zstd": {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
    "numcodecs.zstd": {"name": "numcodecs.zstd", "configuration": {"level": 1}},
    "blosc": {
        "name": "blosc",
        "configuration": {
            "cname": "lz4",
            "clevel": 5,
            "shuffle": "shuffle",
            "typesize": 4,
            "blocksize": 0,
        },
    },
    "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
}
SHUFFLE = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}
FLETCHER = {"name": "numcodecs.fletcher32", "configuration": {}}


def sharded(*codecs):
    return {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [2, 8],
            "codecs": list(codecs),
            "index_codecs": [LITTLE, CRC],
            "index_location": "end",
        },
    }


CHAINS = {
    **{name: [LITTLE, codec] for name, codec in COMPRESSORS.items()},
    "shuffle and zlib": [LITTLE, SHUFFLE, COMPRESSORS["zlib"]],
    "zlib and a checksum": [LITTLE, COMPRESSORS["zlib"], FLETCHER],
    "a checksum within zlib": [LITTLE, CRC, COMPRESSORS["zlib"]],
    "zlib of zlib": [LITTLE, COMPRESSORS["zlib"], COMPRESSORS["zlib"]],
    "zstd of shuffled lz4": [LITTLE, SHUFFLE, COMPRESSORS["lz4"], COMPRESSORS["zstd"]],
    "transposed": [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        LITTLE,
        COMPRESSORS["zlib"],
    ],
    "another type": [
        {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<f8"}},
        LITTLE,
        COMPRESSORS["zlib"],
    ],
    "shards": [sharded(LITTLE, COMPRESSORS["zstd"])],
    "zlib of shards of another type": [
        sharded(
            {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<f8"}},
            LITTLE,
            COMPRESSORS["lz4"],
        ),
        COMPRESSORS["zlib"],
    ],
}
PIPELINES = ("BatchedCodecPipeline", "FusedCodecPipeline")


def metadata(codecs, *, data_type="float32", shape=(6, 16), chunks=(4, 16), fill_value=0):
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
        "attributes": {},
    }


def stored(document, chunks=None):
    """Return a store with an array, and with chunks as they stand."""
    store, make = MemoryStore({}), default_buffer_prototype().buffer.from_bytes
    sync(store.set("zarr.json", make(json.dumps(document).encode())))
    for key, raw in (chunks or {}).items():
        sync(store.set(key, make(raw)))
    return store


def opened(document, store, how=limit_array):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, about codecs that are not in its specification
        return zarr.Array(how(ArrayV3Metadata.from_dict(document), StorePath(store)))


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("codecs", CHAINS.values(), ids=CHAINS.keys())
def test_sound_chunks_read_as_through_zarr(codecs, pipeline):
    document = metadata(codecs)
    store = stored(document)
    values = np.random.default_rng(1).normal(size=(6, 16)).astype("f4")
    with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{pipeline}"}):
        opened(document, store, AsyncArray)[...] = values
        found = opened(document, store)
        np.testing.assert_array_equal(found[...], values)
        np.testing.assert_array_equal(found[5, 3:9], values[5, 3:9])
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(found))[...], values)
        assert found.metadata == opened(document, store, AsyncArray).metadata


def numcodec(name):
    """Return the codec that zarr's own codec uses."""
    output = COMPRESSORS[name]["configuration"]
    kept = {key: value for key, value in output.items() if key not in ("shuffle", "typesize")}
    kind = name.partition(",")[0].removeprefix("numcodecs.")
    return numcodecs.get_codec({"id": kind, **kept})


@pytest.mark.parametrize("name", COMPRESSORS)
@given(raw=st.binary(max_size=300), times=st.integers(1, 400))
def test_a_limit_is_exact_and_changes_nothing(name, raw, times):
    """What numcodecs decodes is decoded, and one byte less is refused."""
    codec, output = numcodec(name), COMPRESSORS[name]["configuration"]
    plain = raw * times or b"\0"
    packed = bytes(codec.encode(plain))
    decode = decoder_of(name.partition(",")[0])
    found = decode(packed, len(plain), output)
    assert bytes(codec.decode(packed) if found is None else found) == plain
    with pytest.raises(OverlongError):
        decode(packed, len(plain) - 1, output)


@pytest.mark.parametrize("name", COMPRESSORS)
@given(raw=st.binary(max_size=5000))
def test_no_encoder_makes_more_of_bytes_than_is_expected(name, raw):
    packed = numcodec(name).encode(raw or b"\0")
    assert len(packed) <= limit_of_encoder(name.partition(",")[0], len(raw))


ODD = {
    "zlib with bytes behind it": ("zlib", lambda raw: zlib.compress(raw) + b"behind"),
    "gzip of several members": (
        "gzip",
        lambda raw: gzip.compress(raw[:9]) + gzip.compress(raw[9:]),
    ),
    "gzip with zeros behind it": ("gzip", lambda raw: gzip.compress(raw) + bytes(8)),
    "bz2 of several streams": ("bz2", lambda raw: bz2.compress(raw[:9]) + bz2.compress(raw[9:])),
    "bz2 with bytes behind it": ("bz2", lambda raw: bz2.compress(raw) + b"behind"),
    "xz of several streams": ("lzma", lambda raw: lzma.compress(raw[:9]) + lzma.compress(raw[9:])),
    "zstd that does not say its size": (
        "zstd",
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ),
}


@pytest.mark.parametrize(("name", "pack"), ODD.values(), ids=ODD.keys())
def test_odd_but_sound_streams_decode_as_numcodecs_decodes_them(name, pack):
    values = np.arange(64, dtype="<f4").reshape(4, 16)
    document = metadata([LITTLE, COMPRESSORS[name]])
    store = stored(document, {"c/0/0": pack(values.tobytes())})
    np.testing.assert_array_equal(opened(document, store, AsyncArray)[:4], values)
    np.testing.assert_array_equal(opened(document, store)[:4], values)


@pytest.mark.parametrize(("name", "pack"), [("bz2", bz2.compress), ("lzma", lzma.compress)])
def test_many_empty_streams_take_no_time(name, pack):
    """Copying what is left behind each of them would take minutes."""
    document = metadata([LITTLE, COMPRESSORS[name]])
    raw = pack(b"") * 50_000 + pack(bytes(256))
    assert not opened(document, stored(document, {"c/0/0": raw}))[:4].any()


CUT = {
    "zlib": zlib.compress(bytes(256))[:-2],
    "gzip": gzip.compress(bytes(256))[:-2],
    "bz2": bz2.compress(bytes(256))[:-2],
    "lzma": lzma.compress(bytes(256))[:-2],
    "zstd": zstandard.compress(bytes(256))[:-1],
    "blosc": b"\2\1\0",
    "blosc, whose header says more than there is": struct.pack("<4B3I", 2, 1, 0, 4, 256, 256, 999),
    "lz4": b"\0",
}


@pytest.mark.parametrize("name", CUT)
def test_a_chunk_that_is_cut_short_is_refused(name):
    document = metadata([LITTLE, COMPRESSORS[name.partition(",")[0]]])
    with pytest.raises((ValueError, RuntimeError, EOFError, OSError)):
        opened(document, stored(document, {"c/0/0": CUT[name]}))[...]


TEXT = {"name": "vlen-utf8", "configuration": {}}


def test_text_of_more_items_than_declared_is_refused_before_they_are_made():
    """Four bytes would ask for an array of four billion objects."""
    document = metadata([TEXT], data_type="string", fill_value="")
    raw = struct.pack("<I", (1 << 32) - 1)
    with pytest.raises(ValueError, match="more items"):
        opened(document, stored(document, {"c/0/0": raw}))[...]


def test_text_reads_back():
    document = metadata([TEXT, COMPRESSORS["gzip"]], data_type="string", fill_value="")
    store = stored(document)
    values = np.array([["ä" * n for n in range(16)]] * 6, np.dtypes.StringDType())
    opened(document, store, AsyncArray)[...] = values
    found = opened(document, store)
    assert (found[...] == values).all()
    assert (pickle.loads(pickle.dumps(found))[...] == values).all()


# -- bombs -----------------------------------------------------------------------------------------

_BIG = 128 << 20
_PIECE = bytes(1 << 20)


def streamed(packer):
    parts = [packer.compress(_PIECE) for _ in range(_BIG // len(_PIECE))]
    return b"".join([*parts, packer.flush()])


def repeated(pack):
    """Return many streams behind one another, which decode to one."""
    return pack(_PIECE) * (_BIG // len(_PIECE))


def zstd_of(*, sized):
    return streamed(zstandard.ZstdCompressor().compressobj(size=_BIG if sized else -1))


@cache
def zlib_of():
    return streamed(zlib.compressobj(1))


BOMBS = {
    "zlib": (["zlib"], zlib_of),
    "gzip": (["gzip"], lambda: repeated(gzip.compress)),
    "bz2": (["bz2"], lambda: repeated(bz2.compress)),
    "xz": (["lzma"], lambda: repeated(lzma.compress)),
    "zstd": (["zstd"], lambda: zstd_of(sized=True)),
    "zstd without its size": (["zstd"], lambda: zstd_of(sized=False)),
    "lz4": (["lz4"], lambda: struct.pack("<I", (1 << 31) - 1) + bytes(4096)),
    "blosc": (["blosc"], lambda: struct.pack("<4B3I", 2, 1, 0x21, 4, _BIG, 4096, 32) + bytes(16)),
    "zlib of zlib": (["zlib", "zlib"], lambda: zlib.compress(zlib_of())),
    "zlib within zstd": (["zlib", "zstd"], lambda: zstandard.compress(zlib_of())),
    "zlib around bz2": (["bz2", "zlib"], zlib_of),
}
_DECLARED = 4 << 20

CHILD = """
import json, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from unit.wire.test_bounded import COMPRESSORS, LITTLE, metadata, opened, sharded, stored
found = {}
for bomb in sorted(Path(sys.argv[1]).iterdir()):
    names = json.loads(bomb.with_suffix("").name.partition(".")[2])
    side = 1024
    codecs = [LITTLE, *(COMPRESSORS[name] for name in names)]
    document = metadata(codecs, shape=(side, side), chunks=(side, side))
    array = opened(document, stored(document, {"c/0/0": bomb.read_bytes()}))
    opened(document, stored(document))[...]  # what reading takes at best
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        array[...]
        error = "none"
    except Exception as failure:
        error = type(failure).__name__
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found[bomb.name] = [error, (after - before) * 1024]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def exploded(tmp_path_factory):
    """Return by bomb the error and the memory that it took, in a process of their own."""
    folder = tmp_path_factory.mktemp("bombs")
    for number, (codecs, make) in enumerate(BOMBS.values()):
        (folder / f"{number}.{json.dumps(codecs)}.bomb").write_bytes(make())
    tests = __file__.rpartition("/unit/")[0]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(folder), tests],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    output = {int(k.partition(".")[0]): v for k, v in json.loads(done.stdout).items()}
    return dict(zip(BOMBS, (output[number] for number in range(len(BOMBS))), strict=True))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stops_near_the_declared_size(exploded, name):
    error, taken = exploded[name]
    assert error == "OverlongError"
    assert taken < 4 * _DECLARED + (8 << 20)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_bomb_within_a_shard_stops_too(pipeline):
    bomb = zlib.compress(bytes(1 << 20))
    index = np.array([[0, len(bomb)]] + [[2**64 - 1] * 2] * 3, "<u8").tobytes()
    checksum = numcodecs.checksum32.CRC32C(location="end").encode(index)[-4:].tobytes()
    document = metadata([sharded(LITTLE, COMPRESSORS["zlib"])], shape=(4, 16))
    store = stored(document, {"c/0/0": bomb + index + checksum})
    with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{pipeline}"}):
        found = opened(document, store)
        for array in (found, pickle.loads(pickle.dumps(found))):
            with pytest.raises(OverlongError):
                array[...]
            with pytest.raises(OverlongError):
                array[0, 0]
