"""Keep libhdf5 from loading filter plugins during a scan, unless the user allows it.

A file names the filters of its datasets by number, and to find one libhdf5 loads every library in
the directories of ``HDF5_PLUGIN_PATH`` and in two of the system's. An untrusted file must not
trigger that. Filters that are registered already (by ``import hdf5plugin``) stay.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from h5py import h5pl

ALLOW = "ICEVIRT_HDF5_PLUGINS"
"""Environment variable: ``1`` lets libhdf5 look for plugins, and imports hdf5plugin if it can."""

REMEDY = (
    "Where you trust files and plugins: install the filter's plugin (pip install hdf5plugin holds"
    f" most) and set {ALLOW}=1 for all processes that scan. Or leave the variable out with"
    " drop_variables."
)

_lock = threading.Lock()
_kept: list[bytes] = []  # the directories, while there are none
_depth = 0  # scans that run


@contextmanager
def no_plugins() -> Iterator[None]:
    """Empty libhdf5's list of directories for the time of a scan; scans may overlap."""
    if os.environ.get(ALLOW) == "1":
        if importlib.util.find_spec("hdf5plugin") is not None:
            importlib.import_module("hdf5plugin")
        yield
        return
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _depth  # noqa: PLW0603 - libhdf5's list is one for the process, too
    with _lock:
        _depth += 1
        while h5pl.size():
            _kept.append(h5pl.get(0))
            h5pl.remove(0)


def _end() -> None:
    global _depth  # noqa: PLW0603
    with _lock:
        _depth -= 1
        while not _depth and _kept:
            h5pl.prepend(_kept.pop())
