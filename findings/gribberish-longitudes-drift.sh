#!/usr/bin/env bash
# gribberish adds up the rounded increment of a GRIB grid, so that the longitudes of a third of a
# degree are off by 0.00036 at the end.
#
# Versions: gribberish 1.9.0, ecCodes 2.50.0, cfgrib 0.9.15.1, xarray 2026.9.0, numpy 2.5.5
# Expected: The last longitude is the one that the message names (359.666667), and all are within
#   1e-6 of i/3, as ecCodes has them: a message has first and last point for that.
# Seen: 359.666307. A join with the same grid of another source finds no label equal, and a
#   tolerance of 1e-4 drops the east.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 gribberish[xarray]==1.9.0 \
  obstore==0.12.1 cfgrib==0.9.15.1 xarray==2026.9.0 zarr==3.4.2 pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import eccodes
import numpy as np
import xarray as xr

COUNT = 1080
GRID = {
    "Ni": COUNT,
    "Nj": 2,
    "numberOfDataPoints": 2 * COUNT,
    "latitudeOfFirstGridPoint": 0,
    "latitudeOfLastGridPoint": -333_333,
    "longitudeOfFirstGridPoint": 0,
    "longitudeOfLastGridPoint": 359_666_667,
    "iDirectionIncrement": 333_333,
    "jDirectionIncrement": 333_333,
}
handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
for key, value in GRID.items():
    eccodes.codes_set(handle, key, value)
eccodes.codes_set_values(handle, np.zeros(2 * COUNT))
with open("m.grib", "wb") as file:
    file.write(eccodes.codes_get_message(handle))

exact = np.arange(COUNT) / 3
by_eccodes = xr.open_dataset("m.grib", engine="cfgrib", backend_kwargs={"indexpath": ""}).longitude
tree = xr.open_datatree("m.grib", engine="gribberish")
(node,) = [node for node in tree.leaves if node.data_vars]
by_gribberish = node["longitude"]
for name, longitude in (("ecCodes", by_eccodes), ("gribberish", by_gribberish)):
    print(name, "last", float(longitude[-1]), "largest error", np.abs(longitude.values - exact).max())
assert np.abs(by_eccodes.values - exact).max() < 1e-6
assert 3.5e-4 < np.abs(by_gribberish.values - exact).max() < 3.7e-4
EOF
