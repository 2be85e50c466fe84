"""Bytes to values of the model and back: one file for each kind of file of the spec. No I/O."""
