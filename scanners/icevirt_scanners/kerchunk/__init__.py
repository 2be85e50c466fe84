"""Scan kerchunk's references: JSON of versions 0 and 1, and Parquet directories.

Writing kerchunk references is `icevirt.access.kerchunk`.
"""
