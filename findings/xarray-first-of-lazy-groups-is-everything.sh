#!/usr/bin/env bash
# xarray's `first()` and `last()` of groups whose labels are a dask array return the array as it was.
#
# Versions: xarray 2026.9.0, dask 2026.8.0, flox 0.11.2, numpy 2.5.5
# Expected: One value for each label, as `max()` gives it, and as `first()` does where the labels
#   are in memory. Or an error, as `max()` raises it without flox.
# Seen: Four values of four come back, with the dimension and the labels of the input, without a
#   word; with flox and without. Code that goes on with them broadcasts or writes them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  xarray==2026.9.0 dask==2026.8.0 flox==0.11.2 numpy==2.5.5

env/bin/python -W ignore - <<'EOF'
import numpy as np
import xarray as xr
from xarray.groupers import UniqueGrouper

values = xr.DataArray([1, 2, 3, 4], dims="x", coords={"label": ("x", [1, 1, 2, 2])})


def groups(array):
    return array.groupby(label=UniqueGrouper(labels=[1, 2]))


for use_flox in (True, False):
    with xr.set_options(use_flox=use_flox):
        for name, expected in (("first", [1, 3]), ("last", [2, 4])):
            there = getattr(groups(values), name)()
            lazy = getattr(groups(values.chunk(x=2)), name)()
            print(f"flox {use_flox} {name}: {there.values} in memory, {lazy.values} lazily {lazy.dims}")
            assert there.values.tolist() == expected
            assert lazy.dims == ("x",) and lazy.values.tolist() == [1, 2, 3, 4]
with xr.set_options(use_flox=True):
    assert groups(values.chunk(x=2)).max().values.tolist() == [2, 4]
EOF
