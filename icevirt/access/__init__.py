"""Reads and writes arrays of a session: zarr store, xarray engine, other libraries' formats.

References are looked up in `icevirt.repo`, bytes of source files read in `icevirt.objects`.
"""
