#!/usr/bin/env bash
# GDAL gives a netCDF file on Gaussian latitudes a grid of even steps, without a word.
#
# Versions: rasterio 1.5.2 (GDAL 3.12.2), netCDF4 1.7.5.1.post1, numpy 2.5.5
# Expected: No geotransform, as for other uneven axes, or a tolerance below what matters.
# Seen: Rows are misplaced by up to 0.03 degrees (3 km) for 64 latitudes and 0.08 degrees for 16;
#   ends fit, the rows beside them are worst. An axis of -60, -10, 5, 50 does get none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  rasterio==1.5.2 netCDF4==1.7.5.1.post1 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import netCDF4
import numpy as np
import rasterio


def write(path, latitudes):
    with netCDF4.Dataset(path, "w") as file:
        for name, units, values in (
            ("lat", "degrees_north", latitudes),
            ("lon", "degrees_east", np.arange(4.0)),
        ):
            file.createDimension(name, len(values))
            axis = file.createVariable(name, "f8", (name,))
            axis.units, axis.standard_name = units, {"lat": "latitude", "lon": "longitude"}[name]
            axis[:] = values
        file.createVariable("v", "f4", ("lat", "lon"))[:] = 0


def rows(path):
    with rasterio.open(path) as source:
        if source.transform == rasterio.Affine.identity():
            return None
        return np.array([(source.transform * (0.5, row + 0.5))[1] for row in range(source.height)])


for count, least, most in ((16, 0.07, 0.08), (64, 0.03, 0.031)):
    sines, _ = np.polynomial.legendre.leggauss(count)
    latitudes = np.degrees(np.arcsin(sines))[::-1]
    write(f"{count}.nc", latitudes)
    error = np.abs(rows(f"{count}.nc") - latitudes).max()
    print(count, "Gaussian latitudes: largest error", round(error, 4), "degrees")
    assert least < error < most
write("uneven.nc", np.array([50.0, 5.0, -10.0, -60.0]))
assert rows("uneven.nc") is None
EOF
