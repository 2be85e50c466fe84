"""Datasets whose bytes lie in other files: external raw files and virtual datasets.

libhdf5 reads fill values where a source is missing, so every source is looked for first. Sources
must lie in the directory of the scanned file or below it: a file that could name any path would
copy that path's content into a repository.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5i, h5p

from icevirt.errors import ScanError, UnsupportedError
from icevirt_scanners.hdf5.links import object_at

_REMEDY = "Leave it out with drop_variables."


def check_elsewhere(
    dsid: Any, plist: Any, layout: int, *, file: str, path: str | None, variable: str
) -> str:
    """Check the sources of a dataset; return "" or in a word where its values come from.

    Args:
        dsid: The dataset.
        plist: Its creation properties.
        layout: The layout that those say.
        file: URL of the scanned file.
        path: The same on local disk, None for a remote file.
        variable: For errors.

    Raises:
        ScanError: A source is missing or too short.
        UnsupportedError: A source lies outside the file's directory, or cannot be checked.
    """
    facts = {"file": file, "variable": variable}
    virtual, external = layout == h5d.VIRTUAL, plist.get_external_count()
    if not virtual and not external:
        return ""
    if path is None:
        raise UnsupportedError("values in other files than a remote one", do=_REMEDY, **facts)
    if external:
        _check_external(plist, path, _nbytes(dsid), facts)
        return "external raw files"
    for number in range(plist.get_virtual_count()):
        name = plist.get_virtual_filename(number)
        if "%" in name:
            raise UnsupportedError("a virtual dataset over numbered files", do=_REMEDY, **facts)
        _check_source(dsid, path, name, plist.get_virtual_dsetname(number), facts)
    return "a virtual dataset"


def beside(dsid: Any) -> Any:
    """Close a dataset and open it such that its raw files are looked for beside the file.

    libhdf5's default is the working directory, which means nothing on an executor.
    """
    access = h5p.create(h5p.DATASET_ACCESS)
    access.set_efile_prefix(b"${ORIGIN}")
    file, name = h5i.get_file_id(dsid), h5i.get_name(dsid)
    dsid.close()  # libhdf5 accepts another prefix only for datasets that are not open
    return h5d.open(file, name, access)


def _inside(path: str, name: str, facts: dict[str, str]) -> str:
    directory = Path(path).resolve().parent
    source = (directory / name).resolve()
    if not source.is_relative_to(directory):
        raise UnsupportedError(
            "values in a file outside the directory of the scanned one",
            do=_REMEDY,
            **facts,
            source=str(source),
        )
    if not source.is_file():
        raise ScanError(
            "a source of the values is missing", do=_REMEDY, **facts, source=str(source)
        )
    return str(source)


def _nbytes(dsid: Any) -> int:
    shape: tuple[int, ...] = dsid.shape
    size: int = dsid.get_type().get_size()
    return size * prod(shape)


def _check_external(plist: Any, path: str, nbytes: int, facts: dict[str, str]) -> None:
    """Check that raw files hold all values: libhdf5 reads zeros behind their end."""
    for number in range(plist.get_external_count()):
        name, offset, size = plist.get_external(number)
        source = _inside(path, os.fsdecode(name), facts)
        used = min(size, nbytes)  # the last may be without limit
        nbytes -= used
        if Path(source).stat().st_size < offset + used:
            raise ScanError(
                "a source of the values is too short", do=_REMEDY, **facts, source=source
            )


def _check_source(dsid: Any, path: str, name: str, dataset: str, facts: dict[str, str]) -> None:
    """Check a source of a virtual dataset; "." is the scanned file itself."""
    if name == ".":
        _check_dataset(h5i.get_file_id(dsid), dataset, {**facts, "source": path})
        return
    source = _inside(path, name, facts)
    if Path(source).samefile(path):  # libhdf5 would open it a second time, and cannot
        raise UnsupportedError(
            "a virtual dataset over its own file by that file's name", do=_REMEDY, **facts
        )
    with h5py.File(source, "r", locking=False) as file:
        _check_dataset(file.id, dataset, {**facts, "source": source})


def _check_dataset(fid: Any, name: str, facts: dict[str, str]) -> None:
    """Check that a source lies in the very file that it should: links could lead anywhere."""
    found = object_at(fid, name.encode("utf-8", "surrogateescape"))
    if not isinstance(found, h5d.DatasetID):
        raise ScanError("a source of the values is missing", do=_REMEDY, **facts, dataset=name)
    plist = found.get_create_plist()
    if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
        raise UnsupportedError(
            "a virtual dataset over others of its kind", do=_REMEDY, **facts, dataset=name
        )
