"""Write the table of docs/sources.md: format, writer, layout, and what a build makes of it.

    python docs/make_sources.py    # `just sources`

Packages of writers are installed by `uv` into a temporary place. What a build takes is compared
with zarr-python, through icevirt and through the official client.
"""

# ruff: noqa: E501 - programs of writers, as text
from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from icechunk.credentials import LocalFileSystemAccess
from zarr.storage import ZipStore

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import IcevirtError

HERE = Path(__file__).parent
PAGE = HERE / "sources.md"
BEGIN, END = "<!-- made by make_sources.py -->", "<!-- end -->"
VALUES = """
import sys, numpy as np
out = sys.argv[1]
def values(dtype, shape=(5, 7)):
    dtype, count = np.dtype(dtype), int(np.prod(shape))
    if dtype.kind == "V":
        return np.frombuffer(np.random.default_rng(1).bytes(count * dtype.itemsize), dtype).reshape(shape)
    return np.arange(count).astype(dtype).reshape(shape)
"""
ZARR_2 = """
import zarr, numcodecs as nc
root = zarr.group(zarr.DirectoryStore(out), overwrite=True)
flat = dict(shape=(5, 7), chunks=(2, 3))
for dtype in ("i1", "<i4", ">i4", "u8", "f2", "f4", ">f8", "c8", "?", "M8[s]", "M8[ns]", "m8[h]", "S5", "U4", "V3"):
    root.create_dataset(f"dtype {dtype}", dtype=dtype, **flat)[:] = values(dtype)
for fill in (0, None, float("nan")):
    root.create_dataset(f"fill {fill}", dtype="f4", fill_value=fill, **flat)[:2] = 1
for separator in "./":
    root.create_dataset("separator " + {".": "dot", "/": "slash"}[separator], dtype="f4", dimension_separator=separator, **flat)[:] = values("f4")
for codec in (None, nc.Blosc("zstd", 5, 2), nc.Zlib(), nc.GZip(), nc.Zstd(), nc.BZ2(), nc.LZMA(), nc.LZ4()):
    root.create_dataset("compressor " + getattr(codec, "codec_id", "none"), dtype="f4", compressor=codec, **flat)[:] = values("f4")
for dtype, codec in (("i4", nc.Delta("i4")), ("f8", nc.FixedScaleOffset(10, 2, "f8", "i2")), ("f8", nc.Quantize(2, "f8")), ("f4", nc.BitRound(5)), ("?", nc.PackBits()), ("i4", nc.Shuffle(4)), ("f4", nc.CRC32()), ("f4", nc.Fletcher32()), ("i4", nc.Base64())):
    root.create_dataset(f"filter {codec.codec_id}", dtype=dtype, filters=[codec], **flat)[:] = values(dtype)
root.create_dataset("order F", dtype="i4", order="F", **flat)[:] = values("i4")
for codec in (nc.VLenUTF8(), nc.VLenBytes(), nc.JSON(), nc.Pickle()):
    texts = ["a", "b", "", "d"]
    texts = [text.encode() for text in texts] if codec.codec_id == "vlen-bytes" else texts
    root.create_dataset(f"objects {codec.codec_id}", shape=(4,), chunks=(3,), dtype=object, object_codec=codec)[:] = np.array(texts, object)
ragged = root.create_dataset("objects vlen-array", shape=(2,), dtype=object, object_codec=nc.VLenArray("i4"))
ragged[0], ragged[1] = np.arange(2, dtype="i4"), np.arange(1, dtype="i4")
root.create_dataset("struct", shape=(4,), dtype=[("a", "i4"), ("b", "f8")])[:] = np.zeros(4, [("a", "i4"), ("b", "f8")])
"""
ZARR_3 = """
import zarr, numcodecs, warnings
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
warnings.simplefilter("ignore")
version = int(sys.argv[2])
root = zarr.open_group(out, mode="w", zarr_format=version)
flat = dict(shape=(5, 7), chunks=(2, 3))
def make(name, dtype="f4", **how):
    root.create_array(name, dtype=dtype, **flat, **how)[...] = values(dtype)
for dtype in ("i1", "<i4", ">i4", "u8", "f2", "f4", "c8", "?", "M8[s]", "m8[h]", "S5", "U4", "V3"):
    make(f"dtype {dtype}", dtype)
for name in ("default", "v2") if version == 3 else ("v2",):
    for separator, word in ((".", "dot"), ("/", "slash")):
        make(f"keys {name} {word}", chunk_key_encoding={"name": name, "separator": separator})
root.create_array("text", shape=(4,), chunks=(3,), dtype="str")[...] = np.array(["a", "b", "", "d"])
root.create_array("struct", shape=(4,), dtype=[("a", "i4"), ("b", "f8")])[...] = np.zeros(4, [("a", "i4"), ("b", "f8")])
if version == 3:
    for name, codec in {"none": None, "gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec(), "crc32c": Crc32cCodec()}.items():
        make(f"codec {name}", compressors=codec)
    make("big-endian", serializer=BytesCodec(endian="big"))
    make("transposed", filters=[TransposeCodec(order=(1, 0))])
    for place in ("start", "end"):
        root.create_array(f"shards, index at the {place}", shape=(10, 12), chunks=(2, 3), shards={"shape": (4, 6), "index_location": place}, dtype="i4")[:7] = 1
"""
TENSORSTORE = """
import json, os, ml_dtypes, tensorstore as ts
os.makedirs(out)
json.dump({"zarr_format": 3, "node_type": "group"}, open(out + "/zarr.json", "w"))
def make(name, codecs, dtype="float32", chunks=(2, 3), **more):
    grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    metadata = {"shape": [5, 7], "chunk_grid": grid, "data_type": dtype, "codecs": codecs, **more}
    place = {"driver": "file", "path": f"{out}/{name}/"}
    store = ts.open({"driver": "zarr3", "kvstore": place, "metadata": metadata, "create": True}).result()
    store[...] = np.arange(35).reshape(5, 7).astype(store.dtype.numpy_dtype)
little = {"name": "bytes", "configuration": {"endian": "little"}}
blosc = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}
make("codec blosc", [little, blosc])
make("transposed, big-endian, zstd", [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd", "configuration": {"level": 1}}])
make("shards", [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3], "codecs": [little, {"name": "gzip", "configuration": {"level": 3}}]}}], chunks=(4, 6))
make("keys v2 dot", [little, {"name": "crc32c"}], chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}})
make("dtype bfloat16", [little], "bfloat16")
make("dtype int4", [{"name": "bytes"}], "int4")
"""
Z5PY = """
import sys, z5py
version = int(sys.argv[2])
root = z5py.ZarrFile(out, "w", zarr_format=version)
for dtype in ("i1", "i4", "u8", "f4", "f8"):
    root.create_dataset(f"dtype {dtype}", data=values(dtype), chunks=(2, 3), compression="raw")
for codec in ("zlib", "gzip", "blosc", "bzip2", "zstd"):
    if version == 2 or codec in ("gzip", "blosc", "zstd"):
        root.create_dataset(f"codec {codec}", data=values("f4"), chunks=(2, 3), compression=codec)
root.create_dataset("partly written", shape=(5, 7), dtype="i2", chunks=(2, 3), fillvalue=7)[:2] = values("i2")[:2]
if version == 3:
    root.create_dataset("keys v2", data=values("f4"), chunks=(2, 3), chunk_key_encoding="v2")
    root.create_dataset("shards", data=values("f4"), chunks=(2, 3), shards=(4, 6))
"""
ZARRITA = """
import sys, zarrita
from zarrita import codecs as c
version, place = sys.argv[2], zarrita.LocalStore(out)
if version == "2":
    zarrita.GroupV2.create(place)
    for name, how in {"plain": {}, "order F": {"order": "F"}, "separator slash": {"dimension_separator": "/"}, "compressor zlib": {"compressor": {"id": "zlib", "level": 1}}, "filter delta": {"filters": [{"id": "delta", "dtype": "<i4"}]}}.items():
        zarrita.ArrayV2.create(place / name, shape=(5, 7), dtype=np.dtype("i4"), chunks=(2, 3), fill_value=3, **how)[:, :] = values("i4")
else:
    zarrita.Group.create(place)
    for name, how in {"codec bytes": [c.bytes_codec()], "big-endian": [c.bytes_codec("big")], "codec blosc": [c.bytes_codec(), c.blosc_codec(typesize=4)], "codec gzip": [c.bytes_codec(), c.gzip_codec()], "codec zstd": [c.bytes_codec(), c.zstd_codec()], "codec crc32c": [c.bytes_codec(), c.crc32c_codec()], "transposed": [c.transpose_codec((1, 0)), c.bytes_codec()], "shards": [c.sharding_codec((1, 3), [c.bytes_codec(), c.zstd_codec()])]}.items():
        zarrita.Array.create(place / name, shape=(5, 7), dtype=np.dtype("i4"), chunk_shape=(2, 3), fill_value=3, codecs=how)[:, :] = values("i4")
"""
ZARRS = (
    "import zarrs, zarr\nzarr.config.set({'codec_pipeline.path': 'zarrs.ZarrsCodecPipeline'})\n"
    + ZARR_3
)
OME = """
import zarr
from ome_zarr.format import FormatV04
from ome_zarr.io import parse_url
from ome_zarr.writer import write_image, write_labels
root = zarr.group(store=parse_url(out, mode="w", fmt=FormatV04()).store)
write_image(values("u2", (2, 3, 64, 64)), root, axes="czyx", fmt=FormatV04(), storage_options=dict(chunks=(1, 1, 32, 32)))
write_labels(values("i4", (3, 64, 64)), root, name="cells", axes="zyx", fmt=FormatV04())
"""
OME_5 = """
import pathlib
import zarr
from ome_zarr.format import FormatV05
from ome_zarr.writer import write_image, write_labels
root = zarr.open_group(out, mode="w", zarr_format=3)
def image(group):
    how = dict(axes="czyx", fmt=FormatV05(), storage_options=dict(chunks=(1, 1, 32, 32)))
    write_image(values("u2", (2, 3, 64, 64)), group, **how)
if len(sys.argv) > 2:  # the layout of bioformats2raw: a group for each series
    root.attrs["ome"] = {"version": "0.5", "bioformats2raw.layout": 3}
    root.create_group("OME").attrs["ome"] = {"version": "0.5", "series": ["0", "1"]}
    pathlib.Path(out, "OME", "METADATA.ome.xml").write_text("<OME/>")
    for series in "01":
        image(root.create_group(series))
else:
    image(root)
    write_labels(values("i4", (3, 64, 64)), root, name="cells", axes="zyx", fmt=FormatV05())
zarr.consolidate_metadata(out)
"""
NCZARR = """
import netCDF4, os
root = netCDF4.Dataset(f"file://{os.path.abspath(out)}#mode={sys.argv[2]},file", "w")
root.title = "written by netCDF-C"
root.createDimension("y", 5), root.createDimension("x", 7), root.createDimension("t", None)
def make(name, dtype="f4", dimensions=("y", "x"), group=root, **how):
    variable = group.createVariable(name, dtype, dimensions, **how)
    return variable
for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
    make(f"dtype {dtype}", dtype, chunksizes=(2, 3))[:] = values(dtype)
make("deflated", chunksizes=(2, 3), zlib=True)[:] = values("f4")
make("shuffled", chunksizes=(2, 3), zlib=True, shuffle=True, complevel=1)[:] = values("f4")
make("partly written", chunksizes=(2, 3), fill_value=-9)[:2] = 1
make("contiguous")[:] = values("f4")
make("unlimited", "i8", ("t",))[:] = np.arange(4)
make("characters", "S1", ("y",))[:] = np.array(list("abcde"), "S1")
make("strings", str, ("y",))[:] = np.array(["a", "bc", "", "d", "e"], object)
make("scalar", "f8", ())[:] = 3
make("inner", group=root.createGroup("group"))[:] = values("f4")
root.close()
"""
GDAL = """
import rasterio, warnings
warnings.simplefilter("ignore")
first = True
def make(name, dtype="float32", count=1, nodata=None, **how):
    global first
    place = dict(crs="EPSG:32633", transform=rasterio.transform.from_origin(0, 5, 1, 1), nodata=nodata)
    blocks = "1,2,3" if count > 1 else "2,3"
    file = rasterio.open(out, "w", driver="Zarr", width=7, height=5, count=count, dtype=dtype, FORMAT=sys.argv[2], ARRAY_NAME=name, BLOCKSIZE=blocks, APPEND_SUBDATASET="NO" if first else "YES", **place, **how)
    for band in range(count):
        file.write(values(dtype), band + 1)
    file.close()
    first = False
two = sys.argv[2] == "ZARR_V2"
for codec in ("none", "gzip", "zstd", "blosc", *(("zlib", "lzma") if two else ())):
    make("codec " + codec, COMPRESS=codec.upper())
for dtype in ("uint8", "int16", "uint32", "int64", "float64", "complex64"):
    make("dtype " + dtype, dtype)
make("nodata", nodata=-9)
make("bands", count=3)
make("order F", CHUNK_MEMORY_LAYOUT="F")
if two:
    make("filter delta", "int32", FILTER="delta")
"""
ZIPPED = (
    ZARR_3.replace(
        'root = zarr.open_group(out, mode="w", zarr_format=version)',
        """
from zarr.storage import ZipStore
store = ZipStore(out, mode="w")
root = zarr.open_group(store, mode="w", zarr_format=version)
""",
    )
    + "store.close()\n"
)
WRITERS = (
    ("Zarr v2", "zarr-python 2", ("zarr<3", "numcodecs<0.16", "numpy<2.3"), ZARR_2, ()),
    ("Zarr v2", "zarr-python 3", (), ZARR_3, ("2",)),
    ("Zarr v3", "zarr-python 3", (), ZARR_3, ("3",)),
    ("Zarr v3", "tensorstore", ("tensorstore", "ml_dtypes", "numpy"), TENSORSTORE, ()),
    ("Zarr v2", "zarrs, its codecs of zarr-python 3", ("zarrs",), ZARRS, ("2",)),
    ("Zarr v3", "zarrs, its codecs of zarr-python 3", ("zarrs",), ZARRS, ("3",)),
    ("Zarr v2", "zarrita", ("zarrita",), ZARRITA, ("2",)),
    ("Zarr v3", "zarrita", ("zarrita",), ZARRITA, ("3",)),
    ("Zarr v2", "z5py", ("z5py",), Z5PY, ("2",)),
    ("Zarr v3", "z5py", ("z5py",), Z5PY, ("3",)),
    (
        "Zarr v2",
        "ome-zarr, OME-NGFF 0.4",
        ("ome-zarr<0.12", "zarr<3", "numpy<2.3", "numcodecs<0.16"),
        OME,
        (),
    ),
    ("Zarr v3", "ome-zarr, OME-NGFF 0.5", ("ome-zarr>=0.12",), OME_5, ()),
    ("Zarr v3", "ome-zarr, layout of bioformats2raw", ("ome-zarr>=0.12",), OME_5, ("series",)),
    ("Zarr v2", "netCDF-C, mode nczarr", ("netCDF4",), NCZARR, ("nczarr",)),
    ("Zarr v2", "netCDF-C, mode zarr", ("netCDF4",), NCZARR, ("zarr",)),
    ("Zarr v2", "GDAL", ("rasterio",), GDAL, ("ZARR_V2",)),
    ("Zarr v3", "GDAL", ("rasterio",), GDAL, ("ZARR_V3",)),
    ("Zarr v2, zipped", "zarr-python 3, ZipStore", (), ZIPPED, ("2",)),
    ("Zarr v3, zipped", "zarr-python 3, ZipStore", (), ZIPPED, ("3",)),
)


