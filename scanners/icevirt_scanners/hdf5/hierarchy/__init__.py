"""Find the groups, datasets, links and dimensions of an HDF5 file, with their names."""
