"""Parsers of VirtualiZarr as scanners, for formats that icevirt has no scanner for.

Exchange of virtual datasets is `icevirt.access.interop`.
"""
