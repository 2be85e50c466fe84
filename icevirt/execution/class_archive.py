"""Find the archive of Spark's classes with which a JVM starts in half the time.

The archive is one of class data sharing (CDS), made by `icevirt.execution.class_archive_maker` and
kept in the user's cache. A JVM rejects an archive of another Java or of other JARs by itself, and
starts without it. It does not notice damage, by which it would crash. So the name of an archive has
a checksum of the file, which is compared before each use.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from icevirt.errors import BuildError
from icevirt.execution.java import Java
from icevirt.execution.private_cache import cache_path, fault_of, is_private

MAX_BYTES = 512 << 20
"""Archives that are used least recently are removed where all of them are larger; in bytes."""

MAX_AGE = 90 * 24 * 3600
"""An archive is removed when it was not used for so long; in seconds."""

UNFINISHED = "new-"
"""How the names of folders begin in which archives are made."""

_SUFFIX = ".jsa"
_ABANDONED = 24 * 3600  # seconds, after which a folder of an unfinished archive is removed
_AT_ONCE = 1 << 20  # bytes
_OPTIONAL = ("-Xshare:auto", "-Xlog:cds=off")  # Java 25 would say that it rejects an archive
_VARIABLES = (
    *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    *("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"),
)
_CHOICES = ("-Xshare", "SharedArchiveFile", "AOTCache")


def archives_folder() -> Path:
    """Return the folder of all archives, which need not exist.

    Raises:
        OSError: The user has no home.
    """
    return cache_path() / "class-archives"


def archive_options(java: Java, spark_home: str) -> tuple[str, ...]:
    """Return the options with which a JVM uses the archive, none if it starts without one.

    It does if there is no archive for this Java and Spark, if another user could have changed it,
    or if variables of the user's have options of class data sharing.
    """
    if any(choice in os.environ.get(name, "") for name in _VARIABLES for choice in _CHOICES):
        return ()
    try:
        if fault_of(archives_folder()) is not None:
            return ()
        trim_archives()
        found = find_archive(java, spark_home)
    except OSError:  # there is no archive, or another process removed it
        return ()
    return () if found is None else (f"-XX:SharedArchiveFile={found}", *_OPTIONAL)


def find_archive(java: Java, spark_home: str) -> Path | None:
    """Return the intact archive for a Java and a Spark, None if there is none; remove damaged ones.

    The folder must be one that only this user can change.

    Raises:
        OSError: Files cannot be read.
    """
    for path, _ in _archives(f"{archive_key(java, spark_home)}-"):
        with suppress(FileNotFoundError):  # another process removed it
            if not is_private(path):
                continue
            if path.stem.endswith(f"-{_checksum(path):08x}"):
                os.utime(path)  # when it was used
                return path
            path.unlink()
    return None


def publish_archive(made: Path, java: Java, spark_home: str) -> None:
    """Move a finished archive to its place, in one step, and remove what it replaces.

    Raises:
        OSError: It cannot be moved.
    """
    key = archive_key(java, spark_home)
    made.chmod(0o600)
    made.replace(archives_folder() / f"{key}-{_checksum(made):08x}{_SUFFIX}")
    trim_archives()


def trim_archives() -> None:
    """Remove archives that were not used for long, or are too many, and unfinished ones.

    A JVM that has opened an archive keeps it.

    Raises:
        OSError: The folder cannot be read.
    """
    now, total, archives = time.time(), 0, list(_archives())
    # of several for one Java and Spark, which processes made at once, all keep the same one:
    # by its name, since times change while others look
    kept = {path.name.partition("-")[0]: path for path, _ in sorted(archives)}
    for path, found in archives:
        is_large = total > 0 and total + found.st_size > MAX_BYTES
        is_other = kept[path.name.partition("-")[0]] != path
        if is_large or is_other or now - found.st_mtime > MAX_AGE:
            path.unlink(missing_ok=True)
        else:
            total += found.st_size
    for folder in archives_folder().glob(f"{UNFINISHED}*"):
        if now - folder.lstat().st_mtime > _ABANDONED:
            shutil.rmtree(folder, ignore_errors=True)


def remove_archives() -> int:
    """Remove all archives of this user; return how many bytes they took.

    Raises:
        BuildError: One cannot be removed.
    """
    freed = 0
    try:
        fault = fault_of(archives_folder())
        for path, found in _archives() if fault is None else ():
            path.unlink(missing_ok=True)
            freed += found.st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        fault = str(error)
    if fault is not None:
        raise BuildError(
            "archives of classes cannot be removed", do="Look at it yourself.", cause=fault
        )
    return freed


def archive_key(java: Java, spark_home: str) -> str:
    """Return what names the archives of a Java and a Spark: a digest of all that a JVM compares.

    Raises:
        OSError: Spark's JARs cannot be listed.
    """
    with os.scandir(Path(spark_home) / "jars") as entries:
        found = [(each.name, each.stat()) for each in entries if each.name.endswith(".jar")]
    jars = sorted((name, each.st_size, int(each.st_mtime)) for name, each in found)
    places = str(java.path), spark_home, os.environ.get("SPARK_CONF_DIR", "")
    facts = json.dumps([places, java.build, _pyspark_version(), jars])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _pyspark_version() -> str:
    with suppress(PackageNotFoundError):  # a Spark that was unpacked, not installed
        return version("pyspark")
    return ""


def _archives(start: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """Yield archives whose names begin so, what was used last first."""
    found = []
    with os.scandir(archives_folder()) as entries:
        for each in entries:
            if each.name.startswith(start) and each.name.endswith(_SUFFIX):
                with suppress(FileNotFoundError):  # another process removed it
                    path = Path(each.path)
                    found.append((path, path.lstat()))
    yield from sorted(found, key=lambda each: (each[1].st_mtime_ns, each[0]), reverse=True)


def _checksum(path: Path) -> int:
    """Return the CRC-32 of a file: it shows damage, and takes a twentieth of a second."""
    found, buffer = 0, memoryview(bytearray(_AT_ONCE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found = zlib.crc32(buffer[:count], found)
    return found
