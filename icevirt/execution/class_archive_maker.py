"""Make the archive of Spark's classes: see which classes a session loads, and let Java store them.

The archive holds all of them, also the classes of Java itself: a trimmed runtime has no archive of
its own on which another could be based.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from icevirt.errors import BuildError
from icevirt.execution.class_archive import (
    UNFINISHED,
    archives_folder,
    find_archive,
    publish_archive,
)
from icevirt.execution.java import Java, find_java
from icevirt.execution.private_cache import fault_of, make_private
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.execution.spark_session import forget_jvm, local_session, spark_home, stop

# Below 32 GiB of heap a JVM compresses references, and an archive fits either kind alone. The
# default would be a quarter of the machine's memory.
_HEAP = "-Xmx1g"
_QUIET = "-Xlog:disable"  # classes that cannot be stored are left out
_JARS_ONLY = (
    "SPARK_CONF_DIR and the class path must name no directory that has files, as Java stores"
    " classes of JARs only."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """The archive with which Spark sessions start that icevirt starts."""

    path: str
    size: int  # bytes
    java: str  # the executable
    java_version: int  # the feature release, like 17
    is_new: bool  # False: it was there


def make_class_archive(*, before: Callable[[], object]) -> ClassArchive:
    """Return the archive for the Java and the Spark that a session would use; make it if missing.

    Args:
        before: Called before an archive is made, which takes a minute or two.

    Raises:
        BuildError: Spark or Java is missing, Java made no archive, or another user could change it.
        InvalidInputError: A Spark session is running in this process.
    """
    java, home = find_java(), spark_home()
    try:
        make_private(archives_folder())
        if (fault := fault_of(archives_folder())) is not None:
            raise _not_kept(fault)
        if is_new := find_archive(java, home) is None:
            _refuse_settings(home)
            before()
            with tempfile.TemporaryDirectory(dir=archives_folder(), prefix=UNFINISHED) as work:
                publish_archive(_made(java, Path(work)), java, home)
        found = find_archive(java, home)
        if found is None:
            raise _not_kept("it is gone")
        return ClassArchive(
            path=str(found),
            size=found.stat().st_size,
            java=str(java.path),
            java_version=java.version,
            is_new=is_new,
        )
    except OSError as error:
        raise _not_kept(str(error)) from error


def _not_kept(cause: str) -> BuildError:
    return BuildError(
        "an archive of classes cannot be kept in the user's cache",
        do="Correct that, or set XDG_CACHE_HOME to a directory that only you can write.",
        cause=cause,
    )


def _refuse_settings(home: str) -> None:
    """Refuse at once what Java refuses minutes later: Spark's settings lie on its class path."""
    settings = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))
    if settings.is_dir() and (files := sorted(each.name for each in settings.iterdir())):
        raise BuildError(
            "Java cannot make an archive of Spark's classes beside files of settings",
            do=f"{_JARS_ONLY} Without an archive Spark starts as before.",
            directory=str(settings),
            files=files,
        )


def _made(java: Java, work: Path) -> Path:
    """Make the archive in a folder."""
    classes, archive = work / "classes.lst", work / "archive.jsa"
    session = local_session(java_options=[f"-XX:DumpLoadedClassList={classes}"])
    try:
        executor = SparkExecutor(session)
        executor.run(str, [1, 2])
        executor.shuffle(_rows, [1, 2], _count, [1, 2])
        class_path = str(session._jvm.System.getProperty("java.class.path"))  # type: ignore[union-attr]  # noqa: SLF001
    finally:
        stop(session)
        forget_jvm()
    file = f"-XX:SharedArchiveFile={archive}"
    listed = f"-XX:SharedClassListFile={classes}"
    _run_java(java, "-Xshare:dump", _HEAP, _QUIET, listed, file, "-cp", class_path)
    _run_java(java, "-Xshare:on", _HEAP, file, "-cp", class_path, "-version")
    return archive


def _rows(_: int, number: int) -> Iterator[tuple[int, bytes]]:
    """Send a row to each task of a shuffle, as a build does."""
    yield from ((to, bytes([number])) for to in range(2))


def _count(_: int, rows: list[bytes]) -> int:
    return len(rows)


def _run_java(java: Java, *options: str) -> None:
    ran = subprocess.run(  # noqa: S603 - the Java that runs Spark
        [java.path, *options], capture_output=True, text=True, errors="replace", check=False
    )
    if ran.returncode != 0:
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        raise BuildError(
            "Java made no archive of Spark's classes",
            do=f"{_JARS_ONLY} Or try another Java: 17 and 25 can, 21 rejects an archive of Spark's"
            " JARs. Without one Spark starts as before.",
            java=str(java.path),
            cause=said[-1] if said else f"exit status {ran.returncode}",
        )
