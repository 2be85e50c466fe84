"""Write dask arrays and datasets to a session, by many workers in one commit.

`store_dask` writes arrays, `to_icechunk` xarray objects. Neither commits.
"""

from icevirt.access.dask_arrays import store_dask
from icevirt.access.xarray.writing import to_icechunk

__all__ = ["store_dask", "to_icechunk"]
