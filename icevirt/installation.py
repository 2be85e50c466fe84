"""Say how this icevirt is installed with more extras: from where it was installed before.

Before a release, and from mirrors or checkouts later, ``pip install icevirt`` is another package or
none. Installers record where a distribution is from (PEP 610, ``direct_url.json``).
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit


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
