#!/usr/bin/env bash
# One month after 23 March is 22 April for two readers of GRIB, at two times of the day.
#
# Versions: ecCodes 2.50.0, cfgrib 0.9.15.1, gribberish 1.9.0, xarray 2026.9.0, numpy 2.5.5
# Expected: 23 April, 12:00, for a forecast time of 1 in the unit of months (code table 4.4), or a
#   refusal.
# Seen: ecCodes, and cfgrib with it, takes 30 days: 22 April, 12:00. gribberish takes 730 hours:
#   22 April, 22:00. After 12 months they are a week apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  eccodes==2.50.0 eccodeslib==2.50.0.33 numpy==2.5.5 gribberish==1.9.0 cfgrib==0.9.15.1 \
  xarray==2026.9.0 pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import eccodes
import gribberish
import numpy as np
import xarray as xr

EXPECTED = {1: ("2007-04-22T12", "2007-04-22T22"), 12: ("2008-03-17T12", "2008-03-22T12")}
for months, (by_eccodes, by_gribberish) in EXPECTED.items():
    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    eccodes.codes_set(handle, "indicatorOfUnitOfTimeRange", 3)
    eccodes.codes_set(handle, "forecastTime", months)
    eccodes.codes_set_values(handle, np.arange(float(eccodes.codes_get(handle, "numberOfDataPoints"))))
    message = eccodes.codes_get_message(handle)
    with open("m.grib", "wb") as file:
        file.write(message)
    ds = xr.open_dataset("m.grib", engine="cfgrib", backend_kwargs={"indexpath": ""})
    rust = gribberish.parse_grib_message_metadata(message, 0).forecast_date
    print(months, "months after", ds.time.values, "cfgrib", ds.valid_time.values, "gribberish", rust)
    assert ds.time.values == np.datetime64("2007-03-23T12")
    assert ds.valid_time.values == np.datetime64(by_eccodes)
    assert np.datetime64(rust.replace(tzinfo=None)) == np.datetime64(by_gribberish)
EOF
