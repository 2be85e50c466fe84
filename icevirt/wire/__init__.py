"""Convert bytes to model values and back, one module per kind of file in the spec.

No I/O; `icevirt.repo` reads and writes the files.
"""
