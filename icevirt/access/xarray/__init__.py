"""The xarray engine: groups of a session as Datasets and DataTrees, and Datasets written to it.

The zarr store that it reads from is in `store`.
"""
