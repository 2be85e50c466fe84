"""What the engine reads as columns is what numpy selects, and what zarr's pipeline reads."""

import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr import codecs
from zarr.codecs import numcodecs

from access.columns.stored import names_of, store
from long_forms import crossed

SHAPE, CHUNKS = (7, 9), (3, 4)  # the last chunk of each axis ends beyond the array
COUNT = 63
TRANSPOSE = codecs.TransposeCodec(order=(1, 0))

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")


def numbers(dtype, shape=SHAPE):
    """Return values of any dtype, all of them different where it has so many."""
    kind = np.dtype(dtype)
    plain = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if kind.names is not None:
        values = np.zeros(shape, kind)
        for nth, name in enumerate(kind.names):
            values[name] = plain * (nth + 1)
        return values
    if kind.kind == "V":
        return plain.astype("<i8").view("V8").astype(kind)
    return (plain % 2 if kind.kind == "b" else plain).astype(kind)


KEYS = {
    "all": {},
    "a box": {"d0": slice(2, 6), "d1": slice(1, 8)},
    "one chunk": {"d0": slice(3, 6), "d1": slice(4, 8)},
    "steps": {"d0": slice(None, None, 2), "d1": slice(1, None, 5)},
    "backwards": {"d0": slice(None, None, -1), "d1": slice(7, 0, -3)},
    "a row": {"d0": 4},
    "one value": {"d0": -1, "d1": 8},
    "nothing": {"d0": slice(3, 3)},
    "nothing, backwards": {"d0": slice(0, 3, -1), "d1": slice(2, 2, -2)},
    "outer": {"d0": [6, 0, 0, -2], "d1": [8, 1]},
    "outer and a slice": {"d0": [5, 1, 5], "d1": slice(8, 2, -2)},
    "an empty array": {"d1": np.zeros(0, int)},
    "points": {"d0": xr.Variable("p", [6, 0, 6, 3]), "d1": xr.Variable("p", [0, 8, 0, 3])},
    "points beside a slice": {"d1": xr.Variable(("p", "q"), [[8, 0], [-1, 4]])},
    "no points": {"d0": xr.Variable("p", np.zeros(0, int)), "d1": xr.Variable("p", np.zeros(0, int))},
}  # fmt: skip

DTYPES = [
    "?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16",
    ">f4", ">i2", "S5", "<U3", "V3", "<M8[ns]", "<m8[s]", [("a", "<i4"), ("b", "<f8")],
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(tmp_path, dtype):
    stored = store(tmp_path, numbers(dtype), chunks=CHUNKS, missing=[4])
    assert stored.why_zarr is None
    for key in KEYS.values():
        stored.check(key)


@pytest.mark.parametrize("dtype", ["<f4", "<i2", "<c16", [("a", "<i4"), ("b", "<f8")]], ids=str)
def test_big_endian_bytes(tmp_path, dtype):
    big = codecs.BytesCodec(endian="big")
    stored = store(tmp_path, numbers(dtype), chunks=CHUNKS, missing=[0], serializer=big)
    assert stored.why_zarr is None
    for key in KEYS.values():
        stored.check(key)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("<f4", np.nan),
        ("<f8", -0.0),
        ("<f4", np.inf),
        ("<i8", np.iinfo("i8").min),
        ("<u8", np.iinfo("u8").max),
        ("?", True),
        ("S5", b"none"),
        ("<U3", "--"),
        ("<c8", complex(np.nan, 1)),
        ("<M8[s]", np.datetime64("NaT", "s")),
        (np.dtype([("a", "<i4"), ("b", "<f8")]), np.array((7, 0.5), "i4,f8")[()]),
    ],
    ids=str,
)
def test_a_missing_chunk_shows_the_fill_value(tmp_path, dtype, fill):
    stored = store(tmp_path, numbers(dtype), chunks=CHUNKS, missing=[0, 3, 8], fill_value=fill)
    for key in KEYS.values():
        stored.check(key)
    raw = stored.variable().values
    assert raw.tobytes() == stored.by_zarr().values.tobytes()  # also the bits of a NaN


