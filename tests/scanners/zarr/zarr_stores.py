"""Stores of many arrays: data types, chunk keys, fill values and codecs of both formats."""

import warnings

import numcodecs
import numpy as np
import pandas as pd
import xarray as xr
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as wrapped
from zarr.errors import ZarrUserWarning

SHAPE, CHUNKS = (5, 7), (2, 3)
DTYPES = (
    *("i1", "<i4", "i8", "u1", "u2", "u8", "f2", "f4", "f8", "c8", "c16", "?", "M8[s]", "M8[10us]"),
    *("m8[h]", "S5", "U4", "V3", ">i4", ">f8"),
)
FILLS = (0, 1.5, np.nan, np.inf, -np.inf)
BYTES_V2 = {
    "none": None,
    "zlib": numcodecs.Zlib(3),
    "gzip": numcodecs.GZip(3),
    "zstd": numcodecs.Zstd(3),
    "bz2": numcodecs.BZ2(3),
    "lzma": numcodecs.LZMA(),
    "lz4": numcodecs.LZ4(),
    **{f"blosc {shuffle}": numcodecs.Blosc("zstd", 3, shuffle) for shuffle in (0, 1, 2, -1)},
}
FILTERS_V2 = {
    "delta": ("<i4", [numcodecs.Delta("<i4")]),
    "shuffle": ("<i4", [numcodecs.Shuffle(4)]),
    "two": ("<i4", [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)]),
    "fixed": ("f8", [numcodecs.FixedScaleOffset(10, 2, "f8", "i2")]),
    "quantize": ("f8", [numcodecs.Quantize(2, "f8")]),
    "bitround": ("f4", [numcodecs.BitRound(5)]),
    "astype": ("f8", [numcodecs.AsType("f4", "f8")]),
    "packbits": ("?", [numcodecs.PackBits()]),
    "crc32": ("f4", [numcodecs.CRC32()]),
    "fletcher": ("f4", [numcodecs.Fletcher32()]),
}
BYTES_V3 = {
    "none": None,
    "gzip": GzipCodec(level=3),
    "zstd": ZstdCodec(level=3, checksum=True),
    "blosc": BloscCodec(cname="lz4", shuffle="bitshuffle"),
    "crc32c": Crc32cCodec(),
    "zlib": wrapped.Zlib(level=2),
    "lz4": wrapped.LZ4(),
    "two": [wrapped.Shuffle(elementsize=4), ZstdCodec(level=1)],
}
REFUSED = {"struct": [("a", "i4"), ("b", "f8")]}


def values_of(dtype, shape=SHAPE):
    rng, dtype = np.random.default_rng(1), np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind in "SU":
        return np.array([f"{number}x" for number in range(count)]).astype(dtype).reshape(shape)
    if dtype.kind == "V":
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)
    return rng.integers(0, 100, shape).astype(dtype)


def write_store(path, zarr_format, *, consolidated=False):
    """Write a store of many arrays, some of whose chunks are missing."""
    root = zarr.open_group(
        path,
        mode="w",
        zarr_format=zarr_format,
        attributes={"title": "a store", "numbers": [1, 2.5, None], "deep": {"a": "ö"}},
    )

    def make(name, dtype="f4", values=None, **how):
        values = values_of(dtype) if values is None else values
        chunks = how.pop("chunks", CHUNKS[: values.ndim])
        array = root.create_array(
            name, shape=values.shape, chunks=chunks, dtype=dtype, attributes={"is": name}, **how
        )
        array[...] = values

    for number, dtype in enumerate(DTYPES):
        make(f"dtype{number}", dtype)
    for name in ("v2",) if zarr_format == 2 else ("default", "v2"):
        for separator, word in ((".", "dot"), ("/", "slash")):
            how = {"chunk_key_encoding": {"name": name, "separator": separator}}
            make(f"keys_{name}_{word}", **how)
            make(f"scalar_{name}_{word}", values=np.array(2.5, "f4"), **how)
            make(f"line_{name}_{word}", values=np.arange(25, dtype="f4"), **how)
    for number, fill in enumerate(FILLS):
        array = root.create_array(
            f"fill{number}", shape=SHAPE, chunks=CHUNKS, dtype="f4", fill_value=fill
        )
        array[:2, :3] = 1
    root.create_array("missing", shape=SHAPE, chunks=CHUNKS, dtype="i2", fill_value=7)
    root.create_array("empty", shape=(0, 3), chunks=CHUNKS, dtype="f4")
    text = root.create_array("text", shape=(4,), chunks=(3,), dtype="str")
    text[...] = np.array(["a", "bö", "", "dd"])
    (_write_v2 if zarr_format == 2 else _write_v3)(root, make)
    inner = root.create_group("group/inner", attributes={"depth": 2})
    inner.create_array("x", shape=(4,), chunks=(2,), dtype="i2", fill_value=3)[:2] = 1
    if consolidated:
        consolidate(path)


