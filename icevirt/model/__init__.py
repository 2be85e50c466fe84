"""Frozen values of the Icechunk format: what its files mean.

No bytes and no I/O; files are read and written in `icevirt.wire`.
"""
