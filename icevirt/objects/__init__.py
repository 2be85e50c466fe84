"""Reads ranges of source files, after checking authorization and the checksum of the scan.

The files of a repository itself are read in `icevirt.storage`.
"""
