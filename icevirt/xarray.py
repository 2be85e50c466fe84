"""Write xarray objects to a session, with icechunk's name and arguments.

To read, no import is needed: ``xr.open_dataset(path, engine="icevirt")``.
"""

from icevirt.access.xarray.writing import to_icechunk

__all__ = ["to_icechunk"]
