"""Resolve datasets whose bytes lie in other files: external raw files, virtual datasets.

libhdf5 reads zeros if a raw file is missing, so every raw file is checked first. They must lie in
the directory of the scanned file or below it, or where the options allow: a file that could name
any path would copy that path's content into a repository.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

from h5py import h5d, h5i, h5p

from icevirt.errors import ScanError, UnsupportedError
from icevirt_scanners.hdf5.files import FileContext

REMEDY = "Leave it out with drop_variables."


def check_elsewhere(
    dsid: Any, plist: Any, layout: int, *, context: FileContext, variable: str
) -> str:
    """Return which other files hold the values of a dataset, "" for none; check its raw files.

    Sources of a virtual dataset are checked when it is resolved.

    Args:
        dsid: The dataset.
        plist: Its creation properties.
        layout: The layout in them.
        context: Of the scan.
        variable: For errors.

    Raises:
        ScanError: A raw file is missing or too short.
        UnsupportedError: One lies outside the file's directory, or cannot be checked.
    """
    if layout == h5d.VIRTUAL:
        return "a virtual dataset"
    if not plist.get_external_count():
        return ""
    facts = {"file": context.source.file.url, "variable": variable}
    path = context.source.local_path
    if path is None:
        raise UnsupportedError("values outside the remote file", do=REMEDY, **facts)
    nbytes = dsid.get_type().get_size() * prod(dsid.shape)
    _check_external(plist, Path(path).parent, nbytes, context, facts)
    return "external raw files"


def outside(error: UnsupportedError, facts: dict[str, str]) -> UnsupportedError:
    """Return the error for a source that lies where it may not, naming the variable."""
    return UnsupportedError(
        "values in a file outside the directory of the scanned file",
        do=f"{error.do} {REMEDY}",
        **{**error.facts, **facts},
    )


def beside(dsid: Any) -> Any:
    """Close a dataset and open it such that its raw files are looked for beside the file.

    libhdf5's default is the working directory, which means nothing on an executor.
    """
    access = h5p.create(h5p.DATASET_ACCESS)
    access.set_efile_prefix(b"${ORIGIN}")
    file, name = h5i.get_file_id(dsid), h5i.get_name(dsid)
    dsid.close()  # libhdf5 accepts another prefix only for datasets that are not open
    return h5d.open(file, name, access)


def _check_external(
    plist: Any, directory: Path, nbytes: int, context: FileContext, facts: dict[str, str]
) -> None:
    """Check that raw files hold all values: libhdf5 reads zeros behind their end."""
    for number in range(plist.get_external_count()):
        name, offset, size = plist.get_external(number)
        place = str(directory / os.fsdecode(name))
        try:
            source = context.elsewhere.source(place)
        except UnsupportedError as error:
            raise outside(error, facts) from error
        if source is None:
            raise ScanError("a source of the values is missing", do=REMEDY, **facts, source=place)
        with source:
            context.beside[source.file.url] = source.file
        used = min(size, nbytes)  # the last may be without limit
        nbytes -= used
        if source.file.size < offset + used:
            raise ScanError("a source of the values is too short", do=REMEDY, **facts, source=place)
