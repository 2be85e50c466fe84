#!/usr/bin/env bash
# Integers and complex numbers that GDAL writes to Zarr 3 without a nodata value, and what it
# compresses with LZMA in Zarr 2, do not open in zarr-python.
#
# Versions: rasterio 1.5.2 (GDAL inside), zarr 3.4.2, numpy 2.5.5
# Expected: zarr-python opens them, as it opens floats and the other compressors of GDAL.
# Seen: GDAL writes `"fill_value": null`, which Zarr 3 does not allow, for integers and complex
#   numbers (NaN for floats), and a setting `delta` of LZMA that numcodecs does not have. Both end in
#   a TypeError.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python rasterio==1.5.2 zarr==3.4.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import json

import numpy as np
import rasterio
import zarr


def write(path, dtype, form, compress="NONE"):
    how = {"driver": "Zarr", "width": 4, "height": 3, "count": 1, "dtype": dtype}
    with rasterio.open(path, "w", FORMAT=form, ARRAY_NAME="a", COMPRESS=compress, **how) as file:
        file.write(np.arange(12).reshape(3, 4).astype(dtype), 1)


def opens(path):
    try:
        zarr.open_array(path, path="a", mode="r")[...]
    except TypeError as error:
        print(path, error)
        return False
    return True


print("GDAL", rasterio.__gdal_version__)
write("f4.zarr", "float32", "ZARR_V3")
assert opens("f4.zarr")
for dtype in ("int16", "uint8", "complex64"):
    write(f"{dtype}.zarr", dtype, "ZARR_V3")
    assert json.load(open(f"{dtype}.zarr/a/zarr.json"))["fill_value"] is None
    assert not opens(f"{dtype}.zarr")
write("zlib.zarr", "int16", "ZARR_V2", "ZLIB")
assert opens("zlib.zarr")
write("lzma.zarr", "int16", "ZARR_V2", "LZMA")
assert "delta" in json.load(open("lzma.zarr/a/.zarray"))["compressor"]
assert not opens("lzma.zarr")
EOF
