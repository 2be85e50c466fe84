"""Spell what a person typed for a path or URL as icevirt does: Spark's platforms have more ways.

Hadoop writes local files as ``file:/x``, Amazon's buckets as ``s3a://b/x``, and Databricks its own
storage as ``dbfs:/x``. Read as a local path, each would name a directory whose name ends in a
colon, on whichever machine runs the driver. So every beginning ``scheme:/`` is translated here or
refused. Nothing else of a text changes.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable

from icevirt.errors import InvalidInputError

_BEGINNING = r"([A-Za-z][A-Za-z0-9+._-]*):(/+)"  # not all of them are schemes
_SPELLED = {"s3a": "s3", "s3n": "s3"}
_AZURE = ("abfs", "abfss", "wasb", "wasbs")  # Hadoop's, with or without encryption in transit
_BLOBS = r"(?a)([^@/]+)@([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net(?=[/?#]|$)"
_VOLUMES, _DBFS = "/Volumes", "/dbfs"
# file systems that only Hadoop's client reads
_OF_HADOOP = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "har", "maprfs", "alluxio", "o3fs", "ofs")
_TO_DO_ON_HADOOP = (
    "Copy the files to an object store (`hadoop distcp hdfs:///archive s3a://bucket/archive`) and "
    "name s3://bucket/archive, or mount them on every machine (HDFS has an NFS gateway) and name "
    "the path of the mount."
)


def is_url(text: str) -> bool:
    """Say whether ``text`` has a scheme; ``C:/x`` and plain paths have none."""
    found = _beginning(text)
    return found is not None and len(found[1]) > 1 and len(found[2]) > 1


def _beginning(text: str) -> re.Match[str] | None:
    """Return the scheme of a text and its slashes; a plain path compiles no pattern."""
    return re.match(_BEGINNING, text) if ":/" in text else None


def spelled(
    text: str, *, foreign: bool = False, is_there: Callable[[str], bool] = os.path.isdir
) -> str:
    """Return a local path, or a URL in the scheme by which containers know its store.

    Args:
        text: What a person, a list of files or a platform wrote.
        foreign: Whether a file system of the caller's own may know other schemes.
        is_there: Says whether this machine has a directory.

    Raises:
        InvalidInputError: It begins like a URL with one slash and is none that has a meaning here;
            only Hadoop reads it; or Databricks' storage is not mounted on this machine.
    """
    found = _beginning(text)
    if found is None:
        return text
    scheme, slashes = found[1].lower(), found[2]
    rest = text[found.end() :]
    if scheme == "dbfs":
        return _of_databricks(text, slashes, rest, is_there)
    if scheme == "file" and slashes == "/":
        return f"file:///{rest}"
    if slashes == "/" or len(scheme) == 1 or (scheme in _OF_HADOOP and not foreign):
        raise _refused(text, scheme)
    return _of_stores(scheme, slashes + rest)


def _of_stores(scheme: str, rest: str) -> str:
    """Return a URL in the scheme of containers; one that no store has stays."""
    if scheme in _AZURE:
        at = re.compile(_BLOBS).match(rest, 2)
        if at is not None:
            return f"abfs://{at[1]}@{at[2]}.dfs.core.windows.net{rest[at.end() :]}"
        host = rest[2:].partition("/")[0]
        return f"{scheme}:{rest}" if "@" in host or scheme == "abfs" else f"az:{rest}"
    return f"{_SPELLED.get(scheme, scheme)}:{rest}"


def _of_databricks(text: str, slashes: str, rest: str, is_there: Callable[[str], bool]) -> str:
    """Return the path where Databricks mounts what it calls ``dbfs:/...``."""
    if len(slashes) == 2:
        raise InvalidInputError(
            "this is not a path of Databricks",
            do=f"Write dbfs:/{rest}, with one slash, or /Volumes/... for a volume.",
            path=text,
        )
    slash = "/" if rest.endswith("/") else ""
    path = posixpath.normpath(f"/{rest}")  # as Databricks reads "..": below its own root
    is_volume = path == _VOLUMES or path.startswith(f"{_VOLUMES}/")
    mount = _VOLUMES if is_volume else _DBFS
    if not is_there(mount):
        raise InvalidInputError(
            f"{mount}, where Databricks mounts this path, is not on this machine",
            do="Name the files by the URL of their object store (s3://, abfss://, gs://), or copy "
            "them to a volume (`dbutils.fs.cp`) and name /Volumes/....",
            path=text,
        )
    found = path if is_volume else f"{_DBFS}{path}".rstrip("/")
    return found + slash


def _refused(text: str, scheme: str) -> InvalidInputError:
    if scheme in _OF_HADOOP:
        return InvalidInputError(
            "icevirt does not read or write file systems of Hadoop", do=_TO_DO_ON_HADOOP, path=text
        )
    from icevirt.model.config.containers import SCHEMES

    what = f"{scheme}:/ begins no path or URL that icevirt knows"
    own = f"For a directory whose name ends in a colon, write its whole path: {_whole(text)}"
    if scheme in SCHEMES or scheme in (*_SPELLED, *_AZURE):
        do = f"Write {scheme}:// with two slashes, as text: pathlib.Path makes one of them. {own}"
    elif len(scheme) == 1:
        do = f"Drives of Windows are not known here; WSL calls them /mnt/{scheme}/.... {own}"
    else:
        do = f"Name a local path, or the URL of an object store. {own}"
    return InvalidInputError(what, do=do, path=text)


def _whole(text: str) -> str:
    return os.path.join(os.getcwd(), text)
