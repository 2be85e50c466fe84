"""Scan NetCDF-3 files (classic, 64-bit offset and CDF-5) without the C library.

NetCDF-4 files are HDF5 files and read in `hdf5`.
"""
