"""What a name or a pattern stands for: which files of a folder are taken, and what matches."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any

from icevirt.connect.urls import is_pattern, natural

SUFFIXES = (
    *(".nc", ".nc4", ".cdf", ".netcdf", ".h5", ".hdf5", ".he5", ".hdf"),
    *(".grib2", ".grb2", ".grib", ".grb", ".zarr.zip"),
)
"""Which files of a directory are taken. A file that is named, or matches a glob, always is."""

STORE_SUFFIX = ".zarr"


def is_since(source: str, found: str, since: str) -> bool:
    """Say whether a path or URL below a source does not sort before a text there.

    Args:
        source: A directory, prefix or pattern, as a path or URL.
        found: A file that it stands for, in the same spelling.
        since: A path below the directory, or the beginning of one.
    """
    folder = directory_of(source)
    return not found.startswith(folder) or found.removeprefix(folder) >= since


def directory_of(source: str) -> str:
    """Return the directory that a source names, or that its pattern begins with; with a slash."""
    begin = source.find("://") + 3 if "://" in source else 0
    fixed = takewhile(lambda name: not is_pattern(name), source[begin:].split("/"))
    return source[:begin] + "/".join(fixed).rstrip("/") + "/"


def by_names(path: str) -> list[Any]:
    """Return what sorts paths in natural order of the names in them."""
    return [natural(name) for name in path.split("/")]


def fits_name(name: str, segment: str) -> bool:
    """Say whether a name matches a part of a pattern; hidden names have to be asked for."""
    is_hidden = name.startswith(".") and is_pattern(segment) and not segment.startswith(".")
    return fnmatchcase(name, segment) and not is_hidden


def fits_path(names: Sequence[str], segments: Sequence[str]) -> bool:
    """Say whether a path matches a pattern as on local disk."""
    if not segments:
        return not names
    first, rest = segments[0], segments[1:]
    if first == "**":
        is_below = bool(names) and not names[0].startswith(".")
        return fits_path(names, rest or ["*"]) or (is_below and fits_path(names[1:], segments))
    return bool(names) and fits_name(names[0], first) and fits_path(names[1:], rest)
