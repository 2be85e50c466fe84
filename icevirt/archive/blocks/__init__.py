"""Chunk references of many files as packed columns: packed, cut apart, unpacked.

Tables that hold them are in `icevirt.catalog`.
"""
