"""HDF5 types, fill values, filters and attributes, and how variables are represented in zarr."""
