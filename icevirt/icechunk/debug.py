"""Say which versions are at work."""

from __future__ import annotations

import platform

from icevirt.icechunk.repository import SpecVersion
from icevirt.installation import version_of

_PACKAGES = ("icevirt", "zarr", "numcodecs", "xarray", "virtualizarr")


def print_debug_info() -> None:
    """Print the versions of Python, the platform and the packages."""
    print(f"platform:  {platform.platform()}")  # noqa: T201 - that is what it is for
    print(f"python:  {platform.python_version()}")  # noqa: T201
    for name in _PACKAGES:
        print(f"{name}:  {version_of(name) or 'not installed'}")  # noqa: T201


def spec_version() -> SpecVersion:
    """Return the version of the format that new repositories have."""
    return SpecVersion.v2


def supported_spec_versions() -> list[SpecVersion]:
    """Return the versions of the format that can be read and written."""
    return [SpecVersion.v2, SpecVersion.v1]
