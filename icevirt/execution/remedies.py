"""Say what to do where executors lack something: ready to paste, for every kind of cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from icevirt.execution.installation import NEEDED
from icevirt.version import __version__

_PACKED = "or send a packed environment with spark.archives (docs/clusters.md)"
_SHIP = "call icevirt.spark.ship(spark) before the first build"


def installing(requirements: Sequence[str] = (), *, python: str = "") -> str:
    """Return how to install packages for executors.

    Args:
        requirements: What to install; by default all that executors need.
        python: The path of their Python, where it is known.
    """
    words = requirements or [f"icevirt[cluster,hdf5]=={__version__}"]
    pip = f"{quote(python)} -m pip" if python else "pip"
    where = "On every executor" if python else "In the Python of every executor"
    return f"{where} run `{pip} install {' '.join(map(quote, words))}`; {_PACKED}."


def remedy_of(
    kind: str, driver: Mapping[str, Any], *, python: str = "", wrong: Sequence[str] = ()
) -> str:
    """Return what to do about a difference that `installed.compare` found.

    Args:
        kind: Of the difference.
        driver: What the driver has installed.
        python: The path of the executor's Python, where it is known.
        wrong: Requirements that are not met there either; these cannot be sent.
    """
    install = installing(python=python)
    match kind:
        case "python":
            version = driver["python"]
            return (
                f"Set spark.pyspark.python (or PYSPARK_PYTHON) to a Python {version} that is on all"
                f" executors, or run the driver with their version; {_PACKED}."
            )
        case "scanners":
            return (
                "Install the same scanner packages on the driver and on all executors, and start a"
                " new session."
            )
        case _ if wrong:
            return f"It lacks {', '.join(wrong)} too. {install}"
        case "missing":
            return f"In your program {_SHIP}. Or: {install}"
        case _:
            return f"In a new session {_SHIP}, which sends the driver's icevirt. Or: {install}"


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
