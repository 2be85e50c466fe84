"""HDF5 link names as zarr node names."""

from __future__ import annotations

from icevirt_scanners import names

PREFIX = "_nc4_non_coord_"


def node_name(raw: bytes) -> tuple[str, bool]:
    """Return the zarr name of a link, and whether it differs from the link's own."""
    name, odd = names.node_name(raw)
    # netCDF-4's own escape for a variable that shares its name with a dimension it lacks
    return (name, True) if odd else (name.removeprefix(PREFIX), False)
