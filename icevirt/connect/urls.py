"""Spell paths and URLs that a person typed; parse and write URLs of files, objects and servers.

``file://`` URLs are percent-encoded the way the WHATWG rules and the official client write them.
URLs of objects have a kind of store, a bucket and a key. Keys are percent-decoded, without query
and fragment, as the official client reads them.

Spark's platforms have more ways to spell a place: Hadoop writes local files as ``file:/x``,
Amazon's buckets as ``s3a://b/x``, and Databricks its own storage as ``dbfs:/x``. Read as a local
path, each would name a directory whose name ends in a colon, on whichever machine runs the driver.
So every beginning ``scheme:/`` is translated here or refused. Nothing else of a text changes.

Servers are parsed so strictly that no two libraries can read them differently. Requests carry
credentials, and libraries disagree about the text before the first slash of an odd URL. Only URLs
that all libraries send to the same host and port are accepted.
"""

from __future__ import annotations

import ipaddress
import os
import posixpath
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

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


def is_pattern(text: str) -> bool:
    """Say whether ``text`` holds a character that means something in a glob."""
    return not {"*", "?", "["}.isdisjoint(text)


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a sort key under which ``f2`` comes before ``f10``; no two names share one."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)), name


def _beginning(text: str) -> re.Match[str] | None:
    """Return the scheme of a text and its slashes; a plain path compiles no pattern."""
    return re.match(_BEGINNING, text) if ":/" in text else None


_OF_WINDOWS = re.compile(r"[A-Za-z]:\\")


def spell(
    text: str, *, foreign: bool = False, is_there: Callable[[str], bool] = os.path.isdir
) -> str:
    """Return a local path, or a URL in the scheme by which containers know its store.

    Args:
        text: What a person, a list of files or a platform wrote.
        foreign: Whether a file system of the caller's own may know other schemes.
        is_there: Says whether this machine has a directory.

    Raises:
        InvalidInputError: It is a path of Windows, on another system; it begins like a URL with
            one slash and is none that has a meaning here; only Hadoop reads it; or Databricks'
            storage is not mounted on this machine.
    """
    if os.name != "nt" and _OF_WINDOWS.match(text):
        raise InvalidInputError(
            "this is a path of Windows, which this system takes for a file name",
            do="Write it as it is mounted here, like /mnt/c/data; if a file here does have this"
            " name, write ./ before it.",
            path=text,
        )
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
        raise _refusal(text, scheme)
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


def _refusal(text: str, scheme: str) -> InvalidInputError:
    if scheme in _OF_HADOOP:
        return InvalidInputError(
            "icevirt does not read or write file systems of Hadoop", do=_TO_DO_ON_HADOOP, path=text
        )
    what = f"{scheme}:/ begins no path or URL that icevirt knows"
    whole = os.path.join(os.getcwd(), text)
    own = f"For a directory whose name ends in a colon, write its whole path: {whole}"
    if scheme == "file" or scheme in PROVIDERS:
        do = f"Write {scheme}:// with two slashes, as text: pathlib.Path makes one of them. {own}"
    elif len(scheme) == 1:
        do = f"Drives of Windows are not known here; WSL calls them /mnt/{scheme}/.... {own}"
    else:
        do = f"Name a local path, or the URL of an object store. {own}"
    return InvalidInputError(what, do=do, path=text)


