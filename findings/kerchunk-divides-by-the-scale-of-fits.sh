#!/usr/bin/env bash
# kerchunk's references to a FITS image with BSCALE cannot be read, and their codec, asked alone,
# divides by BSCALE.
#
# Versions: kerchunk 0.2.10, astropy 8.0.2, zarr 3.4.2, numcodecs 0.17.1, xarray 2026.9.0, numpy
#   2.5.5
# Expected: 10.5 for a stored 1 with BSCALE 0.5 and BZERO 10 (value = BZERO + BSCALE * stored), as
#   astropy reads it.
# Seen: ValueError, 'cannot reshape array of size 24 into shape (2,3)', since the array is
#   declared int16 and the codec makes float64; the codec alone gives 12.0. Unsigned 16-bit
#   images, which FITS stores by BZERO, cannot be read either.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  kerchunk==0.2.10 astropy==8.0.2 zarr==3.4.2 numcodecs==0.17.1 fsspec==2026.9.0 \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import json

import numcodecs
import numpy as np
import xarray as xr
from astropy.io import fits
from kerchunk.fits import process_file

scaled = fits.PrimaryHDU(np.arange(1, 7, dtype="i2").reshape(2, 3))
scaled.header["BSCALE"], scaled.header["BZERO"] = 0.5, 10.0
scaled.writeto("scaled.fits")
fits.PrimaryHDU(np.array([[0, 1, 2], [40_000, 65_535, 5]], "u2")).writeto("unsigned.fits")
assert fits.getdata("scaled.fits")[0, 0] == 10.5

for path in ("scaled.fits", "unsigned.fits"):
    options = {"consolidated": False, "storage_options": {"fo": process_file(path)}}
    try:
        xr.open_dataset("reference://", engine="zarr", backend_kwargs=options).load()
    except ValueError as error:
        print(path, error)
        assert "cannot reshape array of size 24" in str(error)
    else:
        raise AssertionError("no error")
(codec,) = json.loads(process_file("scaled.fits")["PRIMARY/.zarray"])["filters"]
decoded = numcodecs.get_codec(codec).decode(np.array([1], ">i2"))
print("astropy 10.5, codec", decoded[0])
assert decoded[0] == 12.0
EOF
