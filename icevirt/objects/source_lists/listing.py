"""List the files that sources name, on this machine and on servers, each with size and checksum."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import as_local_path, file_url, is_url, spell
from icevirt.errors import InvalidInputError
from icevirt.objects.answers import change
from icevirt.objects.source import is_store, local_file
from icevirt.objects.source_access import carrying, in_force
from icevirt.objects.source_lists.local_listing import local_paths, status_of
from icevirt.objects.source_lists.names import is_since
from icevirt.objects.source_lists.remote_listing import ask_again, files_in_folder, remote_files
from icevirt.objects.stores import store_file
from icevirt.objects.web_connections import HOSTS

_NAME = "Name files, directories or globs to build from."


def list_sources(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, since: str = ""
) -> tuple[SourceFile, ...]:
    """List the files that globs, directories, paths and URLs name, in that order.

    Directories are searched with everything below them, for the usual suffixes, and for files
    without any that begin as such files do. ``**`` in a glob crosses directories. Both stand for
    their files in natural order of the names. Symbolic links are followed: the file they lead to
    is what is referenced, their own name is what is sorted.
    A file that is named twice, or by two hard links, counts at its first place.

    Args:
        sources: What names the files.
        since: Of directories, prefixes and globs, take only the files whose path below the
            directory does not sort before this text; buckets are listed from there.

    Raises:
        InvalidInputError: Nothing was named, or a file cannot be referenced.
        NothingListedError: Nothing matched.
        NotFoundError: A named file or directory does not exist.
        ScanError: A server sends neither ETag nor Last-Modified: changes would go unnoticed.
        StorageError: A file cannot be looked at, or a directory cannot be read.
    """
    if isinstance(sources, str | bytes | os.PathLike) or not isinstance(sources, Iterable):
        sources = [sources]
    named = [_text(each) for each in sources]
    if not named:
        raise InvalidInputError("no sources", do=_NAME)
    found: dict[str, SourceFile] = {}
    identities = set()
    for each in named:
        if is_url(each) and not each.startswith("file://"):
            for file in remote_files(each, since=since):
                found.setdefault(file.url, file)
            continue
        source, paths = as_local_path(each), local_paths(each)
        if since and paths != [source]:
            paths = [path for path in paths if is_since(source, path, since)]
        for path in paths:
            facts = status_of(path)
            if not stat.S_ISREG(facts.st_mode):
                what = "a source is not a regular file"
                raise InvalidInputError(what, do="Leave it out.", path=path)
            # size and time as well: some network file systems give one inode number to two files
            identity = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if identity not in identities:
                file = _local(path, facts)
                found.setdefault(file.url, file)
            identities.add(identity)
    return tuple(found.values())


def _local(path: str, facts: os.stat_result) -> SourceFile:
    url = file_url(path)
    return store_file(url) if is_store(url) else local_file(url, path, facts)


def find_changes(files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the URLs of files whose size, etag or time is no longer what it was, and how.

    Folders of buckets are listed, files of web servers asked for side by side.

    Raises:
        StorageError: A server refused, or did not answer.
    """
    pairs: list[tuple[SourceFile | None, SourceFile]] = []
    folders: dict[str, list[SourceFile]] = defaultdict(list)
    single = []
    for file in files:
        if file.is_store:
            single.append(file)
        elif file.url.startswith("file://") and not file.etag:  # else as stores name it
            pairs.append((_look(file.url), file))
        elif file.url.startswith(("http://", "https://")) or in_force().way_to(file.url):
            single.append(file)
        else:
            folders[file.url.rpartition("/")[0] + "/"].append(file)
    listings = [
        HOSTS.submit(_host(folder), carrying(partial(files_in_folder, folder)))
        for folder in folders
    ]
    for listing, members in zip(listings, folders.values(), strict=True):
        now = listing.result()
        pairs += [(now.get(file.url), file) for file in members]
    asking = [HOSTS.submit(_host(one.url), carrying(partial(ask_again, one.url))) for one in single]
    pairs += [(answer.result(), file) for file, answer in zip(single, asking, strict=True)]
    return {file.url: how for now, file in pairs if (how := change(now, file)) is not None}


def _host(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _look(url: str) -> SourceFile | None:
    try:
        return SourceFile.of_status(url, os.stat(as_local_path(url)))
    except OSError:
        return None


def _text(source: object) -> str:
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not isinstance(text, str):
        kind = type(source).__name__
        raise InvalidInputError(f"a source must be a path or a URL, not {kind}", do=_NAME)
    if not text.strip() or "\0" in text:
        raise InvalidInputError("this is not a valid source", do=_NAME, source=text)
    return spell(text)
