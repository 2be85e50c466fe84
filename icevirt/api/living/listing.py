"""List the sources of a recipe again, and find which files of a dataset are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from icevirt.api.arguments import outside
from icevirt.api.pipeline.kept_recipe import names_many
from icevirt.api.sources.inputs import Inputs
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.connect.spelling import is_url
from icevirt.connect.urls import as_local_path, file_url
from icevirt.errors import InvalidInputError, NotFoundError, NothingListedError
from icevirt.objects.answers import GONE
from icevirt.objects.source_lists.listing import (
    changed_since,
    directory_of,
    is_since,
    list_sources,
)
from icevirt.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Relisted:
    """The files of an archive as they are."""

    files: Mapping[str, SourceFile]  # by URL: what the sources name, and other files of the dataset
    gone: frozenset[str]  # URLs of files of the dataset
    unlisted: int  # files of the dataset that no source names any more, and that are there


def list_again(
    storage: Storage,
    sources: Sequence[str],
    held: Mapping[str, SourceFile],
    *,
    since: str,
    asset: str | None,
) -> Relisted:
    """List sources, and look at the files of the dataset that they do not name.

    Args:
        storage: The repository, whose own files are no sources.
        sources: Paths, URLs, patterns and lists.
        held: The files of the dataset, by URL.
        since: Of prefixes whose names sort by date, look only from here on.
        asset: Of STAC items.

    Raises:
        InvalidInputError: The sources name no file at all.
        StorageError: Something cannot be listed.
    """
    found: dict[str, SourceFile] = {}
    many = [each for each in sources if names_many(each)]
    single = [each for each in sources if not names_many(each)]
    for each in many:
        found |= {file.url: file for file in _listed(each, since, asset)}
    for each in single:
        if _url(each) not in held:
            found |= {file.url: file for file in _listed(each, "", asset)}
    if found:
        found = {file.url: file for file in outside(storage, SourceFiles(found.values()))}
    folders = places_of(many)
    rest = [
        file
        for url, file in held.items()
        if url not in found and all(is_since(each, url, since) for each in folders if since)
    ]
    how = changed_since(rest)
    gone = frozenset(url for url, text in how.items() if text == GONE)
    for file in rest:
        if file.url not in how:
            found[file.url] = file
        elif file.url not in gone:
            found |= {each.url: each for each in _listed(file.url, "", None)}
    if not found or (many and not single and len(gone) == len(held) > 0):
        old = quote(next(iter(folders), "OLD"))
        raise InvalidInputError(
            "the sources of the dataset name no files",
            do="Check that the archive is there: a directory that is not mounted is empty. If it"
            f" moved, run icevirt relocate {quote(storage.url)} {old} NEW.",
            sources=list(sources)[:5],
        )
    named = {_url(each) for each in single}
    unlisted = sum(file.url not in gone and file.url not in named for file in rest)
    return Relisted(files=found, gone=gone, unlisted=unlisted)


def _listed(source: str, since: str, asset: str | None) -> Iterable[SourceFile]:
    """List one source; what is not there names nothing."""
    try:
        if source.startswith("@"):
            return Inputs(source, asset=asset).files()
        return list_sources([source], since=since)
    except (NotFoundError, NothingListedError):
        if source.startswith("@"):
            raise
        return ()


def _url(source: str) -> str:
    """Return a source as listings spell URLs."""
    if source.startswith("@") or (is_url(source) and not source.startswith("file://")):
        return source
    return file_url(as_local_path(source))


def places_of(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the directories that sources name, as URLs that end in a slash."""
    return tuple(dict.fromkeys(map(_place, sources)))


def _place(source: str) -> str:
    if source.startswith("@") or not names_many(source):
        return _url(source.removeprefix("@")).rpartition("/")[0] + "/"
    if is_url(source) and not source.startswith("file://"):
        return directory_of(source)
    return file_url(directory_of(as_local_path(source))).rstrip("/") + "/"
