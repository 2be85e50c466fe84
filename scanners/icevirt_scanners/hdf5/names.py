"""HDF5 link names as zarr node names.

Nearly every name is kept. Those that zarr reserves or cannot say (``..``, ``zarr.json``, names of
dots only, a leading ``__``, bytes that are not UTF-8) are percent-encoded, and the scan says so.
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes

_PREFIX = "_nc4_non_coord_"


def node_name(raw: bytes) -> tuple[str, bool]:
    """Return the zarr name of a link, and whether it differs from the link's own."""
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return quote_from_bytes(raw, safe=" "), True
    if name == "zarr.json" or not name.strip("."):
        return "".join(f"%{byte:02X}" if byte == 46 else chr(byte) for byte in raw), True
    if name.startswith("__"):
        return "%5F" + name[1:], True
    # netCDF-4's own escape for a variable that shares its name with a dimension it lacks
    return name.removeprefix(_PREFIX), False
