#!/usr/bin/env bash
# A tile-compressed image of FITS reads, by VirtualiZarr's parser, as if its compressed bytes were
# pixels.
#
# Versions: virtualizarr 2.8.0, kerchunk 0.2.10, astropy 8.0.2, zarr 3.4.2
# Expected: The pixels, or a refusal. Archives of telescopes publish most images so (.fits.fz), and
#   what is stored is a table of one row of compressed bytes for each tile.
# Seen: An array COMPRESSED_IMAGE of the shape and type of the image, from the keywords that
#   describe it, over the bytes of the table. Its numbers are the table's, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  virtualizarr[kerchunk]==2.8.0 kerchunk==0.2.10 astropy==8.0.2 zarr==3.4.2 numpy==2.5.5 \
  obstore==0.12.1 obspec-utils==0.9.0

env/bin/python -W ignore - <<'EOF'
import os

import numpy as np
import zarr
from astropy.io import fits
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import FITSParser

pixels = np.arange(64, dtype="i2").reshape(8, 8)
fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(pixels)]).writeto("a.fits.fz")
with fits.open("a.fits.fz") as file:
    assert np.array_equal(file[1].data, pixels)

registry = ObjectStoreRegistry({"file://": LocalStore()})
group = zarr.open_group(FITSParser()(url=f"file://{os.getcwd()}/a.fits.fz", registry=registry), mode="r")
((name, array),) = group.arrays()
print(name, array.shape, array.dtype, "pixels", pixels[0], "read", array[0])
assert (name, array.shape, array.dtype) == ("COMPRESSED_IMAGE", (8, 8), pixels.dtype)
assert not np.array_equal(array[...], pixels)
EOF
