"""Virtual datasets of HDF5: what they map, from which files, and as which references.

Datasets with external raw files are read in `elsewhere`.
"""
