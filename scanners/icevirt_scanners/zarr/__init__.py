"""Scan Zarr stores, v2 and v3: their chunks are objects, which stay where they are.

A store is one file of an archive; `icevirt.objects.stores` lists it.
"""
