#!/usr/bin/env bash
# tifffile reads 0 where a TIFF with LERC holds NaN.
#
# Versions: tifffile 2026.11.8, imagecodecs 2026.10.10, rasterio 1.5.2 (GDAL 3.12.2)
# Expected: NaN, which was written and which GDAL reads: LERC has no NaN, so that GDAL says in the
#   mask of each tile which pixels have none. tifffile is a reader of TIFF with LERC, too.
# Seen: 0.0 in place of each NaN, without an error. imagecodecs decodes masks only where it is asked
#   to, and its codec for zarr (imagecodecs_lerc) never is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  tifffile==2026.11.8 imagecodecs==2026.10.10 rasterio==1.5.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import numpy as np
import rasterio
import tifffile

written = np.random.default_rng(1).normal(280, 5, (64, 64)).astype("f4")
written[10:20, 10:20] = np.nan
missing = np.isnan(written)
shape = {"height": 64, "width": 64, "count": 1, "dtype": "float32"}
for compression in ("LERC", "LERC_DEFLATE", "LERC_ZSTD"):
    with rasterio.open("a.tif", "w", driver="GTiff", compress=compression, **shape) as file:
        file.write(written, 1)
    with rasterio.open("a.tif") as file:
        assert np.array_equal(file.read(1), written, equal_nan=True)
    read = tifffile.imread("a.tif")
    print(compression, "written", written[10, 10], "tifffile", read[10, 10])
    assert np.array_equal(read[~missing], written[~missing])
    assert (read[missing] == 0).all()
EOF
