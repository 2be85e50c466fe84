"""Chunk indices of HDF5 read straight from the bytes of the file, all chunks at once.

libhdf5 lists chunks through a callback for each of them. Here every block of an index is decoded by
a few numpy operations.
"""
