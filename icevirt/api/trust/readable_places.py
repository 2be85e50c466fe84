"""Decide which files of a dataset may be looked at: those below places that the operator named.

Whoever can write a repository can write its lists of files, records, recipes and catalogs, so these
are data. A place is the operator's if the call names it, if a recipe of theirs names it, or if a
command of theirs on this machine did (`made_here`). Files elsewhere are neither opened nor
requested: a command refuses or leaves them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from icevirt.amounts import plural
from icevirt.api.sources.inputs import Inputs, each_source, names_many
from icevirt.archive.reports.build import BuildReport, Opening
from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import (
    Address,
    as_local_path,
    file_url,
    is_url,
    local_path,
    spell,
    url_of_absolute,
)
from icevirt.errors import FormatError, InvalidInputError
from icevirt.model.strings import Strings
from icevirt.objects.authorize import Prefix, object_key
from icevirt.objects.source_access import SourceAccess
from icevirt.objects.source_lists.names import directory_of
from icevirt.planning.containers import containers_for
from icevirt.planning.remedies import list_names, of_arguments
from icevirt.redaction import without_secrets
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.made_here import (
    identify,
    read_containers,
    read_places,
    remember_containers,
    remember_places,
)
from icevirt.storage.protocol import Storage

REBUILD = write_remedy(
    "Build again from all files: ",
    write_code('icevirt.build(files, repo, mode="w")', "icevirt build SOURCES... REPO --mode w"),
    ".",
)

_ANYONE = "anyone who can write the repository could have chosen them"
_SHOWN = 5  # files in a message


@dataclass(frozen=True, slots=True)
class ReadablePlaces:
    """Places below which a command may look at files."""

    prefixes: tuple[str, ...]  # URLs that end in a slash

    @classmethod
    def of(cls, *given: Iterable[str]) -> ReadablePlaces:
        """Return places that come from several words of the operator."""
        return cls(tuple(dict.fromkeys(each for some in given for each in some)))

    def covers(self, place: str) -> bool:
        """Say whether a directory lies in one of these, or is one. Looks at nothing."""
        return place.startswith(self.prefixes)

    def elsewhere(self, files: Iterable[SourceFile], *, repo: str) -> tuple[SourceFile, ...]:
        """Return the files that may not be looked at.

        Raises:
            FormatError: A URL is spelled as no listing spells it.
        """
        is_link = cache(lambda folder: os.path.realpath(folder) != folder)  # looks at each once
        found = []
        for file in files:
            if not is_plain(file.url):
                raise _odd([file.url], repo)
            is_inside = file.url.startswith(self.prefixes)
            if is_inside and file.url.startswith("file://"):  # a link may lead elsewhere
                path = local_path(file.url)
                is_inside = not (is_link(os.path.dirname(path)) or os.path.islink(path))
            if not is_inside:
                found.append(file)
        return tuple(found)

    def refuse_others(self, files: Iterable[SourceFile], *, repo: str, what: str) -> None:
        """Refuse files of a dataset that may not be looked at.

        Args:
            files: Of the dataset.
            repo: URL of the repository.
            what: The call, for the message.

        Raises:
            InvalidInputError: Some lie elsewhere; the message holds the prefix that would do.
            FormatError: A URL is spelled as no listing spells it.
        """
        if others := self.elsewhere(files, repo=repo):
            raise self.refusal(others, repo=repo, what=what)

    def refusal(self, others: Sequence[SourceFile], *, repo: str, what: str) -> Exception:
        """Return the refusal of files that may not be looked at; see `refuse_others`."""
        urls = list(dict.fromkeys(file.url for file in others))
        if linked := [url for url in urls if url.startswith(self.prefixes)]:
            return _odd(linked, repo)
        price = f"they may be read for this {what}"
        return InvalidInputError(
            f"the dataset holds {plural(len(urls), 'file')} elsewhere than those that you name",
            fixes=[of_arguments({"authorize": common(urls)}, price)],
            do=f"Check these URLs: {_ANYONE}.",
            repo=repo,
            files=urls[:_SHOWN],
        )


def remark_on_elsewhere(urls: Sequence[str]) -> str:
    """Return a remark on files of a dataset that a call did not look at."""
    shown = list_names([without_secrets(each) for each in urls], _SHOWN)
    price = "if you trust them, they are looked at too"
    return (
        f"{plural(len(urls), 'file')} of the dataset elsewhere than you named stayed as they were,"
        f" and nothing looked at them: {shown}; {_ANYONE};"
        f" {of_arguments({'authorize': common(urls)}, price)}"
    )


def _odd(urls: Sequence[str], repo: str) -> FormatError:
    return FormatError(
        "the list of a dataset's files holds URLs that no build writes",
        do=REBUILD,
        repo=repo,
        files=list(urls[:_SHOWN]),
    )


# -- what the operator named ---------------------------------------------------------------------


def places_named(sources: Any, inputs: Inputs | None = None) -> tuple[str, ...]:
    """Return the directories that sources name, as URLs that end in a slash.

    Of a file that is its directory, of a pattern the one that it begins with. A list says only
    once it was read which files it names.

    Args:
        sources: What the operator passed.
        inputs: The same, listed: the directories of files that none of the sources names itself
            count too, like those of lists.
    """
    found = []
    for each in each_source(sources):
        text = os.fspath(each) if isinstance(each, os.PathLike) else each
        if isinstance(text, str) and text != "-" and not text.startswith("@"):
            found.append(place_of(text))
    named = tuple(dict.fromkeys(found))
    beside = () if inputs is None else inputs.folders()
    return (*named, *(each for each in beside if not each.startswith(named)))


def place_of(source: str) -> str:
    """Return the directory that a source stands for, or that a single file lies in."""
    if not names_many(source):
        return source_url(source).rpartition("/")[0] + "/"
    return below(source)


def below(source: str) -> str:
    """Return the directory below which all lies that a source can stand for, as a URL.

    Of what is no pattern that is the source itself. Nothing is looked at but links.
    """
    text = spell(source)
    if is_url(text) and not text.startswith("file://"):
        return directory_of(text)
    return file_url(directory_of(as_local_path(text))).rstrip("/") + "/"


def source_url(source: str) -> str:
    """Return a source as listings spell URLs."""
    if source.startswith("@") or (is_url(source) and not source.startswith("file://")):
        return source
    return file_url(as_local_path(source))


def own_entries(entries: Iterable[Prefix], places: Iterable[str], repo: str) -> tuple[Prefix, ...]:
    """Return the containers of a repository that lie where the operator's own files do.

    A build takes the common directory of files for a container, so those of the places count, and
    what this user's builds referred to.

    Args:
        entries: Prefixes that the repository names, some with a server.
        places: URLs that end in a slash.
        repo: What the repository is remembered by.
    """
    known = [each if isinstance(each, str) else each[0] for each in read_containers(repo)]
    named = [each for each in dict.fromkeys(places) if each.rstrip("/") not in ("", "file:")]
    try:
        common_ones = [each.url_prefix for each in containers_for(Strings.of(named))]
    except InvalidInputError:  # of a server that no container is for
        common_ones = []
    own = ReadablePlaces.of(named, known, common_ones)
    return tuple(each for each in entries if own.covers(each if isinstance(each, str) else each[0]))


def remember_named(repo: str, containers: Iterable[Prefix], places: Iterable[str]) -> None:
    """Remember the places that this user named, and of a repository's containers those around them.

    Others may have given the repository containers as wide as they like: these are not remembered.
    """
    remember_places(repo, places)
    remember_containers(repo, own_entries(containers, read_places(repo), repo))


def opening_of(
    report: BuildReport, storage: Storage, reach: SourceAccess, places: Iterable[str]
) -> Opening:
    """Return what opens the dataset of a report: below containers of the operator's own files.

    Args:
        report: What it planned itself counts, and of other containers of the repository those that
            are the operator's.
        storage: The repository.
        reach: How the call reached files.
        places: That the operator named, URLs that end in a slash.
    """
    planned = report.opening.prefixes
    read = own_or_planned(report.containers, planned=planned, places=places, repo=identify(storage))
    return Opening(storage, reach.authorization(read))


def own_or_planned(
    entries: Iterable[Prefix], *, planned: Collection[Prefix], places: Iterable[str], repo: str
) -> list[Prefix]:
    """Return the containers that a call planned itself, and of others the operator's own."""
    known = [*entries]
    own = own_entries(known, places, repo)
    return [each for each in known if each in planned or each in own]


# -- URLs ----------------------------------------------------------------------------------------


def is_plain(url: str) -> bool:
    """Say whether a URL is spelled as listings spell it. Pure."""
    try:
        if url.startswith("file://"):
            path = local_path(url)
            return "" not in path.split("/")[1:] and url_of_absolute(path) == url
        object_key(url, has_bucket=True)
        return Address.parse(url).url == url
    except InvalidInputError:
        return False


def common(urls: Iterable[str]) -> list[str]:
    """Return the directory that the URLs of each server or bucket have in common.

    Of this machine there is one for each top directory: nobody should be asked for the whole disk.
    """
    found: dict[str, list[str]] = {}
    for url in urls:
        scheme, _, rest = url.partition("://")
        host, *folder = rest.split("/")[:-1]
        root = f"{scheme}://{host}/{folder[0] if scheme == 'file' and folder else ''}"
        both = zip(found.get(root, folder), folder, strict=False)
        pairs = takewhile(lambda pair: pair[0] == pair[1], both)
        found[root] = [name for name, _ in pairs]
    heads = ((root.split("/", 3), parts) for root, parts in found.items())
    return sorted("/".join([*head[:3], *parts, ""]) for head, parts in heads)
