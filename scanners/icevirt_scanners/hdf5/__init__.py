"""The scanner for HDF5 and NetCDF-4, through libhdf5 and from the bytes of the file.

NetCDF-3 files are read in `netcdf3`.
"""
