"""Of a file on a server its directories are fetched, and no pixel: how many requests that takes."""

import numpy as np
import pytest
import rasterio

from icevirt.api.scan import scan_file
from scanners.tiff.tiff_files import by_gdal

BEGIN = 512 << 10  # bytes that are fetched first
TILES = {"TILED": "YES", "compress": "deflate"}


def write(path, how):
    noise = np.random.default_rng(1).integers(0, 999, (1, 1792, 1792), np.uint16)
    match how:
        case "COG":
            by_gdal(path, noise, driver="COG", compress="deflate", blocksize=128)
        case "overviews behind":
            by_gdal(path, noise, **TILES, BLOCKXSIZE=128, BLOCKYSIZE=128)
            with rasterio.open(path, "r+") as file:
                file.build_overviews([2, 4])
        case "a long header":
            zeros, sparse = np.zeros((1, 4096, 4096), np.uint8), {"SPARSE_OK": "TRUE", "nodata": 0}
            by_gdal(path, zeros, **TILES, **sparse, BLOCKXSIZE=16, BLOCKYSIZE=16, BIGTIFF="YES")


@pytest.mark.parametrize(
    ("how", "requests"), [("COG", 1), ("overviews behind", 2), ("a long header", 2)]
)
def test_a_file_takes_few_requests(http_server, tmp_path, how, requests):
    write(tmp_path / "a.tif", how)
    http_server.files.put("a.tif", (tmp_path / "a.tif").read_bytes())
    http_server.rules.clear()
    far, near = scan_file(f"{http_server.url}/a.tif"), scan_file(tmp_path / "a.tif")
    asked = [each.headers["range"] for each in http_server.rules.requests]
    assert [each.zarr_json() for each in far.arrays] == [each.zarr_json() for each in near.arrays]
    for one, other in zip(far.arrays, near.arrays, strict=True):
        np.testing.assert_array_equal(one.references.offset, other.references.offset)
    assert asked[0] == f"bytes=0-{BEGIN - 1}"
    assert len(asked) == requests
