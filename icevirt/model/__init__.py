"""Define frozen values of the Icechunk format: what the files mean, without bytes or I/O.

No bytes and no I/O; files are read and written in `icevirt.wire`.
"""
