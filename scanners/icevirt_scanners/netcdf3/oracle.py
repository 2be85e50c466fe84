"""Read values with netCDF4 for verification; it shares only names with the scanner."""

from __future__ import annotations

from typing import Any

import numpy as np

from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.paths import node_name
from icevirt.scan.contract import ByteSource


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a variable in a box, neither masked nor scaled.

    Raises:
        UnsupportedError: netCDF4 is not installed, or the file is not on local disk.
        ScanError: netCDF4 cannot read it.
    """
    try:
        import netCDF4
    except ImportError as error:
        raise UnsupportedError(
            "values of NetCDF-3 files are compared by netCDF4, which is not installed",
            do="Run `pip install netCDF4`.",
            file=source.file.url,
        ) from error
    if source.local_path is None:
        raise UnsupportedError(
            "netCDF4 can only read local files",
            do="Check the references only, or verify where the files are mounted.",
            file=source.file.url,
        )
    try:
        with netCDF4.Dataset(source.local_path) as file:
            variable = _variable(file, path.strip("/"))
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            return np.asarray(variable[region])
    except (OSError, RuntimeError, KeyError, IndexError) as error:
        raise ScanError(
            "netCDF4 cannot read the variable",
            do="Fetch the file again, or leave it out.",
            file=source.file.url,
            variable=path,
            cause=str(error),
        ) from error


def _variable(file: Any, name: str) -> Any:
    """Find a variable by its node name, which may be escaped. Raises ``KeyError``."""
    if name in file.variables:
        return file.variables[name]
    own = next((own for own in file.variables if node_name(own.encode())[0] == name), name)
    return file.variables[own]
