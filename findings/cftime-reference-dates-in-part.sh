#!/usr/bin/env bash
# cftime takes from a reference date what it understands and ignores the rest: zones with one
# digit, hours without minutes (`06Z`, `12`) and `PM` vanish, and 01-02-2000 is a day of the year 1.
#
# Versions: cftime 1.6.6.1, xarray 2026.9.0, numpy 2.5.5, pandas 3.1.1
# Expected: An error, or the moment that pandas makes of the same text: files of one archive with
#   calendars `standard` (decoded by pandas in xarray) and `noleap` (by cftime) that share their
#   units share their hours.
# Seen: Shifts of 6 and 12 hours without an error or a warning, between two calendars of one file;
#   year 1 instead of 2000.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 cftime==1.6.6.1

env/bin/python -W ignore - <<'EOF'
import cftime
import numpy as np
import xarray as xr

TEXTS = {  # units: what cftime reads, what xarray makes of it in the standard calendar
    "hours since 2000-01-01 00:00 -6:00": ("2000-01-01 00:00:00", "2000-01-01T06"),
    "hours since 2000-01-01 00:00 -06:00": ("2000-01-01 06:00:00", "2000-01-01T06"),
    "hours since 2000-01-01 06Z": ("2000-01-01 00:00:00", "2000-01-01T06"),
    "hours since 2000-01-01 12": ("2000-01-01 00:00:00", "2000-01-01T12"),
    "hours since 2000-01-01 6:00:00 PM": ("2000-01-01 06:00:00", "2000-01-01T18"),
    "hours since 01-02-2000": ("0001-02-20 00:00:00", "2000-01-02T00"),
}
for units, (by_cftime, by_pandas) in TEXTS.items():
    read = str(cftime.num2date(0, units, "noleap"))
    ds = xr.decode_cf(xr.Dataset({"t": ("x", [0], {"units": units})}))
    print(f"{units}: noleap {read}, standard {ds.t.values[0]}")
    assert read == by_cftime
    assert ds.t.values[0] == np.datetime64(by_pandas)
EOF
