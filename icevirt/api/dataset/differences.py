"""Find and decide what an update does: list an archive again, and compare it with the dataset."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, Literal

from icevirt.api.choices import outside
from icevirt.api.dataset.change import Dataset
from icevirt.api.dataset.files_held import FileDifferences, compare
from icevirt.api.dataset.recipes import Followed, choose
from icevirt.api.recorded import Continued, continue_options
from icevirt.api.sources.inputs import Inputs, names_many
from icevirt.api.trust.readable_places import ReadablePlaces, place_of, source_url
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.errors import InvalidInputError, NotFoundError, NothingListedError
from icevirt.objects.answers import GONE
from icevirt.objects.source_lists.listing import find_changes, list_sources
from icevirt.objects.source_lists.names import is_since
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.scan.options import bad_files_allowed
from icevirt.storage.protocol import Storage

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


# -- what is updated ------------------------------------------------------------------------------

type Vanished = Literal["refuse", "missing", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCall:
    """What the caller asked for."""

    storage: Storage
    catalog: Storage
    group: str
    branch: str
    recipe: str | os.PathLike[str] | None = None
    trusted: str | None = None
    authorize: tuple[str, ...] = ()
    since: str = ""
    settle: float = 0.0  # seconds
    vanished: Vanished = "refuse"
    max_vanished: int | str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    rescan: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    drop_others: bool = False
    dry_run: bool = False
    message: str | None = None
    access: Mapping[str, Any] = field(default_factory=dict)


def look(call: UpdateCall) -> Dataset:
    """Return the dataset that is to be updated.

    Raises:
        InvalidInputError: No build made it.
        RepositoryNotFoundError: Nor is there a repository.
    """
    found = Dataset.look(call.storage, branch=call.branch, group=call.group, catalog=call.catalog)
    if not found.record:
        RepoInfoFile(call.storage).read()
        raise InvalidInputError(
            "no build made this group, so there is nothing to update",
            do=write_remedy(
                "Build it once: ", write_code(*["icevirt build SOURCES REPO"] * 2), "."
            ),
            repo=call.storage.url,
            group=call.group,
            branch=call.branch,
        )
    return found


def follow(call: UpdateCall, dataset: Dataset) -> Followed:
    """Return the recipe that a call goes by. Raises as `recipes.choose`."""
    return choose(
        call.storage,
        dataset.record,
        group=call.group,
        recipe=call.recipe,
        trusted=call.trusted,
        authorize=call.authorize,
        files=lambda: dataset.listing.files.urls,
    )


def options_of(call: UpdateCall, dataset: Dataset, how: Followed) -> Continued:
    """Return the options that the last build recorded, changed by the recipe.

    Raises:
        InvalidInputError: They contradict one another.
    """
    return continue_options(
        call.storage, dataset.record, concat_dim=how.concat_dim, takes_options=True, **how.options
    )


def list_and_compare(
    call: UpdateCall,
    dataset: Dataset,
    how: Followed,
    options: Continued,
    unsettled: frozenset[str] = frozenset(),
) -> tuple[Relisted, FileDifferences]:
    """List the sources of a dataset again, and compare them with its files.

    Raises:
        InvalidInputError: Files lie elsewhere than was named.
    """
    held = {file.url: file for file in dataset.listing.files}
    relisted = list_again(
        call.storage,
        how.sources,
        held,
        places=how.places,
        is_trusted=how.is_trusted,
        since=call.since,
        asset=options.choices.scan.asset,
    )
    is_young = young(time.time_ns(), call.settle)
    found = compare(
        relisted.files.values(),
        held,
        gone=relisted.gone,
        bad=dataset.bad,
        absent=dataset.absent,
        excluded=dataset.excluded,
        is_young=lambda file: file.url in unsettled or is_young(file),
    )
    found = apply_rules(found, held, dataset.bad | dataset.absent, call.rules)
    return relisted, count_rescanned(found, relisted.files, held, call.rescan)


# -- files that are still written ----------------------------------------------------------------


def seconds_of(given: str | float | None) -> float:
    """Return a time span like ``60``, ``"60s"``, ``"10m"`` or ``"2h"`` in seconds.

    Raises:
        InvalidInputError: It is none.
    """
    found = re.fullmatch(
        r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", str(0 if given is None else given).lower()
    )
    if found is None or found[2] not in _UNITS:
        raise InvalidInputError(
            "not a span of time", do='Write it like "60s", "10m" or "2h".', given=given
        )
    return float(found[1]) * _UNITS[found[2]]


def young(now: int, settle: float) -> Callable[[SourceFile], bool]:
    """Return what says whether a file changed less than ``settle`` seconds ago.

    A time that is more than a day ahead is a wrong clock, and no young file.

    Args:
        now: Nanoseconds since 1970.
        settle: Seconds.
    """

    def is_young(file: SourceFile) -> bool:
        age = now - file.last_modified
        return settle > 0 and -_DAY < age < settle * _SECOND

    return is_young


# -- files that are gone -------------------------------------------------------------------------


def refuse_many(vanished: int, held: int, allowed: int | str | None) -> None:
    """Refuse an update that would take away much of a dataset: its archive may not be mounted.

    Args:
        vanished: How many files are gone.
        held: How many files the dataset holds.
        allowed: How many may be gone, a number or a share; None for one file, or 1%.

    Raises:
        InvalidInputError: More are gone.
    """
    most = max(1, held // 100) if allowed is None else bad_files_allowed(allowed, held)
    if vanished > most:
        raise InvalidInputError(
            f"{vanished:,} of the dataset's {held:,} files are gone, more than the {most:,} that"
            " may be",
            do=write_remedy(
                "Check that the archive is there as a whole. If they were deleted on"
                " purpose, say how many may be gone: ",
                write_code(f"max_vanished={vanished}", f"--max-vanished {vanished}"),
                ', or "5%".',
            ),
        )


# -- provisional files ---------------------------------------------------------------------------


def find_superseded(
    urls: Iterable[str], final: Iterable[str], rules: Mapping[str, str]
) -> dict[str, str]:
    """Return the provisional files that have a final version, with its URL.

    Args:
        urls: Of all files.
        final: URLs of those of them that can be final versions.
        rules: Patterns of names of provisional files, by the pattern of their final versions. What
            the wildcards stand for must be equal. A pattern without a slash is for files of one
            directory.
    """
    finals: dict[tuple[int, str], str] = {}
    patterns = [(_Pattern.of(one), _Pattern.of(other)) for one, other in rules.items()]
    for url in final:
        for number, (pattern, _) in enumerate(patterns):
            if (key := pattern.key(url)) is not None:
                finals[number, key] = url
    found = {}
    for url in urls:
        for number, (_, pattern) in enumerate(patterns):
            key = pattern.key(url)
            if key is not None and (better := finals.get((number, key), url)) != url:
                found[url] = better
    return found


def rules_of(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return rules for `superseded`, checked.

    Raises:
        InvalidInputError: A rule is none.
    """
    rules = dict(given or {})
    for one, other in rules.items():
        if (
            _WILD.sub("", one) == one
            or sorted(_WILD.findall(one)) != sorted(_WILD.findall(other))
            or ("/" in one) != ("/" in other)
        ):
            raise InvalidInputError(
                "not a rule for provisional files",
                do=write_remedy(
                    "Name two patterns with the same wildcards: ",
                    write_code('{"era5_*.nc": "era5t_*.nc"}', "--replaces 'era5_*.nc=era5t_*.nc'"),
                    ".",
                ),
                final=one,
                provisional=other,
            )
    return rules