CHAINS = {
    "none": [],
    "zlib": [numcodecs.Zlib(level=1)],
    "gzip": [codecs.GzipCodec(level=1)],
    "numcodecs.gzip": [numcodecs.GZip(level=1)],
    "zstd": [codecs.ZstdCodec(level=1)],
    "zstd with a checksum": [codecs.ZstdCodec(level=1, checksum=True)],
    "numcodecs.zstd": [numcodecs.Zstd(level=1)],
    "blosc": [codecs.BloscCodec(cname="lz4", shuffle="shuffle")],
    "blosc of bits": [codecs.BloscCodec(cname="zstd", shuffle="bitshuffle")],
    "lz4": [numcodecs.LZ4()],
    "bz2": [numcodecs.BZ2(level=1)],
    "lzma": [numcodecs.LZMA(preset=0)],
    "shuffle": [numcodecs.Shuffle(elementsize=4)],
    "shuffle of single bytes": [numcodecs.Shuffle(elementsize=1)],
    "shuffle of other elements": [numcodecs.Shuffle(elementsize=8)],
    "shuffle and zlib": [numcodecs.Shuffle(elementsize=4), numcodecs.Zlib(level=1)],
    "shuffle, zlib, fletcher32": [
        numcodecs.Shuffle(elementsize=4), numcodecs.Zlib(level=1), numcodecs.Fletcher32(),
    ],
    "fletcher32, shuffle": [numcodecs.Fletcher32(), numcodecs.Shuffle(elementsize=4)],
    "fletcher32": [numcodecs.Fletcher32()],
    "crc32c": [codecs.Crc32cCodec()],
    "numcodecs.crc32": [numcodecs.CRC32()],
    "adler32": [numcodecs.Adler32()],
    "zlib of zlib": [numcodecs.Zlib(level=1), numcodecs.Zlib(level=1)],
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_every_compressor(tmp_path, chain):
    stored = store(tmp_path, numbers("<f4"), chunks=CHUNKS, missing=[5], compressors=chain)
    assert stored.why_zarr is None
    for key in KEYS.values():
        stored.check(key)


FILTERS = {
    "transposed": ("<f4", [TRANSPOSE]),
    "transposed twice": ("<f4", [TRANSPOSE, TRANSPOSE]),
    "packed as integers": (
        "<f8",
        [numcodecs.FixedScaleOffset(scale=1, offset=10, dtype="<f8", astype="<i2")],
    ),
    "packed and transposed": (
        "<f8",
        [TRANSPOSE, numcodecs.FixedScaleOffset(scale=1, offset=10, dtype="<f8", astype="<i2")],
    ),
    "differences": ("<i4", [numcodecs.Delta(dtype="<i4")]),
    "another type": ("<f4", [numcodecs.AsType(encode_dtype="<f8", decode_dtype="<f4")]),
    "rounded": ("<f4", [numcodecs.BitRound(keepbits=20)]),
    "quantized": ("<f4", [numcodecs.Quantize(digits=3, dtype="<f4")]),
    "packed bits": ("?", [numcodecs.PackBits()]),
}


@pytest.mark.parametrize("compressors", [None, CHAINS["shuffle and zlib"]], ids=str)
@pytest.mark.parametrize(("dtype", "filters"), FILTERS.values(), ids=FILTERS)
def test_every_filter(tmp_path, dtype, filters, compressors):
    if "PackBits" in str(filters) and compressors:
        pytest.skip("shuffle of numcodecs refuses bytes that are no whole elements")
    stored = store(
        tmp_path,
        numbers(dtype),
        chunks=CHUNKS,
        missing=[1],
        filters=filters,
        compressors=compressors,
    )
    assert stored.why_zarr is None
    for key in KEYS.values():
        stored.check(key)


FALLBACKS = {
    "shards": ({"chunks": (3, 4), "shards": (6, 8)}, numbers("<f4"), "shards"),
    "text": ({"chunks": CHUNKS}, numbers("i4").astype(str).astype("T"), "text"),
    "zlib of text": (
        {"chunks": CHUNKS, "compressors": [numcodecs.Zlib(level=1)]},
        numbers("i4").astype(str).astype("T"),
        "text",
    ),
}


@pytest.mark.parametrize(("options", "values", "why"), FALLBACKS.values(), ids=FALLBACKS)
def test_what_zarr_has_to_decode_is_read_through_it_and_says_why(tmp_path, options, values, why):
    stored = store(tmp_path, values, **options)
    assert why in stored.why_zarr
    piped = stored.by_zarr()
    for key in KEYS.values():
        np.testing.assert_array_equal(stored.variable().isel(key).values, piped.isel(key).values)


def test_a_configuration_that_refuses_missing_chunks_is_heeded(tmp_path):
    stored = store(tmp_path, numbers("<f4"), chunks=CHUNKS, missing=[0])
    with zarr.config.set({"array.read_missing_chunks": False}):
        assert "missing" in stored.why_zarr
        with pytest.raises(Exception, match="hunk"):
            stored.variable().load()


@pytest.mark.parametrize(
    ("place", "chain"),
    crossed([*product([True, False], [None, 1], [0, 50, 1 << 20])], ["none", "shuffle and zlib"]),
    ids=str,
)
def test_wherever_chunks_are(tmp_path, place, chain):
    commit, split, inline = place
    stored = store(
        tmp_path,
        numbers("<i4"),
        chunks=CHUNKS,
        missing=[2],
        inline=inline,
        split=split,
        commit=commit,
        compressors=CHAINS[chain],
    )
    for key in KEYS.values():
        stored.check(key)


def test_a_session_shows_chunks_that_are_not_committed_beside_those_that_are(tmp_path):
    from icevirt.repo.repository import Repository

    stored = store(tmp_path, numbers("<i4"), chunks=CHUNKS, missing=[1], split=1)
    session = Repository.open(tmp_path).writable_session("main")
    array = zarr.open_group(session.store)["v"]
    array[0:3, 4:8] = -1
    array[6, 8] = -2
    stored.values[0:3, 4:8], stored.values[6, 8] = -1, -2
    stored.session = session
    for key in KEYS.values():
        stored.check(key)


GRIDS = {
    "both axes": ([[3, 4], [4, 5]], (7, 9)),
    "beside chunks that end beyond the array": ([[3, 4], 4], (7, 9)),
    "single chunks": ([[1] * 7, [9]], (7, 9)),
    "many": ([[2, 1, 3, 1], [5, 1, 1, 2]], (7, 9)),
    "one long run": ([[1, 2, 2, 2], 9], (7, 9)),
}


@pytest.mark.parametrize(("name", "chain"), crossed(GRIDS, ["none", "shuffle and zlib"]))
def test_rectilinear_grids(tmp_path, name, chain):
    chunks, shape = GRIDS[name]
    with zarr.config.set({"array.rectilinear_chunks": True}):
        stored = store(
            tmp_path,
            numbers("<f4", shape),
            chunks=chunks,
            missing=[1],
            compressors=CHAINS[chain],
        )
        assert stored.why_zarr is None
        for key in KEYS.values():
            stored.check(key)


def test_a_rectilinear_grid_that_is_longer_than_its_array(tmp_path):
    with zarr.config.set({"array.rectilinear_chunks": True}):
        stored = store(tmp_path, numbers("<f4", (9, 9)), chunks=[[3, 6], [4, 5]], commit=False)
        zarr.open_group(stored.session.store)["v"].resize((7, 8))
        stored.values = stored.values[:7, :8]
        for name in ("all", "a box", "backwards", "a row", "points"):
            key = {"d0": [6, 0], "d1": 7} if name == "points" else KEYS[name]
            stored.check(key)


@pytest.mark.parametrize("missing", [[], [0]])
@pytest.mark.parametrize("chain", ["none", "shuffle and zlib"])
def test_an_array_without_axes(tmp_path, missing, chain):
    value = np.array(7, "<f4")
    stored = store(tmp_path, value, missing=missing, compressors=CHAINS[chain])
    assert stored.why_zarr is None
    stored.check({})


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5)])
def test_an_array_without_elements(tmp_path, shape):
    stored = store(tmp_path, np.zeros(shape, "<i2"), chunks=tuple(max(n, 1) for n in shape))
    stored.check({})
    stored.check({f"d{len(shape) - 1}": slice(None, None, -1)})


