"""HDF5 datatypes, fill values, filters and attributes, and how a variable is represented in zarr."""
