"""What xarray makes of files, by its functions that combine, without dask: `xr.open_mfdataset` needs it.

A graph of tasks and threads for some kilobytes take more time than everything else in a test.
"""

from pathlib import Path

import xarray as xr

_COMBINING = {"data_vars", "coords", "compat", "join", "combine_attrs", "fill_value"}


def combined(files, *, combine="by_coords", concat_dim=None, preprocess=None, **how):
    """Return what ``xr.open_mfdataset`` returns, loaded; the other words are its own."""
    opening = {name: each for name, each in how.items() if name not in _COMBINING}
    how = {"combine_attrs": "override"} | {
        name: each for name, each in how.items() if name in _COMBINING
    }

    def read(each):
        if not isinstance(each, str | Path):
            return [read(one) for one in each]
        with xr.open_dataset(each, **opening) as found:
            return (preprocess(found) if preprocess else found).load()

    if combine == "nested":
        return xr.combine_nested(read(files), concat_dim=concat_dim, **how)
    return xr.combine_by_coords(read(files), **how)
