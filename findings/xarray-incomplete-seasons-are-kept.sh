#!/usr/bin/env bash
# xarray's SeasonResampler with `drop_incomplete=True` keeps seasons of which most days are missing.
#
# Versions: xarray 2026.9.0, numpy 2.5.5, pandas 3.1.1
# Expected: "Whether to drop seasons that are not completely included in the data": a winter of
#   which the data have one day of December or of February is dropped, as one without December is.
# Seen: It goes by months: a day of the first month and one of the last are enough, and what is
#   missing between them does not count. Sums of such a season are of fewer days, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python xarray==2026.9.0 numpy==2.5.5 pandas==3.1.1

env/bin/python -W ignore - <<'EOF'
import numpy as np
import pandas as pd
import xarray as xr
from xarray.groupers import SeasonResampler


def days(begin, end, *, without=0):
    """Return how many days each season that is kept has, by its first month."""
    time = pd.date_range(begin, end)
    time = time[time.month != without]
    ones = xr.DataArray(np.ones(len(time)), dims="time", coords={"time": time})
    seasons = SeasonResampler(["DJF", "MAM", "JJA", "SON"], drop_incomplete=True)
    sums = ones.resample(time=seasons).sum()
    return {str(at)[:7]: int(n) for at, n in zip(sums.time.values, sums.values, strict=True)}


whole = days("2000-12-01", "2001-05-31")
without_december = days("2001-01-01", "2001-05-31")
late, early = days("2000-12-31", "2001-05-31"), days("2000-12-01", "2001-02-01")
hole = days("2000-12-01", "2001-05-31", without=1)
print(whole, without_december, late, early, hole)
assert whole == {"2000-12": 90, "2001-03": 92}
assert without_december == {"2001-03": 92}
assert late == {"2000-12": 60, "2001-03": 92}
assert early == {"2000-12": 63}
assert hole == {"2000-12": 59, "2001-03": 92}
EOF
