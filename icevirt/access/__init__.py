"""Read and write arrays: the zarr store over a session, and the xarray engine."""
