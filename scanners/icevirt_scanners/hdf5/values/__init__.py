"""Values and chunk references of HDF5 datasets.

The chunk index itself is read in `index`.
"""
