"""Parse files for VirtualiZarr with icevirt's scanners: ``import icevirt.virtualizarr``.

Parsers take the place of VirtualiZarr's own in ``virtualizarr.open_virtual_dataset(parser=...)``
and its kind. `build` commits what they open, and `open_virtual_dataset` opens what icevirt scanned,
planned or built.
"""

from icevirt.errors import refuse_missing

with refuse_missing("icevirt.virtualizarr", extra="hdf5,cluster,virtualizarr"):
    from icevirt.virtualizarr.building import VirtualBuildReport, build, open_virtual_dataset
    from icevirt.virtualizarr.parsers import FileParser, Hdf5Parser, NetCDF3Parser

__all__ = [
    "FileParser",
    "Hdf5Parser",
    "NetCDF3Parser",
    "VirtualBuildReport",
    "build",
    "open_virtual_dataset",
]
