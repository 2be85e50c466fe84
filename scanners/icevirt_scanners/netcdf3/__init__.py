"""The scanner for NetCDF-3: classic, 64-bit offset and CDF-5 files, read without the C library.

NetCDF-4 files are HDF5 files and read in `hdf5`.
"""
