"""The blocks of HDF5 files, read from bytes where that is faster than through libhdf5.

libhdf5 stays the judge: whatever is not exactly as expected raises `NotUnderstoodError`, and the
caller asks libhdf5 instead, for the truth or for the error.
"""
