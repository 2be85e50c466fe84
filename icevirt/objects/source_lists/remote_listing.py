"""List the files of remote source URLs, each with size and checksum.

Buckets are listed; a web server cannot be, so its files are named one by one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile
from typing import Any

from icevirt.archive.scanned import SourceFile
from icevirt.connect.library import obstore
from icevirt.connect.retry import on_store
from icevirt.connect.stores import Bucket
from icevirt.connect.urls import Address
from icevirt.errors import (
    InvalidInputError,
    NotFoundError,
    NothingListedError,
    ObjectNotFoundError,
    ScanError,
)
from icevirt.objects.answers import Meta, change
from icevirt.objects.http.connections import HOSTS
from icevirt.objects.source import reach_for, source_file
from icevirt.objects.source_access import carrying, in_force
from icevirt.objects.source_lists.globs import is_pattern, natural

_FEW = 8000  # objects, which one listing returns soon
_MOST = 2000  # branches of a folder that are worth a listing each


def remote_files(url: str, suffixes: tuple[str, ...], *, since: str = "") -> list[SourceFile]:
    """Return the files that a URL, glob or folder on a server names, in natural order.

    Args:
        url: Of a file; of a folder of a bucket, which stands for all below it; or of a bucket with
            a glob, in which ``**`` crosses folders.
        suffixes: Which files of a folder are taken.
        since: Begin with the first path below the folder that does not sort before this text.

    Raises:
        InvalidInputError: Nothing matches, or the server cannot be listed.
        NotFoundError: There is no such file.
        ScanError: A change of a file would go unnoticed.
        StorageError: The server refused, or did not answer.
    """
    scheme, _, rest = url.partition("://")
    _, _, key = rest.partition("/")
    if scheme.lower() in ("http", "https"):
        # a question mark begins a query here, which is refused with its own remedy
        if is_pattern(key.partition("?")[0]) or not key or key.endswith("/"):
            raise InvalidInputError(
                "a web server cannot be listed",
                do="Pass its files one by one, or in a text file.",
                source=url,
            )
        return [_asked(url)]
    bucket = in_force().bucket(url if not is_pattern(key) else _folder_of(url))
    if is_pattern(key):
        segments = key.split("/")
        every = _below(bucket, "/".join(_fixed(segments)), since)
        found = {path: file for path, file in every.items() if _fits(path.split("/"), segments)}
        return _ordered(found, url, "the pattern matches no file")
    if key and not key.endswith("/"):
        try:
            return [_asked(url)]
        except NotFoundError:  # perhaps a folder
            pass
    folder = Address.parse(url).key.strip("/")
    found = {
        path: file
        for path, file in _below(bucket, folder, since).items()
        if path.lower().endswith(suffixes) and "/." not in f"/{path.removeprefix(folder)}"
    }
    return _ordered(found, url, "no such file, and no folder with NetCDF or HDF5 files")


def _folder_of(url: str) -> str:
    """Return the folder before the first part of a URL that is a pattern."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{'/'.join(_fixed(rest.split('/')))}/"


