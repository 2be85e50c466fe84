"""LZF, SZIP and LZ4 of HDF5 are references where readers have imagecodecs, and read as h5py reads.

A process with hdf5plugin writes the files and reads them by h5py; they are scanned here, without
it; the official client reads in a third process, which knows the codecs by their entry points.
"""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
import zarr
from h5py import h5z
from zarr import registry

import icevirt
from icevirt.api.scan import scan_file
from icevirt.errors import InvalidInputError, MissingPackageError, UnsupportedError
from icevirt.model.chunks import ChunkType
from icevirt_scanners.hdf5.filters import encode_lzf, pipeline_of

pytestmark = [pytest.mark.ci]
LZ4 = 32004  # of the filters that are registered with HDF5

WRITE = """
import pickle, sys
import h5py, hdf5plugin, netCDF4, numpy as np
folder = sys.argv[1]
rng = np.random.default_rng(3)
FILTERS = {
    "lzf": dict(compression="lzf"),
    "lzf_shuffle": dict(compression="lzf", shuffle=True),
    "lzf_fletcher": dict(compression="lzf", fletcher32=True),
    "lzf_both": dict(compression="lzf", shuffle=True, fletcher32=True),
    "szip_nn": dict(compression="szip", compression_opts=("nn", 8)),
    "szip_ec": dict(compression="szip", compression_opts=("ec", 16)),
    "szip_both": dict(compression="szip", shuffle=True, fletcher32=True),
    "lz4": dict(hdf5plugin.LZ4()),
    "lz4_blocks": dict(hdf5plugin.LZ4(nbytes=100)),
    "lz4_both": dict(hdf5plugin.LZ4(), shuffle=True, fletcher32=True),
}
PLAIN = ("lzf", "szip_nn", "lz4")

def values(dtype):
    found = np.add.outer(np.arange(37), np.arange(41) * 3).astype(dtype)
    noise = rng.bytes(9 * 41 * found.itemsize)
    found[16:25] = np.nan_to_num(np.frombuffer(noise, dtype).reshape(9, 41))  # nothing compresses it
    found[30:] = 0  # almost nothing is left of it
    return found[None]

def fill(file):
    for name, options in FILTERS.items():
        for dtype in ("u1", ">i2", "<f4", "<i8") if name in PLAIN else (">i2", "<f4"):
            file.create_dataset(name + dtype, data=values(dtype), chunks=(1, 8, 20), **options)
    text = np.array([b"a", b"bc"] * 20, "S3").reshape(1, 40)
    file.create_dataset("text", data=text, chunks=(1, 16), compression="lzf")
    missing = file.create_dataset("missing", (1, 20), "<f4", chunks=(1, 10), fillvalue=-9, **FILTERS["lz4"])
    missing[:, 10:] = 5
    for name in ("lzf", "szip_nn"):
        skip(file, name)

def skip(file, name):  # as others write: one chunk without its filter
    put = file.create_dataset("skipped_" + name, (1, 20), "<f4", chunks=(1, 10), **FILTERS[name])
    put[:] = np.arange(20)
    put.id.write_direct_chunk((0, 10), np.arange(5, 15, dtype="<f4").tobytes(), filter_mask=1)

with h5py.File(f"{folder}/skipped.h5", "w") as file:
    skip(file, "lz4")
with h5py.File(f"{folder}/h.h5", "w") as file:
    fill(file)
    file["time"] = [0]
    file["time"].make_scale("time")
    for each in file.values():
        if each.ndim > 1:
            each.dims[0].attach_scale(file["time"])
            each.dims[0].label = "time"
    truth = {name: each[...] for name, each in file.items() if each.ndim > 1}
with netCDF4.Dataset(f"{folder}/n.nc", "w") as file:
    for name, length in dict(time=None, y=37, x=41).items():
        file.createDimension(name, length)
    file.createVariable("time", "f8", ("time",))[:] = [0]
    kinds = {"netcdf_szip": dict(compression="szip", szip_pixels_per_block=16)}
    for name, options in kinds.items():
        each = file.createVariable(name, "f4", ("time", "y", "x"), endian="big", chunksizes=(1, 37, 41), **options)
        each[:] = values(">f4")
with h5py.File(f"{folder}/n.nc") as file:
    truth |= {name: file[name][...] for name in kinds}
pickle.dump(truth, open(f"{folder}/truth", "wb"))
"""

OFFICIAL = """
import sys, pickle
import icechunk, numpy as np, zarr
from icechunk.credentials import LocalFileSystemAccess
zarr.config.set({"array.read_missing_chunks": True})
found = {}
for path in sys.argv[2:]:
    storage = icechunk.local_filesystem_storage(path)
    prefixes = icechunk.Repository.open(storage).config.virtual_chunk_containers
    access = dict.fromkeys(prefixes, LocalFileSystemAccess)
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    root = zarr.open_group(repo.readonly_session("main").store, mode="r")
    found |= {name: np.asarray(node[...]) for name, node in root.arrays()}
assert "hdf5plugin" not in sys.modules
pickle.dump(found, open(sys.argv[1], "wb"))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder, values by h5py, by icevirt and by the official client, and counts of chunks."""
    folder = tmp_path_factory.mktemp("imagecodecs")
    env = {**os.environ, "ICEVIRT_HDF5_PLUGINS": ""}
    env.pop("HDF5_PLUGIN_PATH", None)
    subprocess.run([sys.executable, "-c", WRITE, folder], check=True, env=env)
    mine, counts = {}, {}
    for kind in ("h.h5", "n.nc"):
        repo = folder / f"repo {kind[0]}"
        options = {"codecs": "imagecodecs"}
        scanned = scan_file(folder / kind, scan_options=options)
        counts |= {each.path[1:]: each.references for each in scanned.arrays}
        icevirt.build(str(folder / kind), repo, scan_options=options, executor="in-process")
        opened = icevirt.Repository.open(repo, authorize_virtual_chunk_access=[folder])
        root = zarr.open_group(opened.readonly_session(branch="main").store, mode="r")
        mine |= {name: np.asarray(each[...]) for name, each in root.arrays()}
    repos = [folder / "repo h", folder / "repo n"]
    subprocess.run([sys.executable, "-c", OFFICIAL, folder / "found", *repos], check=True, env=env)
    read = [pickle.loads((folder / name).read_bytes()) for name in ("truth", "found")]
    return folder, read[0], mine, read[1], counts


