#!/usr/bin/env bash
# With flox installed, xarray counts a missing time of a group and averages it as the number that
# stands for it.
#
# Versions: xarray 2026.9.0, flox 0.11.2, numpy_groupies 0.16.0, numpy 2.5.5, pandas 3.1.1
# Expected: NaT is skipped, as without flox: one time of 1 January 2026 and one NaT have the count
#   1 and the mean 1 January 2026.
# Seen: Count 2, mean 12 November 1851 (nanoseconds), or a year below -100,000 (microseconds,
#   seconds); `resample` does the same; a mean of durations likewise. No error, no warning; flox
#   is what xarray uses when it is there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1 flox==0.11.2 numpy-groupies==0.16.0

env/bin/python -W ignore - <<'EOF'
import numpy as np
import xarray as xr

times = np.array(["2026-01-01", "NaT", "2026-01-03", "2026-01-05"], "M8[ns]")
ds = xr.Dataset({"t": ("x", times)}, {"g": ("x", [0, 0, 1, 1])})
results = {}
for flox in (False, True):
    with xr.set_options(use_flox=flox):
        groups = ds.t.groupby("g")
        results[flox] = groups.count().values.tolist(), groups.mean().values.astype("M8[D]").tolist()
    print("with flox" if flox else "without", results[flox][0], *map(str, results[flox][1]))
day = np.datetime64
assert results[False] == ([1, 2], [day("2026-01-01").item(), day("2026-01-04").item()])
assert results[True] == ([2, 2], [day("1851-11-12").item(), day("2026-01-04").item()])
microseconds = ds.astype("M8[us]").t.groupby("g").mean().values[0]
print("microseconds:", microseconds)
assert microseconds < np.datetime64("-100000-01-01")
days = xr.DataArray(times, {"time": np.arange("2026-02-01", "2026-02-05", dtype="M8[D]")}, "time")
assert days.resample(time="2D").mean().values[0].astype("M8[D]") == day("1851-11-12")
EOF