def consolidate(path):
    """Consolidate metadata as many do, though v3 does not specify it."""
    with warnings.catch_warnings(action="ignore", category=ZarrUserWarning):
        zarr.consolidate_metadata(path)


def _write_v2(root, make):
    for dtype in ("M8[ns]", "<m8[s]", "f4", "c8", "?", "S3", "U2"):  # no fill value is named
        how = {"shape": SHAPE, "chunks": CHUNKS, "dtype": dtype, "fill_value": None}
        root.create_array(f"open fill {dtype}", **how)[:2, :3] = values_of(dtype, (2, 3))
    for name, codec in BYTES_V2.items():
        for dtype in ("f4", "u1", ">i2"):
            make(f"codec {name} {dtype.replace('>', 'big ')}", dtype, compressors=codec)
    for name, (dtype, filters) in FILTERS_V2.items():
        make(f"filter {name}", dtype, filters=filters, compressors=numcodecs.Zstd(1))
    make("fortran", "i4", values_of("i4", (4, 5, 6)), chunks=(2, 2, 3), order="F")


def _write_v3(root, make):
    for name, codec in BYTES_V3.items():
        make(f"codec {name}", compressors=codec)
    make("big", serializer=BytesCodec(endian="big"))
    order = TransposeCodec(order=(2, 0, 1))
    make("transposed", "i4", values_of("i4", (4, 5, 6)), chunks=(2, 2, 3), filters=[order])
    inner = ShardingCodec(chunk_shape=(2, 3), codecs=[BytesCodec(), ZstdCodec()])
    make(
        "shards", "i4", values_of("i4", (10, 12)), chunks=(4, 6), serializer=inner, compressors=None
    )
    for place in ("start", "end"):
        array = root.create_array(
            f"shards {place}",
            shape=(10, 12),
            chunks=(2, 3),
            shards={"shape": (4, 6), "index_location": place},
            dtype="i4",
        )
        array[:7] = values_of("i4", (7, 12)) + 1


def month(number, *, steps=3):
    """Return a dataset of a few days of a month."""
    rng = np.random.default_rng(number)
    return xr.Dataset(
        {
            "t": (("time", "y", "x"), rng.random((steps, 4, 6)).astype("f4")),
            "name": (("time",), [f"day {day}" for day in range(steps)]),
            "height": (("y",), np.arange(4, dtype="i2")),
        },
        coords={"time": pd.date_range(f"2020-{number:02}-01", periods=steps), "x": np.arange(6.0)},
        attrs={"title": "months"},
    )


def write_month(path, number, zarr_format=3):
    """Write it as xarray does."""
    encoding = {"t": {"chunks": (1, 2, 6)}, "time": {"units": "days since 2020-01-01"}}
    month(number).to_zarr(
        path, mode="w", zarr_format=zarr_format, consolidated=False, encoding=encoding
    )


def arrays_in(path):
    """Return the names of the arrays of a store."""
    root = zarr.open_group(path, mode="r")
    found = root.members(max_depth=None)
    return [name for name, node in found if isinstance(node, zarr.Array)]
