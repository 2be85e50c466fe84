"""Scan HDF5 and NetCDF-4 through libhdf5: every layout, correct or loud.

NetCDF-3 files are read in `netcdf3`.
"""
