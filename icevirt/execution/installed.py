"""Say what a process has installed, and how that differs from what it should have.

These functions are sent to executors by value (`icevirt.execution.installation`), where icevirt may
be missing, or another one: this module imports the standard library alone, and imports nothing of
icevirt to find out.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import pickle
import re
import socket
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from typing import Any


def look(names: Mapping[str, str], *, reads_code: bool) -> dict[str, Any]:
    """Return what this process has installed, as values that JSON knows.

    Args:
        names: Requirements by the names under which packages are imported.
        reads_code: Whether to sum up all modules of icevirt.
    """
    spec, version = _find("icevirt"), None
    if spec is not None:
        path = os.path.join(os.path.dirname(str(spec.origin)), "version.py")
        loader: Any = spec.loader  # of a folder or an archive; both read files
        text = re.search("__version__ *= *[\"']([^\"']+)", loader.get_data(path).decode())
        version = text.group(1) if text else ""
    return {
        "host": socket.gethostname(),
        "place": os.getcwd(),
        "python": "{}.{}".format(*sys.version_info[:2]),
        "executable": sys.executable or "python",
        "packages": {name: _version_of(name, names[name]) for name in names},
        "icevirt": version,
        "code": _digest(spec) if reads_code and spec is not None else "",
        "scanners": _scanners(),
    }


def compare(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the kind of difference that matters most, and a clause about it.

    Args:
        expected: What the driver has; an empty digest of its code is not compared.
        found: What is there.
    """
    if found["python"] != expected["python"]:
        here = expected["python"]
        return "python", f"it runs Python {found['python']}, the driver {here}"
    if found["icevirt"] is None:
        return "missing", "icevirt is not installed there"
    if found["icevirt"] != expected["icevirt"]:
        return "version", f"it has icevirt {found['icevirt']}, the driver {expected['icevirt']}"
    if expected["code"] and found["code"] != expected["code"]:
        return "code", "its icevirt has the version number of the driver's, and other code"
    there, here = found["scanners"], expected["scanners"]
    if there != here:
        text = ", ".join(
            f"{name} ({there.get(name, 'none')} there, {here.get(name, 'none')} on the driver)"
            for name in sorted({*there, *here})
            if there.get(name) != here.get(name)
        )
        return "scanners", f"its scanners differ: {text}"
    return None


def refuse(expected: Mapping[str, Any], prefix: str) -> None:
    """Raise an error where this process lacks what is expected; it is asked once.

    Args:
        expected: What the driver has.
        prefix: Begins the message, by which the driver knows it.
    """
    # what was found holds as long as the process, which may serve several drivers
    known = sys.__dict__.setdefault("_icevirt_suits", set())
    if (key := repr(sorted(expected.items()))) in known:
        return
    found = look({}, reads_code=bool(expected["code"]))
    if (difference := compare(expected, found)) is not None:
        where = f"{found['host']} ({found['executable']})"
        raise RuntimeError(f"{prefix}, {where}: {difference[1]}.")
    known.add(key)


def load(expected: Mapping[str, Any], prefix: str, payload: bytes) -> Any:
    """Unpickle an object where this process has what is expected; see `refuse`.

    Args:
        expected: What the process that pickled it has.
        prefix: As for `refuse`.
        payload: Its class and its attributes, pickled.
    """
    refuse(expected, prefix)
    kind, attributes = pickle.loads(payload)  # noqa: S301  # made by `SentBySpark`
    made = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _find(name: str) -> ModuleSpec | None:
    """Return where a package is; a folder of that name without code is none."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand
        return None
    return None if spec is None or spec.origin is None else spec


def _version_of(name: str, requirement: str) -> str | None:
    """Return a version, "" where nothing says it, None where the package is missing."""
    if _find(name) is None:
        return None
    try:
        return importlib.metadata.version(re.split("[<>=]", requirement)[0])
    except importlib.metadata.PackageNotFoundError:
        return ""


def _digest(spec: ModuleSpec) -> str:
    """Sum up the modules of both packages, once as long as they are not replaced."""
    known = sys.__dict__.setdefault("_icevirt_digests", {})
    place = getattr(spec.loader, "archive", os.path.dirname(str(spec.origin)))
    key = place, os.stat(place).st_mtime_ns
    if key in known:
        return str(known[key])
    summed = hashlib.blake2b(digest_size=16)
    for package in ("icevirt", "icevirt_scanners"):
        for path, code in sorted(_modules(package)):
            summed.update(f"{path}\0{len(code)}\0".encode())
            summed.update(code)
    known[key] = summed.hexdigest()
    return str(known[key])


def _modules(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and code of every module of a package."""
    spec = _find(package)
    if spec is None:
        return
    if (archive := getattr(spec.loader, "archive", None)) is not None:
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if name.startswith(f"{package}/") and name.endswith(".py"):
                    yield name, packed.read(name)
        return
    for top in spec.submodule_search_locations or ():
        for folder, _, files in os.walk(top):
            inside = os.path.relpath(folder, os.path.dirname(top)).replace(os.sep, "/")
            for name in files:
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), "rb") as file:
                        yield f"{inside}/{name}", file.read()


def _scanners() -> dict[str, str]:
    """Return the scanners: their classes, or the package and version of those of others."""
    found = {}
    for entry in importlib.metadata.entry_points(group="icevirt.scanners"):
        of = entry.dist
        is_own = of is None or of.name.lower() == "icevirt"
        found[entry.name] = entry.value if is_own or of is None else f"{of.name} {of.version}"
    return found
