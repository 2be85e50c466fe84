"""Chunk indices of HDF5 read straight from the bytes of the file, all chunks at once.

libhdf5 lists chunks through a callback for each of them. Here every block of an index is decoded by
a few numpy operations. libhdf5 stays the judge: whatever is not exactly as expected raises
`NotUnderstoodError`, and the caller asks libhdf5 instead, for the truth or for the error.
"""