def apply_rules(
    found: FileDifferences,
    held: Mapping[str, SourceFile],
    out: frozenset[str],
    rules: Mapping[str, str],
) -> FileDifferences:
    """Leave out provisional files whose final versions are known."""
    if not rules:
        return found
    gone = {file.url for file in found.vanished}
    finals = [url for url in held if url not in out and url not in gone]
    urls = [*held, *(file.url for file in found.candidates)]
    better = find_superseded(urls, finals, rules)
    coming = find_superseded(urls, [*finals, *(file.url for file in found.added)], rules)
    return replace(
        found,
        added=tuple(file for file in found.added if file.url not in better),
        corrected=tuple(file for file in found.corrected if file.url not in better),
        waiting=tuple(file for file in found.waiting if file.url not in better),
        vanished=tuple(file for file in found.vanished if file.url not in coming),
    )


def count_rescanned(
    found: FileDifferences,
    listed: Mapping[str, SourceFile],
    held: Mapping[str, SourceFile],
    patterns: Sequence[str],
) -> FileDifferences:
    """Count files that are to be scanned again among the corrected ones."""
    there = {file.url for file in (*found.candidates, *found.waiting)}
    more = tuple(
        file
        for url, file in listed.items()
        if url in held and url not in there and is_named(url, patterns)
    )
    return replace(
        found,
        corrected=(*found.corrected, *more),
        rescanned=more,
        known=found.known - len(more),
    )


def is_named(url: str, patterns: Sequence[str]) -> bool:
    """Say whether one of some patterns is for the name of a file, or for the end of its URL."""
    name = url.rpartition("/")[2]
    return any(
        fnmatch.fnmatchcase(url if "/" in each else name, f"*{each}" if "/" in each else each)
        for each in patterns
    )


_WILD = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern of names, whose wildcards keep what they stand for."""

    regex: re.Pattern[str]
    in_folder: bool  # whether it is for names in one directory

    @classmethod
    def of(cls, pattern: str) -> _Pattern:
        made = "".join(_pieces(pattern))
        inside = "/" not in pattern
        return cls(re.compile(made if inside else f"(?:.*/)?{made}", re.DOTALL), inside)

    def key(self, url: str) -> str | None:
        """Return what the wildcards stand for; None for another name."""
        folder, _, name = url.rpartition("/")
        found = self.regex.fullmatch(name if self.in_folder else url)
        if found is None:
            return None
        return "\0".join([folder if self.in_folder else "", *found.groups()])


def _pieces(pattern: str) -> Iterator[str]:
    for letter in pattern:
        yield {"*": "([^/]*)", "?": "([^/])"}.get(letter) or re.escape(letter)


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
        found |= {file.url: file for file in _list_source(each, since, asset)}
    for each in single:
        if source_url(each) not in held:
            found |= {file.url: file for file in _list_source(each, "", asset)}
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
    how = find_changes(rest)
    gone = frozenset(url for url, text in how.items() if text == GONE)
    for file in rest:
        if file.url not in how:
            found[file.url] = file
        elif file.url not in gone:
            again = _list_source(file.url, "", None)  # of a name like a pattern there may be others
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


def _list_source(source: str, since: str, asset: str | None) -> Iterable[SourceFile]:
    """List one source; what is not there names nothing."""
    try:
        if source.startswith("@"):
            return Inputs(source, asset=asset).files()
        return list_sources([source], since=since)
    except (NotFoundError, NothingListedError):
        if source.startswith("@"):
            raise
        return ()
