"""icevirt: versioned, cloud-native datasets over archives of NetCDF/HDF5 files, without copies."""
