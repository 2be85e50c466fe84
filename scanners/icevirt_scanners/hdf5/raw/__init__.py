"""Read the blocks of HDF5 files from bytes, where that is faster than libhdf5.

libhdf5 stays the judge: anything unexpected raises `NotUnderstoodError`, and the caller uses
libhdf5 instead, for the value or for the error.
"""
