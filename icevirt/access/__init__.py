"""Read and write arrays: the zarr store over a session, and the xarray engine.

References are looked up in `icevirt.repo`, bytes of source files read in `icevirt.objects`.
"""
