"""Files whose encodings differ, divided into eras of equal encoding.

Reading eras as one is `icevirt.access.xarray`.
"""