FILTERS = (
    *("lzf", "lzf_shuffle", "lzf_fletcher", "lzf_both", "szip_nn", "szip_ec", "szip_both"),
    *("lz4", "lz4_blocks", "lz4_both"),
)
PLAIN = ("lzf", "szip_nn", "lz4")
NAMES = [name + dtype for name in FILTERS for dtype in (">i2", "<f4")]
NAMES += [name + dtype for name in PLAIN for dtype in ("u1", "<i8")]
OTHERS = ("text", "missing", "skipped_lzf", "skipped_szip_nn", "netcdf_szip")


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_both_clients_read_what_h5py_reads(built, name):
    _, truth, mine, official, _ = built
    wanted = truth[name].astype(truth[name].dtype.newbyteorder("="))
    for found in (mine[name], official[name]):
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()


def test_chunks_are_referenced_but_for_those_that_the_codecs_do_not_decode(built):
    counts = {name: each for name, each in built[-1].items() if name not in ("time", "text")}
    stored = {name: each.count(ChunkType.inline) for name, each in counts.items()}
    assert all(counts[name].count(ChunkType.virtual) for name in ("missing", *NAMES))
    assert {name for name in stored if name.startswith("lz4") and stored[name]} == set()
    assert stored["skipped_lzf"] == 2 - counts["skipped_lzf"].count(ChunkType.virtual) > 0
    assert stored["skipped_szip_nn"] > 0
    assert 0 < stored["lzf<f4"] < 15


@pytest.fixture
def without_plugin():
    """Take LZ4 from libhdf5, which another test of this process may have given it."""
    if is_there := h5z.filter_avail(LZ4):
        h5z.unregister_filter(LZ4)
    yield
    if is_there:
        import hdf5plugin

        hdf5plugin.register("lz4", force=True)


@pytest.mark.usefixtures("without_plugin")
def test_a_chunk_that_neither_libhdf5_nor_the_codec_reads_is_refused(built):
    with pytest.raises(UnsupportedError, match="1 of 2 chunks skip a filter") as caught:
        scan_file(built[0] / "skipped.h5", scan_options={"codecs": "imagecodecs"})
    assert "hdf5plugin" in caught.value.do


def test_the_plan_says_what_is_not_copied_and_what_the_option_would_save(built):
    folder = built[0]
    options = {"codecs": ["imagecodecs"], "variables": ["netcdf_szip", "time"]}
    plan = icevirt.plan(str(folder / "n.nc"), scan_options=options, executor="in-process")
    assert any("stay in the files, because readers have imagecodecs-zarr" in n for n in plan.notes)
    options.pop("codecs")
    plan = icevirt.plan(str(folder / "n.nc"), scan_options=options, executor="in-process")
    assert any("the option codecs accepts that of imagecodecs" in note for note in plan.notes)
    with pytest.raises(InvalidInputError, match=r"no package of codecs\. Pass one of imagecodecs"):
        icevirt.plan(str(folder / "n.nc"), scan_options={"codecs": "numcodecs"})


def test_verification_compares_them_without_the_plugin(built):
    report = icevirt.verify(built[0] / "repo h", values=4, executor="in-process")
    assert report.ok
    assert not report.checked.not_compared


def test_a_reader_without_the_package_is_told_how_to_install_it(built, monkeypatch):
    monkeypatch.setitem(registry._codec_registries, "imagecodecs_szip", registry.Registry())
    with pytest.raises(
        MissingPackageError, match=r"imagecodecs_szip.*pip install imagecodecs-zarr"
    ):
        xr.open_dataset(built[0] / "repo n", engine="icevirt")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("what", ["zeros", "noise", "both"])
def test_stored_chunks_are_lzf_that_the_codec_decodes(size, what):
    from imagecodecs import lzf_decode

    raw = np.random.default_rng(1).bytes(size) if what != "zeros" else bytes(size)
    raw = raw + bytes(10 * size) if what == "both" else raw
    encoded = encode_lzf(raw)
    assert len(raw) <= 8 * len(encoded)
    assert not raw or bytes(lzf_decode(encoded, header=False)) == raw


@pytest.mark.parametrize(
    "filters",
    [
        ((1, 0, (4,), b""), (32000, 0, (), b"lzf")),
        ((32000, 0, (), b"lzf"), (1, 0, (4,), b"")),
        ((4, 0, (), b"szip"),),
        ((32008, 0, (), b"bshuf"),),
    ],
    ids=["lzf behind deflate", "deflate behind lzf", "szip without options", "bitshuffle"],
)
def test_what_the_codecs_may_not_decode_is_stored(filters):
    assert pipeline_of(filters, 4000, ("imagecodecs",)).not_plain
