"""Groups, datasets, links and dimensions of an HDF5 file, and their names.

How a dataset is represented is decided in `types`.
"""
