"""Datasets whose bytes lie in other files: external raw files and virtual datasets.

libhdf5 reads fill values where a source is missing, so every source is looked for first. Sources
must lie in the directory of the scanned file or below it: a file that could name any path would
copy that path's content into a repository.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5i, h5p

from icevirt.errors import ScanError, UnsupportedError

_REMEDY = "Leave it out with drop_variables."


def check_elsewhere(plist: Any, layout: int, *, file: str, path: str | None, variable: str) -> str:
    """Check the sources of a dataset; return "" or in a word where its values come from.

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
        _check_external(plist, path, facts)
        return "external raw files"
    for number in range(plist.get_virtual_count()):
        name = plist.get_virtual_filename(number)
        if "%" in name:
            raise UnsupportedError("a virtual dataset over numbered files", do=_REMEDY, **facts)
        if name != ".":
            _check_source(_inside(path, name, facts), plist.get_virtual_dsetname(number), facts)
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


def _check_external(plist: Any, path: str, facts: dict[str, str]) -> None:
    for number in range(plist.get_external_count()):
        name, offset, size = plist.get_external(number)
        source = _inside(path, os.fsdecode(name), facts)
        unlimited = size >= (1 << 63)
        if not unlimited and Path(source).stat().st_size < offset + size:
            raise ScanError("a source of the values is too short", **facts, source=source)


def _check_source(source: str, dataset: str, facts: dict[str, str]) -> None:
    with h5py.File(source, "r", locking=False) as file:
        found = file.get(dataset)
        if not isinstance(found, h5py.Dataset):
            raise ScanError("a source of the values is missing", **facts, source=source)
        if found.is_virtual or found.external:
            raise UnsupportedError(
                "a virtual dataset over others of its kind", do=_REMEDY, **facts, source=source
            )
