"""List what URLs on servers name: buckets are listed, files of web servers named one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from icevirt.archive.sources import REPOSITORY, STORES, SourceFile
from icevirt.connect.library import obstore
from icevirt.connect.retry import on_store
from icevirt.connect.stores import Bucket
from icevirt.connect.urls import Address, is_pattern
from icevirt.errors import (
    InvalidInputError,
    NotFoundError,
    NothingListedError,
    ObjectNotFoundError,
    ScanError,
)
from icevirt.objects.answers import Meta
from icevirt.objects.source import is_store, reach_for, source_file
from icevirt.objects.source_access import in_force
from icevirt.objects.source_lists.names import (
    STORE_SUFFIX,
    SUFFIXES,
    by_names,
    fits_name,
    fits_path,
)
from icevirt.objects.store_listings import describe_store
from icevirt.objects.stores import document_in, store_file
from icevirt.objects.web_connections import HOSTS

_FEW = 8000  # objects, which one listing returns soon
_MOST = 2000  # branches of a folder that are worth a listing each


def remote_files(
    url: str, suffixes: tuple[str, ...] = SUFFIXES, *, since: str = ""
) -> list[SourceFile]:
    """Return the files that a URL, glob or folder on a server names, in natural order.

    Args:
        url: Of a file; of a folder of a bucket, which stands for all below it; or of a bucket with
            a glob, in which ``**`` crosses folders.
        suffixes: Which files of a folder are taken.
        since: As for `list_sources`. Raises as that does.
    """
    scheme, _, rest = url.partition("://")
    key = rest.partition("/")[2]
    if scheme.lower() in ("http", "https"):
        # a question mark begins a query here, which is refused with its own remedy
        if is_pattern(key.partition("?")[0]) or not key or key.endswith("/"):
            raise InvalidInputError(
                "a web server cannot be listed",
                do="Pass its files one by one, or in a text file.",
                source=url,
            )
        return [_ask(url)]
    if is_store(key):
        return [store_file(Address.parse(url).url)]
    if is_pattern(key):
        what, found = "the pattern matches no file", _matching(url, key, since)
    else:
        what = "no such file, and no folder with NetCDF or HDF5 files"
        found = _named(url, key, suffixes, since)
    if not found:
        raise NothingListedError(what, do="Check the URL.", source=url)
    return [found[key] for key in sorted(found, key=by_names)]


def _matching(url: str, pattern: str, since: str) -> dict[str, SourceFile]:
    """Return the objects and stores of a bucket that match a pattern, by key."""
    segments = pattern.split("/")
    # the folders before the first part that is a pattern; names are no folders
    folder = "/".join(takewhile(lambda name: not is_pattern(name), segments[:-1]))
    inside = f"{folder}/" if folder else ""
    bucket = in_force().bucket(f"{url.removesuffix(pattern)}{inside}")
    names = [segment for segment in segments if segment]
    if names[-1].lower().endswith(STORE_SUFFIX) and "**" not in names:
        begin = f"{folder}/{since}".lstrip("/") if since else ""
        return _stores(bucket, folder, names[folder.count("/") + bool(folder) :], begin)
    every = _below(bucket, folder, since)
    return {path: file for path, file in every.items() if fits_path(path.split("/"), segments)}


def _named(url: str, key: str, suffixes: tuple[str, ...], since: str) -> dict[str, SourceFile]:
    """Return the object or store of a URL, or the objects in its folder, by key."""
    bucket = in_force().bucket(url)
    if key.rstrip("/").lower().endswith(STORE_SUFFIX) and (document := document_in(url)):
        return {key: store_file(document)}
    if key and not key.endswith("/"):
        try:
            return {key: _ask(url)}
        except NotFoundError:  # perhaps a folder
            pass
    folder = Address.parse(url).key.strip("/")
    every = _below(bucket, folder, since)
    repository = every.get(f"{folder}/{REPOSITORY}".lstrip("/"))
    if repository is not None and any("/snapshots/" in f"/{path}" for path in every):
        return {key: repository}
    for name in STORES:
        if (document_of := every.get(f"{folder}/{name}".lstrip("/"))) is not None:
            return {key: store_file(document_of.url)}
    return {
        path: file
        for path, file in every.items()
        if path.lower().endswith(suffixes) and "/." not in f"/{path.removeprefix(folder)}"
    }


def _stores(bucket: Bucket, folder: str, names: Sequence[str], begin: str) -> dict[str, SourceFile]:
    """Return the Zarr stores below a folder whose paths match, one listing a level."""
    first, *rest = names
    objects, folders = _level(bucket, folder)
    found: dict[str, SourceFile] = {}
    if not rest:
        found |= {p: file for p, file in objects.items() if fits_name(p.rpartition("/")[2], first)}
    for each in map(str, folders):
        inside = each.strip("/")
        if not fits_name(inside.rpartition("/")[2], first):
            continue
        if rest:
            found |= _stores(bucket, inside, rest, begin)
        elif inside >= begin and (
            document := document_in(bucket.address._replace(key=f"{inside}/").url)
        ):
            found[inside] = store_file(document)
    return found


def _ask(url: str) -> SourceFile:
    """Request the facts about one file."""
    reach, key, canonical = reach_for(url)
    try:
        answer = reach.get(key, 0, 1, lambda _meta: None)
    except ObjectNotFoundError as error:
        raise NotFoundError("no such file or directory", do="Check the URL.", source=url) from error
    return source_file(canonical, answer.meta)


def ask_again(url: str) -> SourceFile | None:
    """Return what a server says now about a file or store; None if it is gone."""
    try:
        # not `store_file`, whose listing waits for a scan in the same process
        return describe_store(url) if is_store(url) else _ask(url)
    except (NotFoundError, ScanError):
        return None


def files_in_folder(url: str) -> dict[str, SourceFile]:
    """Return the objects in a folder, and not those below it, by URL."""
    found, _ = _level(in_force().bucket(url), Address.parse(url).key.strip("/"))
    return {file.url: file for file in found.values()}


def _below(bucket: Bucket, folder: str, since: str) -> dict[str, SourceFile]:
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

    def read(store: Any) -> dict[str, SourceFile] | None:
        found: dict[str, SourceFile] = {}
        for page in obstore().list(store, prefix=folder or None, offset=before):
            found |= _files_of(bucket, (each for each in page if each["path"] >= begin))
            if len(found) >= most:
                return None
        return found

    return on_store(bucket, bucket.address._replace(key=folder).url, read)


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


def _level(bucket: Bucket, folder: str) -> tuple[dict[str, SourceFile], list[str]]:
    """Return the objects in a folder by key, and the folders in it."""
    page = on_store(
        bucket,
        bucket.address._replace(key=folder).url,
        lambda store: obstore().list_with_delimiter(store, prefix=folder or None),
    )
    return _files_of(bucket, page["objects"]), list(page["common_prefixes"])


def _files_of(bucket: Bucket, objects: Iterable[Mapping[str, Any]]) -> dict[str, SourceFile]:
    """Return what a listing says, by key."""
    found = {}
    for one in objects:
        seconds = one["last_modified"].timestamp()
        meta = Meta(size=one["size"], etag=one["e_tag"] or "", last_modified=seconds)
        url = bucket.address._replace(key=one["path"]).url
        found[one["path"]] = source_file(url, meta)
    return found
