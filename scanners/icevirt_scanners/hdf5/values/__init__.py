"""Read values and chunk references of HDF5 datasets.

The chunk index itself is read in `icevirt_scanners.hdf5.index`.
"""
