#!/usr/bin/env bash
# virtual-tiff reads the floats of a big-endian TIFF with predictor 3 with their bytes swapped.
#
# Versions: virtual-tiff 0.5.0, virtualizarr 2.8.0, rasterio 1.5.2 (GDAL 3.12.2), tifffile 2026.11.8,
#   imagecodecs 2026.10.10, zarr 3.4.2
# Expected: The values that GDAL wrote. The floating point predictor has an order of bytes of its
#   own, whatever that of the file is: virtual-tiff reads the same floats in a little-endian file,
#   and big-endian ones without a predictor.
# Seen: 6.5e-39 where 276.3 was written, without an error. tifffile reads the values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  virtual-tiff==0.5.0 virtualizarr==2.8.0 rasterio==1.5.2 tifffile==2026.11.8 \
  imagecodecs==2026.10.10 zarr==3.4.2 numpy==2.5.5 obstore==0.12.1

env/bin/python -W ignore - <<'EOF'
import os

import numpy as np
import rasterio
import tifffile
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtual_tiff import VirtualTIFF

written = np.random.default_rng(1).normal(280, 5, (64, 64)).astype("f4")
registry = ObjectStoreRegistry({"file://": LocalStore()})


def by_virtual_tiff(path):
    store = VirtualTIFF(ifd=0)(url=f"file://{os.path.abspath(path)}", registry=registry)
    group = zarr.open_group(store, mode="r")
    (name,) = group.array_keys()
    return np.squeeze(group[name][...])


def is_read(order, predictor):
    path = f"{order}{predictor}.tif"
    shape = {"height": 64, "width": 64, "count": 1, "dtype": "float32"}
    tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64}
    how = {"compress": "DEFLATE", "predictor": predictor, "ENDIANNESS": order}
    with rasterio.open(path, "w", driver="GTiff", **shape, **tiles, **how) as file:
        file.write(written, 1)
    assert np.array_equal(tifffile.imread(path), written)
    read = by_virtual_tiff(path)
    print(order, "predictor", predictor, "first value", read[0, 0], "written", written[0, 0])
    return np.array_equal(read, written)


assert is_read("LITTLE", 3)
assert is_read("BIG", 1)
assert not is_read("BIG", 3)
EOF
