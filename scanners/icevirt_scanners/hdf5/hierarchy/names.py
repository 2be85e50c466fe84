"""Convert HDF5 link names of variables to node names."""

from __future__ import annotations

from icevirt.model import paths

PREFIX = "_nc4_non_coord_"
_PREFIX = PREFIX.encode()


def variable_name(raw: bytes) -> tuple[str, bool]:
    """Return the node name of the link to a variable, and whether it had to be escaped.

    netCDF-4 prepends ``_nc4_non_coord_`` to a variable that shares its name with a dimension it
    lacks.
    """
    return paths.node_name(raw.removeprefix(_PREFIX) or raw)