def write(store: Path, packages: tuple[str, ...], script: str, more: tuple[str, ...]) -> None:
    """Let a writer write a store."""
    python = [sys.executable]
    if packages:
        each = [part for name in packages for part in ("--with", name)]
        python = ["uv", "run", "-q", "--no-project", "--python", sys.executable, *each, "python"]
    subprocess.run([*python, "-W", "ignore", "-c", VALUES + script, str(store), *more], check=True)


def outcomes(store: Path, folder: Path) -> dict[str, list[str]]:
    """Group the arrays of a store by what a build makes of them."""
    found: dict[str, list[str]] = defaultdict(list)
    dropped: list[str] = []
    while True:
        try:
            scan_file(store, scan_options={"drop_variables": dropped})
            break
        except IcevirtError as error:
            if "variable" not in error.facts:
                return {f"refused: {error.what}": ["all"]}
            path = str(error.facts["variable"])
            dropped.append(path)
            cause = str(error.facts.get("cause", error.what))
            found[f"refused: {re.sub(r'[|]', '', cause)}"].append(path[1:])
    repo = str(folder / "repo")
    icevirt.build(store, repo, scan_options={"drop_variables": dropped}, executor="in-process")
    storage = icechunk.local_filesystem_storage(repo)
    prefixes = icechunk.Repository.open(storage).config.virtual_chunk_containers
    prefixes = prefixes or {}
    access = dict.fromkeys(prefixes, LocalFileSystemAccess)
    theirs = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    mine = icevirt.Repository.open(repo, authorize_virtual_chunk_access=[*prefixes])
    clients = [each.readonly_session("main").store for each in (theirs, mine)]
    for name in names_in(clients[0]):
        source, how = read_source(store, name)
        read = [np.asarray(zarr.open_array(each, path=name, mode="r")[...]) for each in clients]
        equal = all(each.shape == source.shape and same(each, source) for each in read)
        outcome = f"references, equal in both clients{how}" if equal else "NOT EQUAL"
        found[outcome].append(name)
    return found


