"""Divide files with different encodings into eras of equal encoding.

Reading eras as one is `icevirt.access.xarray`.
"""
