"""Bytes to values of the model and back, one module for each kind of file of the format.

No I/O; `icevirt.repo` reads and writes the files.
"""
