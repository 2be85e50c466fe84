#!/usr/bin/env bash
# kerchunk and gribberish read only the first field of a GRIB2 message that holds two, and say
# nothing of the second.
#
# Versions: kerchunk 0.2.10, gribberish 1.9.0, cfgrib 0.9.15.1, ecCodes 2.50.0, xarray 2026.9.0,
#   zarr 3.4.2, numpy 2.5.5
# Expected: u and v, as cfgrib reads them: sections 2 to 7 may repeat in a message, and winds of
#   some centers come so.
# Seen: u alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 cfgrib==0.9.15.1 \
  gribberish[xarray]==1.9.0 obstore==0.12.1 kerchunk==0.2.10 fsspec==2026.9.0 zarr==3.4.2 \
  xarray==2026.9.0 pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import eccodes
import numpy as np
import xarray as xr
from kerchunk.grib2 import scan_grib


def field(name):
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    eccodes.codes_set(handle, "shortName", name)
    eccodes.codes_set_values(handle, np.arange(float(eccodes.codes_get(handle, "numberOfDataPoints"))))
    return handle


message = eccodes.codes_grib_multi_new()
eccodes.codes_grib_multi_append(field("u"), 0, message)
eccodes.codes_grib_multi_append(field("v"), 4, message)
with open("m.grib", "wb") as file:
    eccodes.codes_grib_multi_write(message, file)

ds = xr.open_dataset("m.grib", engine="cfgrib", backend_kwargs={"indexpath": ""})
tree = xr.open_datatree("m.grib", engine="gribberish")
by_gribberish = sorted(name for node in tree.leaves for name in node.data_vars)
keys = [key for references in scan_grib("m.grib") for key in references["refs"]]
by_kerchunk = sorted({key.split("/")[0] for key in keys} & {"u", "v"})
print("cfgrib", sorted(ds.data_vars), "gribberish", by_gribberish, "kerchunk", by_kerchunk)
assert sorted(ds.data_vars) == ["u", "v"]
assert by_gribberish == ["ugrd"]
assert by_kerchunk == ["u"]
EOF