def changed_remotely(files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the URLs of files that are no longer what they were, and how they changed.

    Folders of buckets are listed, others (of web servers) asked for side by side.

    Raises:
        StorageError: A server refused, or did not answer.
    """
    folders: dict[str, list[SourceFile]] = defaultdict(list)
    single = []
    for file in files:
        if file.url.startswith(("http://", "https://")) or in_force().way_to(file.url):
            single.append(file)
        else:
            folders[file.url.rpartition("/")[0] + "/"].append(file)
    pairs: list[tuple[SourceFile | None, SourceFile]] = []
    listings = [
        HOSTS.submit(_host(folder), carrying(partial(_in_folder, folder))) for folder in folders
    ]
    for listing, members in zip(listings, folders.values(), strict=True):
        now = {file.url: file for file in listing.result()}
        pairs += [(now.get(file.url), file) for file in members]
    asking = [HOSTS.submit(_host(file.url), carrying(partial(_now, file.url))) for file in single]
    pairs += [(now.result(), file) for file, now in zip(single, asking, strict=True)]
    return {file.url: how for now, file in pairs if (how := change(now, file)) is not None}


def _host(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _now(url: str) -> SourceFile | None:
    try:
        return _asked(url)
    except (NotFoundError, ScanError):
        return None


def _asked(url: str) -> SourceFile:
    """Request the facts about one file."""
    reach, key, canonical = reach_for(url)
    try:
        answer = reach.get(key, 0, 1, lambda _meta: None)
    except ObjectNotFoundError as error:
        raise NotFoundError("no such file or directory", do="Check the URL.", source=url) from error
    return source_file(canonical, answer.meta)


def _below(bucket: Bucket, folder: str, since: str = "") -> dict[str, SourceFile]:
    """Return all objects below a folder, by key; those ``since`` a path in it."""
    found = _flat(bucket, folder, most=math.inf if since else _FEW, since=since)
    if found is None:
        found = _side_by_side(bucket, folder)
    folders = {path.rpartition("/")[0] for path in found}
    # empty objects in the name of a folder, which some tools make
    return {path: file for path, file in found.items() if file.size or path not in folders}


def name_before(begin: str) -> str | None:
    """Return a name that sorts a little before a text, behind which a listing begins.

    None for an empty text. Empty names between slashes, and control characters, are refused by
    object stores.
    """
    if not begin:
        return None
    near = chr(ord(begin[-1]) - 1)
    if near != "/" and near.isprintable():
        return f"{begin[:-1]}{near}~"
    return begin[:-1].rstrip("/") or None


def _flat(
    bucket: Bucket, folder: str, most: float = math.inf, since: str = ""
) -> dict[str, SourceFile] | None:
    """Return the objects below a folder by key, from one listing; None for ``most`` or more."""
    begin = f"{folder}/{since}".lstrip("/") if since else ""
    before = name_before(begin)

    def listed(store: Any) -> dict[str, SourceFile] | None:
        found: dict[str, SourceFile] = {}
        for page in obstore().list(store, prefix=folder or None, offset=before):
            found |= {one["path"]: _file(bucket, one) for one in page if one["path"] >= begin}
            if len(found) >= most:
                return None
        return found

    return on_store(bucket, _url(bucket, folder), listed)


def _side_by_side(bucket: Bucket, folder: str) -> dict[str, SourceFile]:
    """Return many objects below a folder: a listing is a chain of requests, so one a branch."""
    found, branches = _level(bucket, folder)
    while len(branches) == 1:
        objects, branches = _level(bucket, branches[0])
        found |= objects
    if len(branches) > _MOST:  # with little in each
        return _flat(bucket, folder) or {}
    listings = [HOSTS.submit(bucket.url, partial(_flat, bucket, each)) for each in branches]
    for listing in listings:
        found |= listing.result() or {}
    return found


def _url(bucket: Bucket, folder: str) -> str:
    return replace(bucket.address, key=folder).url


def _level(bucket: Bucket, folder: str) -> tuple[dict[str, SourceFile], list[str]]:
    """Return the objects in a folder by key, and the folders in it."""
    listed = on_store(
        bucket,
        _url(bucket, folder),
        lambda store: obstore().list_with_delimiter(store, prefix=folder or None),
    )
    found = {one["path"]: _file(bucket, one) for one in listed["objects"]}
    return found, list(listed["common_prefixes"])


def _in_folder(url: str) -> list[SourceFile]:
    """Return the objects in a folder, and not those below it."""
    found, _ = _level(in_force().bucket(url), Address.parse(url).key.strip("/"))
    return list(found.values())


def _file(bucket: Bucket, one: Any) -> SourceFile:
    url = replace(bucket.address, key=one["path"]).url
    seconds = one["last_modified"].timestamp()
    return source_file(url, Meta(size=one["size"], etag=one["e_tag"] or "", last_modified=seconds))


def _ordered(found: Mapping[str, SourceFile], url: str, what: str) -> list[SourceFile]:
    if not found:
        raise NothingListedError(what, do="Check the URL.", source=url)
    keys = sorted(found, key=lambda path: [natural(name) for name in path.split("/")])
    return [found[key] for key in keys]


def _fixed(segments: Sequence[str]) -> list[str]:
    """Return the folders before the first part that is a pattern; names are no folders."""
    return list(takewhile(lambda segment: not is_pattern(segment), segments[:-1]))


def _fits(names: Sequence[str], segments: Sequence[str]) -> bool:
    """Say whether a path matches a pattern as on local disk: hidden names have to be asked for."""
    if not segments:
        return not names
    first, rest = segments[0], segments[1:]
    if first == "**":
        crossed = _fits(names, rest or ["*"])
        return crossed or (
            bool(names) and not names[0].startswith(".") and _fits(names[1:], segments)
        )
    if not names or not fnmatchcase(names[0], first):
        return False
    if is_pattern(first) and names[0].startswith(".") and not first.startswith("."):
        return False
    return _fits(names[1:], rest)
