"""Write TIFF files by GDAL's and tifffile's writers, and read them by rasterio and tifffile."""

import warnings
from contextlib import contextmanager

import numpy as np
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning
from rasterio.transform import Affine

SHAPE = (3, 70, 90)
PLACE = Affine(10.0, 0, 500_000.3, 0, -10.0, 5_000_000.7)


@contextmanager
def quiet():
    """Leave out what rasterio says of images without a place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


def values(dtype, shape=SHAPE, seed=0):
    """Return numbers of all sizes, with some that are special."""
    draw, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "ui":
        limits = np.iinfo(dtype)
        found = draw.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        found[0, :2, :2] = limits.max, limits.min
        found[:, 40:, 40:] = 7
        return found
    found = (draw.standard_normal(shape) * 1000).astype(dtype)
    if dtype.kind == "c":
        found.imag = draw.standard_normal(shape)
    found[0, 0, :3] = np.nan, np.inf, -0.0
    return found


def by_gdal(path, data, *, driver="GTiff", place=PLACE, crs="EPSG:32633", tags=None, **options):
    """Write an image by GDAL."""
    count, height, width = data.shape
    shape = {"count": count, "height": height, "width": width, "dtype": data.dtype.name}
    known = {key: options.pop(key) for key in ("nodata",) if key in options}
    # GDAL has no floats of big-endian TIFF that are not swapped: bytes are told, not order
    with (
        quiet(),
        rasterio.open(
            path, "w", driver=driver, transform=place, crs=crs, **shape, **known, **options
        ) as file,
    ):
        file.write(data)
        if tags is not None:
            tags(file)


def by_tifffile(path, data, *, planar=None, **options):
    """Write an image by tifffile."""
    image = np.moveaxis(data, 0, -1) if planar != "separate" else data
    image = data[0] if len(data) == 1 else image
    options = {"photometric": "minisblack"} | options
    if len(data) > 1:
        options["planarconfig"] = planar
    tifffile.imwrite(path, image, **options)


def read_gdal(path, level=None):
    """Return the values (band, y, x) that rasterio reads, and its x and y as rioxarray has them."""
    more = {} if level is None else {"overview_level": level}
    with quiet(), rasterio.open(path, **more) as file:
        return file.read(), file.transform, file.crs, file.profile
