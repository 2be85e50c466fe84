"""Map zarr keys to bytes: the zarr store over a session.

Arrays and datasets are made in `icevirt.access.xarray`.
"""
