"""Say what to do where executors lack something: ready to paste, for every kind of cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from icevirt.execution.installation import NEEDED
from icevirt.version import __version__

_PACKED = "; or send a packed environment with spark.archives (docs/clusters.md)"


def installing(requirements: list[str] | None = None) -> str:
    """Return how to install packages for executors; by default, all that they need."""
    words = requirements or [f"icevirt[cluster,hdf5]=={__version__}"]
    quoted = " ".join(f"'{each}'" for each in words)
    return f"On every executor run `pip install {quoted}` in this Python{_PACKED}."


def remedy_of(kind: str, driver: Mapping[str, Any]) -> str:
    """Return what to do about a difference that `installation.comparing` found."""
    match kind:
        case "python":
            version = driver["python"]
            return (
                f"Set spark.pyspark.python (or PYSPARK_PYTHON) to a Python {version} that is on all"
                f" executors, or run the driver with the executors' Python{_PACKED}."
            )
        case "missing":
            return f"Call icevirt.spark.ship(spark) before, or: {installing()}"
        case "scanners":
            return (
                "Install the same scanner packages on the driver and on all executors, and restart"
                " the session."
            )
        case _:
            return (
                "Call icevirt.spark.ship(spark) before, which sends the driver's icevirt to the"
                f" executors of a new session, or: {installing()}"
            )


def requirements_of(packages: Mapping[str, str | None]) -> list[str]:
    """Return the requirements that installed packages do not meet.

    Args:
        packages: Versions by import name: None where one is missing, "" where it is unknown.
    """
    return [NEEDED[name] for name, has in packages.items() if not _meets(NEEDED[name], has)]


def _meets(requirement: str, version: str | None) -> bool:
    if not version:
        return version is not None
    for operator, bound in re.findall(r"(>=|<)([0-9.]+)", requirement):
        is_older = _parts(version) < _parts(bound)
        if is_older is (operator == ">="):
            return False
    return True


def _parts(version: str) -> list[int]:
    release = re.match(r"[0-9.]+", version)
    found = [int(each) for each in (release.group() if release else "0").split(".") if each]
    while found and not found[-1]:
        found.pop()
    return found
