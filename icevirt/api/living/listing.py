"""List the sources of a recipe again, and find which files of a dataset are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from icevirt.api.arguments import outside
from icevirt.api.pipeline.kept_recipe import names_many
from icevirt.api.sources.inputs import Inputs
from icevirt.api.trust.readable_places import ReadablePlaces, place_of, source_url
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.errors import InvalidInputError, NotFoundError, NothingListedError
from icevirt.objects.answers import GONE
from icevirt.objects.source_lists.listing import (
    changed_since,
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
    elsewhere: frozenset[str] = frozenset()  # URLs of files of the dataset that were not looked at


def list_again(
    storage: Storage,
    sources: Sequence[str],
    held: Mapping[str, SourceFile],
    *,
    places: ReadablePlaces,
    is_trusted: bool,
    since: str,
    asset: str | None,
) -> Relisted:
    """List sources, and look at the files of the dataset that they do not name.

    Args:
        storage: The repository, whose own files are no sources.
        sources: Paths, URLs, patterns and lists.
        held: The files of the dataset, by URL.
        places: Where files of the dataset may be looked at.
        is_trusted: Whether the operator named the sources, and with them whatever they lead to.
        since: Of prefixes whose names sort by date, look only from here on.
        asset: Of STAC items.

    Raises:
        InvalidInputError: The sources name no file, or sources of others lead elsewhere.
        StorageError: Something cannot be listed.
    """
    found: dict[str, SourceFile] = {}
    many = [each for each in sources if names_many(each)]
    single = [each for each in sources if not names_many(each)]
    for each in many:
        found |= {file.url: file for file in _listed(each, since, asset)}
    for each in single:
        if source_url(each) not in held:
            found |= {file.url: file for file in _listed(each, "", asset)}
    if found:
        found = {file.url: file for file in outside(storage, SourceFiles(found.values()))}
    if is_trusted:
        led = (f"{url.rpartition('/')[0]}/" for url in found)
        places = ReadablePlaces.of(places.prefixes, led)
    else:
        places.refuse_others(found.values(), repo=storage.url, what="update")
    unnamed = [file for url, file in held.items() if url not in found]
    elsewhere = frozenset(file.url for file in places.elsewhere(unnamed, repo=storage.url))
    folders = [] if not since else [place_of(each) for each in many if not each.startswith("@")]
    rest = [
        file
        for file in unnamed
        if file.url not in elsewhere and all(is_since(each, file.url, since) for each in folders)
    ]
    how = changed_since(rest)
    gone = frozenset(url for url, text in how.items() if text == GONE)
    for file in rest:
        if file.url not in how:
            found[file.url] = file
        elif file.url not in gone:
            again = _listed(file.url, "", None)  # of a name like a pattern there may be others
            found |= {each.url: each for each in again if each.url == file.url}
    if not found or (many and not single and 0 < len(gone) == len(held) - len(elsewhere)):
        old = quote(next((place_of(each) for each in many if not each.startswith("@")), "OLD"))
        raise InvalidInputError(
            "the sources of the dataset name no files",
            do="Check that the archive is there: a directory that is not mounted is empty. If it"
            f" moved, run icevirt relocate {quote(storage.url)} {old} NEW.",
            sources=list(sources)[:5],
        )
    named = {source_url(each) for each in single}
    unlisted = sum(file.url not in gone and file.url not in named for file in rest)
    return Relisted(files=found, gone=gone, unlisted=unlisted, elsewhere=elsewhere)


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
