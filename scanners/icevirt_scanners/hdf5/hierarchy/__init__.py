"""Groups, datasets, links and dimensions of an HDF5 file.

which there are, and under which names.
"""