CODECS = st.sampled_from(["none", "zlib", "shuffle and zlib", "zstd", "fletcher32"])


@st.composite
def keys(draw, shape):
    """Return an index of some dimensions, of one of xarray's three kinds."""
    kind = draw(st.sampled_from(["basic", "outer", "points"]))
    key = {}
    count = draw(st.integers(0, 4))
    for axis, length in enumerate(shape):
        at = st.integers(-length, length - 1)
        if draw(st.booleans()):
            step = draw(st.sampled_from([-3, -1, 1, 2]))
            key[f"d{axis}"] = slice(draw(st.none() | at), draw(st.none() | at), step)
        elif kind == "basic":
            key[f"d{axis}"] = draw(at)
        elif kind == "outer":
            key[f"d{axis}"] = np.array(draw(st.lists(at, max_size=5)), int)
        else:
            points = draw(st.lists(at, min_size=count, max_size=count))
            key[f"d{axis}"] = xr.Variable("p", np.array(points, int))
    return key


@pytest.mark.ci
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_arrays_and_selections(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, length + 1)) for length in shape)
    count = int(np.prod([-(-n // c) for n, c in zip(shape, chunks, strict=True)]))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    with tempfile.TemporaryDirectory() as folder:
        stored = store(
            Path(folder),
            numbers("<i4", shape),
            chunks=chunks,
            missing=data.draw(st.sets(st.integers(0, count - 1), max_size=3)),
            inline=data.draw(st.sampled_from([0, 40])),
            split=data.draw(st.none() | st.integers(1, 3)),
            filters=[codecs.TransposeCodec(order=order)] if data.draw(st.booleans()) else [],
            compressors=CHAINS[data.draw(CODECS)],
            fill_value=-5,
        )
        for _ in range(5):
            stored.check(data.draw(keys(shape)))


def test_an_index_out_of_bounds_is_an_index_error(tmp_path):
    shown = store(tmp_path, numbers("<f4"), chunks=CHUNKS).variable()
    for key in ({"d0": 7}, {"d0": [0, 7]}, {"d0": xr.Variable("p", [7])}):
        with pytest.raises(IndexError):
            shown.isel(key).load()


def test_the_engine_and_dask_show_the_same(tmp_path):
    stored = store(
        tmp_path, numbers("<f4"), chunks=CHUNKS, dimension_names=names_of(numbers("<f4"))
    )
    plain = xr.open_dataset(tmp_path, engine="icevirt")
    lazy = xr.open_dataset(tmp_path, engine="icevirt", chunks={})
    expected = xr.Variable(names_of(stored.values), stored.values)
    for key in KEYS.values():
        for shown in (plain, lazy):
            np.testing.assert_array_equal(shown["v"].isel(key).values, expected.isel(key).values)