def read_source(store: Path, name: str) -> tuple[Any, str]:
    """Read an array of a store by zarr-python; say what had to be done to it for that."""
    held: Any = ZipStore(store, read_only=True) if store.suffix == ".zip" else store
    try:
        return np.asarray(zarr.open_array(held, path=name, mode="r")[...]), ""
    except (TypeError, ValueError):  # characters of netCDF-C, whose type zarr-python does not know
        respelled = store.parent / "respelled"
        shutil.copytree(store / name, respelled)
        document = respelled / ".zarray"
        document.write_text(document.read_text().replace('">S', '"|S'))
        values = np.asarray(zarr.open_array(respelled, mode="r")[...])
        shutil.rmtree(respelled)
        return values, "; zarr-python opens it only when its type `>S1` is spelled `\\|S1`"


def names_in(store: Any) -> Iterator[str]:
    """Yield the names of arrays."""
    for name, node in zarr.open_group(store, mode="r").members(max_depth=None):
        if isinstance(node, zarr.Array):
            yield name


def same(one: Any, other: Any) -> bool:
    """Say whether values are equal, NaN with NaN."""
    return bool(one.tolist() == other.tolist() or np.array_equal(one, other, equal_nan=True))


def main() -> None:
    """Write the table."""
    rows = ["| format | writer | layout | what a build does |", "| --- | --- | --- | --- |"]
    only = os.environ.get("ICEVIRT_WRITER", "")  # to try one, which writes no table
    for number, (kind, writer, packages, script, more) in enumerate(WRITERS):
        if only not in writer:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            store = Path(temporary, f"{number}.zarr" + (".zip" if "zipped" in kind else ""))
            write(store, packages, script, more)
            for outcome, names in outcomes(store, Path(temporary)).items():
                rows.append(f"| {kind} | {writer} | {', '.join(sorted(names))} | {outcome} |")
    if only:
        sys.stdout.write("\n".join([*rows, ""]))
        return
    said = (
        f"Run on {dt.datetime.now(tz=dt.UTC):%Y-%m-%d} with icevirt {icevirt.__version__}, "
        f"zarr-python {zarr.__version__} and icechunk {icechunk.__version__}."
    )
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, said, "", *rows, END]) + after)


if __name__ == "__main__":
    main()
