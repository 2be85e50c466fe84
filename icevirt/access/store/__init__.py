"""The zarr store over a session: keys to bytes.

Arrays and datasets are made of them in `icevirt.access.xarray`.
"""