# what WHATWG's path percent-encode set leaves alone, beyond letters, digits and "-._~"; without the
# backslash, which it takes for a slash
_PLAIN = re.compile(r"(?:file://)?(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+)+")
SAFE = "/!$&'()*+,;=:@[]|"
PROVIDERS = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "tigris": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
    "http": "http",
    "https": "http",
}
# a bucket may become part of the name of a host, where libraries read other characters differently
_BUCKET = r"(?a)\$?[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
_HOST = r"[^\x00-\x20\x7f\\%\"<>^`{|}]+"
_ACCOUNT = r"(?a)([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = rf"{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]+\]"
_ENDPOINT = (
    rf"(?ai)(?P<scheme>https?)://(?P<host>{_HOST_NAME})"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[A-Za-z0-9._~-]+)*)/*"
)
HOST_AND_PORT = rf"(?a)(?:{_HOST_NAME})(?::[0-9]{{1,5}})?"
"""A host, with or without a port: a pattern, which is compiled when it is used."""

_WORD = r"[^\s\x00-,./:-@[-^`{-\x7f]+"  # letters and digits of any script, "-" and "_"
_WEB = rf"(?:{_WORD}(?:\.{_WORD})*\.?|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{{0,5}}))?"
_PORTS = {"http": 80, "https": 443}
_EMULATOR = "http://127.0.0.1:10000"


def file_url(path: str | os.PathLike[str]) -> str:
    """Return the ``file://`` URL of a local path; symbolic links are followed.

    Raises:
        InvalidInputError: The name is not valid UTF-8, so no URL can hold it.
    """
    return url_of_absolute(os.path.realpath(os.fspath(path)))


def url_of_absolute(path: str) -> str:
    """Return the ``file://`` URL of an absolute path as it is. Raises ``InvalidInputError``."""
    try:
        return "file://" + quote(path, safe=SAFE, errors="strict")
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "a file name that is not UTF-8 cannot be part of a URL", do="Rename it.", path=path
        ) from error


def local_path(url: str) -> str:
    """Return the local path of a ``file://`` URL.

    Raises:
        InvalidInputError: It is no file URL, names another host, has a query or fragment, or a
            ``.`` or ``..`` segment, or is not well-formed.
    """
    try:
        parts = urlsplit(url)
        path = unquote(parts.path, errors="strict")
    except ValueError as error:
        raise InvalidInputError("not a well-formed URL", url=url) from error
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidInputError("not the URL of a local file", url=url)
    if parts.query or parts.fragment or "\0" in path:
        raise InvalidInputError("a file URL has no query or fragment", url=url)
    if any(segment in (".", "..") for segment in path.split("/")):
        raise InvalidInputError("a file URL has no '.' or '..' segments", url=url)
    return path


def as_local_path(text: str | os.PathLike[str]) -> str:
    """Return the absolute local path of a path or ``file://`` URL that a person typed.

    Raises:
        InvalidInputError: The URL has another scheme.
    """
    text = os.fspath(text)
    if _PLAIN.fullmatch(text):  # nothing is to be translated, decoded or refused
        return text.removeprefix("file://")
    text = spell(text)
    if not is_url(text):
        if "\0" in text:
            raise InvalidInputError("no path has a NUL character", do="Correct it.", path=text)
        return os.path.abspath(os.path.expanduser(text))
    if not text.startswith("file://"):
        raise InvalidInputError(
            "only local paths and file:// URLs are supported here",
            do="Copy or mount it locally.",
            url=text,
        )
    return local_path(text)


class Address(NamedTuple):
    """The parts of an object's URL."""

    scheme: str
    bucket: str  # bucket or container; host and port of a web server
    key: str = ""
    account: str | None = None  # of ``abfss://container@account.dfs.core.windows.net/key``

    @property
    def provider(self) -> str:
        """``s3``, ``gcs``, ``azure`` or ``http``."""
        return PROVIDERS[self.scheme]

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"{self.bucket}@{self.account}.dfs.core.windows.net" if self.account else self.bucket
        path = quote(self.key, safe=SAFE)
        return f"{self.scheme}://{host}/{path}" if path else f"{self.scheme}://{host}"

    @property
    def root(self) -> Address:
        """The bucket itself."""
        return self._replace(key="")

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL; its scheme becomes the one of containers, so ``s3a`` becomes ``s3``.

        Raises:
            InvalidInputError: It is not well-formed, names no bucket, holds a user name or
                password, or is of a kind that no object store serves.
        """
        url = spell(url)
        scheme, separator, _ = url.partition("://")
        if not separator or scheme.lower() not in PROVIDERS:
            raise InvalidInputError(
                "this is not the URL of an object store",
                do=f"Use one of {', '.join(f'{known}://' for known in PROVIDERS)}.",
                scheme=scheme if separator else "",
            )
        try:
            parts = urlsplit(url)
            key = unquote(parts.path, errors="strict").removeprefix("/")
        except ValueError:
            key, parts = "", urlsplit("x://")
        account, host = None, parts.netloc
        if "@" in parts.netloc:  # of Azure, the container comes before it
            before, _, domain = parts.netloc.rpartition("@")
            found = re.fullmatch(_ACCOUNT, domain)
            # requests go to this domain, whatever another one says
            account, host = (found[1], before) if found else ("", "")
        is_azure = PROVIDERS[scheme.lower()] == "azure"
        allowed = _HOST if PROVIDERS[scheme.lower()] == "http" else _BUCKET
        dropped = any(each in url for each in "\t\r\n")  # urlsplit drops them
        if (
            dropped
            or not re.fullmatch(allowed, host)
            or "\0" in key
            or (account is not None and not is_azure)
        ):
            raise InvalidInputError(
                "this is not the URL of an object in a bucket",
                do="Write it like s3://bucket/prefix, without a password.",
                url=f"{scheme}://{parts.netloc.rpartition('@')[2]}",
            )
        return cls(scheme=scheme.lower(), bucket=host, key=key, account=account)


@lru_cache(maxsize=1024)
def is_authority(scheme: str, text: str) -> bool:
    """Say whether requests can go to what a URL has between ``//`` and the first slash."""
    if PROVIDERS[scheme] != "http":
        try:
            return bool(Address.parse(f"{scheme}://{text}/").bucket)
        except InvalidInputError:
            return False
    found = re.fullmatch(_WEB, text)
    try:
        if found is not None and found["address"]:
            ipaddress.IPv6Address(found["address"])
    except ValueError:
        return False
    return found is not None and 0 < int(found["port"] or 1) < 1 << 16


# -- servers -------------------------------------------------------------------------------------


def endpoint(text: object) -> str:
    """Return the URL of a server in one spelling: lower case, no default port, no last slash.

    Raises:
        InvalidInputError: It is not a plain ``http`` or ``https`` URL: it has a user name, a query,
            characters that are escaped or not ASCII, a port that is none, or a ``..`` in its path.
    """
    found = re.fullmatch(_ENDPOINT, text) if isinstance(text, str) else None
    is_plain = found is not None and {".", ".."}.isdisjoint(found["path"].split("/"))
    try:
        is_host = found is not None and len(found["host"]) <= 253
        if found is not None and found["host"].startswith("["):
            ipaddress.IPv6Address(found["host"][1:-1])
    except ValueError:
        is_host = False
    if found is not None and is_plain and is_host:
        scheme, host = found["scheme"].lower(), found["host"].lower()
        port = int(found["port"] or _PORTS[scheme])
        if 0 < port < 1 << 16:
            shown = "" if port == _PORTS[scheme] else f":{port}"
            return f"{scheme}://{host}{shown}{found['path']}"
    raise InvalidInputError(
        "this is not the URL of a server",
        do="Write it like https://host or https://host:9000, without user name or query.",
    )


def plain(text: str) -> str:
    """Return an endpoint in the spelling in which endpoints are compared.

    Text that is not an endpoint stays as it is: it equals none.
    """
    try:
        return endpoint(text)
    except InvalidInputError:
        return text.rstrip("/")


def destination(address: Address, options: Mapping[str, Any]) -> str:
    """Return where a store's requests go: its endpoint, from its final options. Pure.

    The rules are obstore's. `tests/access/hostile/test_credentials.py` compares them with
    the URLs that obstore signs.

    Args:
        address: Of the bucket.
        options: Of the store, by names of the library with or without the prefix of their family.

    Returns:
        An endpoint in the spelling of `plain`; "" where only credentials name one, as service
        accounts of Google do.
    """
    given = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    match address.provider:
        case "s3":
            named = given.get("endpoint_url_s3") or given.get("endpoint")
            # with a bucket before it, or not: Amazon's names of one server
            return plain(str(named or f"https://s3.{given.get('region')}.amazonaws.com"))
        case "gcs":
            return plain(str(given.get("base_url") or ""))
        case "azure" if str(given.get("use_emulator")).lower() in ("true", "1"):
            return plain(os.environ.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR)
        case "azure":
            return plain(str(given.get("endpoint")))
        case _:
            return plain(f"{address.scheme}://{address.bucket}")
