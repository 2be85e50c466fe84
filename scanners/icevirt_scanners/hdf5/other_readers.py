"""Ask other libraries whether they open a file that this libhdf5 refuses.

A version of libhdf5 may refuse valid files: 2.0.0 refuses chunks whose dimensions take more bytes
than they need, as PureHDF writes them, and 2.2.0 reads them. So what h5py calls damage is damage
only if nobody opens it. netCDF4 has a libhdf5 of its own, pyfive has none.

They are asked in a process of their own, which may crash or hang, without filter plugins, and only
about files whose links h5py lists, none of them external: netCDF4 would follow those. They describe
the variable, and read no values.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import count

import h5py

_SECONDS = 30
_MOST = 20  # files that a process asks about: an archive of damaged files is not asked one by one
_PROGRAM = """
import sys
library, path, name = sys.argv[1:]
if library == "netCDF4":
    import h5py, netCDF4
    inside = (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT)
    with h5py.File(path, locking=False) as file:
        file.id.links.visit(lambda _, info: 1 / (info.type in inside) and None, info=True)
    with netCDF4.Dataset(path) as file:
        file[name] if name else file.variables
    print(f"libhdf5 {netCDF4.__hdf5libversion__} of netCDF4 {netCDF4.__version__}")
else:
    import pyfive
    with pyfive.File(path) as file:
        (file[name] if name else file).attrs
        name and file[name].chunks
    print(f"pyfive {pyfive.__version__}")
"""
_asked = count()


def name_this_reader() -> str:
    """Return the library that reads files here, with its version."""
    return f"libhdf5 {h5py.version.hdf5_version} of h5py {h5py.__version__}"


def find_other_reader(path: str, variable: str) -> str:
    """Return a library that opens a file, with its version; "" if none is known to do so.

    Args:
        path: Of a local file.
        variable: The path of the variable that is refused, "" where the file is.
    """
    if next(_asked) >= _MOST:
        return ""
    for library in ("pyfive", "netCDF4"):
        if find_spec(library) is not None and (found := _ask(library, path, variable)):
            return found
    return ""


def _ask(library: str, path: str, variable: str) -> str:
    quiet = {**os.environ, "HDF5_PLUGIN_PRELOAD": "::", "HDF5_USE_FILE_LOCKING": "FALSE"}
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and a program of ours
            [sys.executable, "-c", _PROGRAM, library, path, variable],
            capture_output=True, check=False, env=quiet, text=True, timeout=_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
