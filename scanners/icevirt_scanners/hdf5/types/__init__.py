"""Translate HDF5 types, fill values, filters and attributes to zarr."""
