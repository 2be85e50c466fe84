"""NetCDF-3: classic, 64-bit offset and CDF-5 files, read without the C library."""
