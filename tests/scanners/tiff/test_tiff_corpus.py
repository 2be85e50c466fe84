"""Each image is what GDAL reads in it, in icevirt and in the official client, or refused by name."""

import subprocess
import sys

import numpy as np
import pytest

import icevirt
from icevirt import local_filesystem_store
from icevirt.api.scan import scan_file
from icevirt.errors import UnsupportedError
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig
from long_forms import crossed
from scanners.materialise import materialise
from scanners.tiff.tiff_files import by_gdal, by_tifffile, read_gdal, values

DTYPES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
ENCODED = (
    *(("none", 1), ("packbits", 1), ("deflate", 1), ("lzw", 1), ("zstd", 1)),
    *(("deflate", 2), ("lzw", 2), ("zstd", 2), ("deflate", 3), ("lzw", 3), ("zstd", 3)),
    *(("lzma", 1), ("lzma", 2), ("lzma", 3)),
)
LAYOUTS = {
    "tiles": {"TILED": "YES", "BLOCKXSIZE": 32, "BLOCKYSIZE": 32},
    "strips, the last one shorter": {"BLOCKYSIZE": 16},
    "one strip": {"BLOCKYSIZE": 70},
}
CASES = (
    [
        (*encoded, *case)
        for encoded, *case in crossed(
            ENCODED, DTYPES, ("pixel", "band"), LAYOUTS, ("LITTLE", "BIG"), ("YES", "NO")
        )
    ]
    + [
        (compression, 1, "uint16", interleave, "tiles", "LITTLE", "NO")
        for compression in ("lerc", "lerc_deflate", "lerc_zstd")
        for interleave in ("pixel", "band")
    ]
    + [
        ("deflate", 2 if dtype[0] in "ui" else 1, dtype, "pixel", "tiles", "BIG", "NO")
        for dtype in DTYPES
    ]
)
# reads every array in a fresh process
OFFICIAL = """
import sys, pickle
import icechunk, numpy as np, zarr
from icechunk.credentials import LocalFileSystemAccess
storage = icechunk.local_filesystem_storage(sys.argv[1])
prefixes = icechunk.Repository.open(storage).config.virtual_chunk_containers
access = dict.fromkeys(prefixes, LocalFileSystemAccess)
repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
root = zarr.open_group(repo.readonly_session("main").store, mode="r")
found = {
    f"/{name}": np.asarray(node[...])
    for name, node in root.members(max_depth=None) if name.endswith("band_data")
}
pickle.dump(found, open(sys.argv[2], "wb"))
"""


def is_written(compression, predictor, dtype):
    """Say whether GDAL writes such an image."""
    if predictor == 3:
        return dtype in ("float32", "float64")
    return predictor == 1 or dtype not in ("complex64", "complex128")


def commit(files, folder):
    """Commit files, each as a group of a repository; return the path and what rasterio reads."""
    prefix = f"{folder.as_uri()}/"
    container = VirtualChunkContainer(prefix, local_filesystem_store(str(folder)))
    config = RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    repo = icevirt.Repository.create(folder / "repo", config=config)
    session, wanted = repo.writable_session("main"), {}
    for number, path in enumerate(files):
        scan_file(path).write_to(session, f"/{number}")
        wanted[f"/{number}/band_data"] = read_gdal(path)[0]
    session.commit("images")
    return folder / "repo", wanted


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiff")
    names = {}
    for number, case in enumerate(case for case in CASES if is_written(*case[:3])):
        compression, predictor, dtype, interleave, layout, order, big = case
        how = {"compress": compression, "interleave": interleave, "ENDIANNESS": order}
        how |= LAYOUTS[layout] | {"BIGTIFF": big}
        how |= {"PREDICTOR": predictor} if predictor > 1 else {}
        by_gdal(folder / f"{number}.tif", values(dtype), **how)
        names[f"/{number}/band_data"] = str(case)
    repo, wanted = commit([folder / f"{number}.tif" for number in range(len(names))], folder)
    return repo, wanted, names


def assert_same(found, wanted, names):
    assert found.keys() == wanted.keys()
    for path, theirs in wanted.items():
        assert found[path].dtype == theirs.dtype, names[path]
        assert found[path].tobytes() == theirs.tobytes(), names[path]


def test_icevirt_reads_what_gdal_reads_bit_for_bit(corpus):
    repo, wanted, names = corpus
    root = icevirt.Repository.open(
        repo, authorize_virtual_chunk_access=[str(repo.parent)]
    ).readonly_session("main")
    import zarr

    group = zarr.open_group(root.store, mode="r")
    assert_same({path: np.asarray(group[path][...]) for path in wanted}, wanted, names)


@pytest.mark.ci
def test_the_official_client_reads_what_gdal_reads_bit_for_bit(corpus, tmp_path):
    repo, wanted, names = corpus
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OFFICIAL, repo, tmp_path / "found"], check=True
    )
    found = np.load(tmp_path / "found", allow_pickle=True)
    assert_same(found, wanted, names)


REFUSED = {
    "JPEG": ({"compress": "jpeg"}, "uint8", "the compression 7 .JPEG"),
    "WebP": ({"compress": "webp"}, "uint8", "the compression 50001 .WebP"),
    "LERC of floats": ({"compress": "lerc"}, "float32", "LERC of floats"),
    "LERC, big-endian": (
        {"compress": "lerc", "ENDIANNESS": "BIG", "BLOCKYSIZE": 64},
        "uint16",
        "LERC in a big-endian",
    ),
    "CCITT": ({"compress": "ccittfax4", "NBITS": 1}, "uint8", "compression 4 .CCITT"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_codec_decodes_is_refused_by_name(name, tmp_path):
    how, dtype, cause = REFUSED[name]
    count = 1 if name == "CCITT" else 3
    data = (values("uint8", (count, 64, 64)) & 1).astype(dtype)
    by_gdal(tmp_path / "a.tif", data, **how)
    with pytest.raises(UnsupportedError, match=cause) as caught:
        scan_file(tmp_path / "a.tif")
    assert caught.value.facts["variable"] == "/band_data"
    left = scan_file(tmp_path / "a.tif", scan_options={"drop_variables": ["band_data"]})
    assert [array.path for array in left.arrays] == ["/band", "/y", "/x", "/spatial_ref"]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("predictor", [1, 2, 3])
def test_images_of_tifffile_are_read(order, predictor, tmp_path):
    dtype = "f4" if predictor == 3 else "u2"
    data = values(dtype)
    how = {"byteorder": order, "tile": (32, 32), "compression": "zlib"}
    for planar in ("contig", "separate"):
        by_tifffile(tmp_path / "a.tif", data, planar=planar, predictor=predictor, **how)
        found = materialise(scan_file(tmp_path / "a.tif").array("/band_data"))
        assert found.tobytes() == data.tobytes()
