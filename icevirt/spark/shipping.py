"""Send icevirt to executors that lack it, or have another one.

What is sent is an archive of both packages with the metadata that names their scanners. A wheel
will not do: Spark puts it on the path without installing it. Packages with compiled parts are not
importable from an archive either: they have to be installed on executors, or be in a packed
environment.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from icevirt.errors import ExecutorError, InvalidInputError
from icevirt.installation import install_command
from icevirt.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icevirt.execution.preflight import LookedAt

_PACKAGES = ("icevirt", "icevirt_scanners")
_TIME = (1980, 1, 1, 0, 0, 0)  # the same bytes from the same code
_KINDS_SENT = ("missing", "version", "code", "scanners")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What `ship` did."""

    version: str
    """Of icevirt, on the driver and now on the executors."""

    executors: tuple[str, ...]
    """Hosts that were looked at; executors that start later get the same."""

    archive: str | None
    """Name of the archive that was sent; None where nothing was lacking."""


def ship(spark: SparkSession) -> Shipped:
    """Make the driver's icevirt importable on the executors of a session.

    Two small jobs look at the executors, before and after. Nothing is sent where they have the
    driver's icevirt, or where Spark runs in local mode. The session keeps what was sent: call this
    once, before the first build.

    Args:
        spark: The session, of this process or of Spark Connect.

    Raises:
        ExecutorError: Executors lack packages with compiled parts, which cannot be sent, or run
            another version of Python. The message says how to install them.
        SparkJobError: Spark failed.
    """
    from icevirt.execution import preflight
    from icevirt.execution.spark_executor import SparkExecutor
    from icevirt.tasks.reachability import ReachTask

    executor = SparkExecutor(spark)
    if executor.is_local:
        return Shipped(version=__version__, executors=(), archive=None)
    found = preflight.look_at(executor, None)
    lacking = [each for each in found if each.differs and each.differs[0] in _KINDS_SENT]
    if not lacking:
        preflight.refuse_unsuitable(found)
        return Shipped(version=__version__, executors=_hosts(found), archive=None)
    _refuse_lacking(found)
    archive = archive_of_icevirt()
    _send(spark, archive)
    again = preflight.look_at(executor, ReachTask(folder="", note=b""))
    for each in again:
        if each.differs is not None and not each.differs_in("scanners"):
            raise ExecutorError(
                f"an executor does not take the icevirt that was sent: {each.differs[1]}",
                do="Its Python has loaded another one already: start a new session, and call"
                " icevirt.spark.ship(spark) before the first build.",
                executor=each.host,
                python=each.python,
            )
    preflight.refuse_unsuitable(again)
    return Shipped(version=__version__, executors=_hosts(again), archive=os.path.basename(archive))


def _hosts(found: Sequence[LookedAt]) -> tuple[str, ...]:
    return tuple(sorted({each.host for each in found}))


def _refuse_lacking(found: Sequence[LookedAt]) -> None:
    """Refuse executors that would lack something with icevirt too."""
    from icevirt.execution import preflight
    from icevirt.execution.spark_failures import installing, requirements_of

    preflight.refuse_unsuitable([each for each in found if each.differs_in("python")])
    for each in found:
        if wrong := requirements_of(each.packages):
            raise ExecutorError(
                f"icevirt can be sent to executors, and these packages cannot: {', '.join(wrong)}",
                do=f"They are not shipped. {installing(wrong, python=each.python)}",
                executor=each.host,
                python=each.python,
            )


def _send(spark: Any, archive: str) -> None:
    """Add the archive to the session; what it adds to the path of the driver is removed again."""
    before = [*sys.path]
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001  # a session of Spark Connect has none
        spark.addArtifacts(archive, pyfile=True)
    else:
        context.addPyFile(archive)
    sys.path[:] = before


@cache
def archive_of_icevirt() -> str:
    """Return the path of an archive of icevirt; it lies there until this process ends.

    Raises:
        InvalidInputError: icevirt is not installed here, but only on the path.
    """
    from icevirt.execution.spark_session import private_folder

    path = os.path.join(private_folder(prefix="icevirt-ship-"), f"icevirt-{__version__}.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in sorted(_contents()):
            packed.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return path


def _contents() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for top in (spec.submodule_search_locations or ()) if spec else ():
            for folder, _, files in os.walk(top):
                inside = os.path.relpath(folder, os.path.dirname(top)).replace(os.sep, "/")
                for name in files:
                    if not name.endswith((".pyc", ".pyi", ".so")):
                        with open(os.path.join(folder, name), "rb") as file:
                            yield f"{inside}/{name}", file.read()
    try:
        installed = importlib.metadata.distribution("icevirt")
    except importlib.metadata.PackageNotFoundError as error:
        raise InvalidInputError(
            "icevirt is not installed in this Python, so that nothing names its scanners",
            do=f"Install it: {install_command()}",
        ) from error
    for name in ("METADATA", "entry_points.txt"):
        text = installed.read_text(name) or ""
        yield f"icevirt-{__version__}.dist-info/{name}", text.encode()
