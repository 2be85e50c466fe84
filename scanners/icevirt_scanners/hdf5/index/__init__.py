"""Read HDF5 chunk indices straight from the bytes of the file, all chunks at once.

libhdf5 lists chunks through a callback per chunk. Here a few numpy operations decode each block of
an index.
"""
