"""Say what is installed here, and how this icevirt is installed with more extras.

Before a release, and from mirrors or checkouts later, ``pip install icevirt`` is another package or
none. Installers record where a distribution is from (PEP 610, ``direct_url.json``).
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from typing import Any
from urllib.parse import unquote, urlsplit

_BESIDE = ("icechunk", "numcodecs", "dask", "netCDF4", "kerchunk", "hdf5plugin")
"""Packages that icevirt does not ask for, and that decide what a program of its users does."""


def versions() -> Mapping[str, str]:
    """Return versions that a report of a fault needs: Python, the system, HDF5 and packages.

    The packages are those that the distribution names, with all extras, and those beside them; what
    is not installed is left out.
    """
    try:
        requirements = distribution("icevirt").requires or ()
    except PackageNotFoundError:  # a folder on the import path
        requirements = ()
    names = {re.split(r"[^\w.-]", each)[0].lower() for each in requirements} | {*_BESIDE}
    there = {each: version_of(each) for each in sorted(names - {"icevirt"}, key=str.lower)}
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        **({"hdf5": found} if (found := _hdf5()) else {}),
        **{name: found for name, found in there.items() if found},
    }


def version_of(name: str) -> str | None:
    """Return the version of a package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _hdf5() -> str | None:
    """Return the version of the HDF5 library that h5py brings; a broken h5py is none."""
    try:
        from h5py import version as found
    except ImportError:
        return None
    return str(found.hdf5_version)


def install_command(extras: str = "") -> str:
    """Return the command that installs this icevirt with extras, like ``hdf5,cluster``."""
    try:
        found = distribution("icevirt")
    except PackageNotFoundError:  # a folder on the import path
        return f"pip install {shlex.quote(_named(extras))}"
    tool = "uv pip" if (found.read_text("INSTALLER") or "").strip() == "uv" else "pip"
    return f"{tool} install {_requirement(found, extras)}"


def _requirement(found: Distribution, extras: str) -> str:
    named, record = _named(extras), found.read_text("direct_url.json")
    origin: dict[str, Any] = json.loads(record) if record else {}
    if not origin:
        return shlex.quote(named)
    url = _without_user(origin["url"])
    if "vcs_info" in origin:
        vcs, folder = origin["vcs_info"], origin.get("subdirectory", "")
        below = f"#subdirectory={folder}" if folder else ""
        return shlex.quote(f"{named} @ {vcs['vcs']}+{url}@{vcs['commit_id']}{below}")
    if not url.startswith("file://"):
        return shlex.quote(f"{named} @ {url}")
    path = unquote(urlsplit(url).path) + named.removeprefix("icevirt")
    is_editable = origin.get("dir_info", {}).get("editable", False)
    return ("-e " if is_editable else "") + shlex.quote(path)


def _named(extras: str) -> str:
    return f"icevirt[{extras}]" if extras else "icevirt"


def _without_user(url: str) -> str:
    """Return a URL without credentials; the name of an account of ssh is part of the address."""
    parts = urlsplit(url)
    if parts.scheme == "ssh" and parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
