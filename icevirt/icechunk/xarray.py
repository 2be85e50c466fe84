"""Write xarray objects to a session."""

from icevirt.access.xarray.writing import to_icechunk

__all__ = ["to_icechunk"]
