"""Keep which files a dataset is made of, and find the new and the changed among others.

Objects of the repository say so, and every writer of the repository can change them. So the list
is compared with its digest in the snapshot; `readable_places` says which files may be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from icevirt.api.choices import outside
from icevirt.api.dataset.records import BUILD_ID, digest_of, identify_files, options_of
from icevirt.api.sources.inputs import Inputs
from icevirt.api.trust.readable_places import REBUILD
from icevirt.archive.scanned import SourceFile, SourceFiles
from icevirt.catalog.listings import FileListing, Known, look_up, read_listing, write_listing
from icevirt.catalog.parts import read_scans
from icevirt.errors import (
    FormatError,
    InvalidInputError,
    ObjectNotFoundError,
    SourcesChangedError,
    StorageError,
)
from icevirt.objects.answers import change
from icevirt.planning.remedies import build_fix, of_arguments
from icevirt.repo.layout import WORK
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.protocol import Below, Storage

WORK_FOLDER = f"{WORK[0]}/"
"""Where a repository holds what is icevirt's alone."""

CATALOG = f"{WORK_FOLDER}catalog/"
"""Where a repository keeps what was scanned of the files of its datasets."""

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesHeld:
    """Files that a dataset holds when more are appended; they are not looked at again."""

    listing: FileListing
    bad: int  # of them, which were left out
    again: frozenset[str] = frozenset()  # URLs of those that are scanned as they are now
    urls: frozenset[str] = field(init=False)  # of those that stay as they were

    def __post_init__(self) -> None:
        """Look up which stay."""
        stay = frozenset(url for url in self.listing.files.urls if url not in self.again)
        object.__setattr__(self, "urls", stay)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.listing.files)

    def others(self, files: Iterable[SourceFile]) -> SourceFiles:
        """Return the files that are none of these."""
        return SourceFiles(file for file in files if file.url not in self.urls)


def keep_files(
    storage: Storage, name: str, files: Sequence[SourceFile], held: FilesHeld | None = None
) -> tuple[tuple[str, int], ...]:
    """Write which files a dataset is made of, before the commit that says so.

    Returns the pieces of the list: the name of each, and the row that it begins with.
    """
    # a list without pieces is none that was read, but a part of one
    is_new = held is None or held.again or not held.listing.pieces
    grown = None if is_new or held is None else held.listing
    if grown is not None and len(grown.files) == len(files):
        if grown.pieces[-1][0] == name:
            return grown.pieces  # the same files, whose list is there
        grown = None  # an append called the list otherwise
    return write_listing(Below(storage, WORK_FOLDER), name, files, grown=grown)


def files_of_build(storage: Storage, record: Mapping[str, Any]) -> FileListing:
    """Return the files that a build was made of, in their order.

    Raises:
        InvalidInputError: The repository does not say.
        FormatError: It says something else than the snapshot of the build.
    """
    name = str(record.get("listing"))
    try:
        found = read_listing(Below(storage, WORK_FOLDER), _sound(name))
    except FormatError as error:
        raise FormatError(
            "the list of a dataset's files is damaged", do=REBUILD, repo=storage.url, **error.facts
        ) from error
    except ObjectNotFoundError as error:
        raise InvalidInputError(
            "the repository does not say which files its dataset is made of",
            fixes=[build_fix("writes the list, from all files that you name", mode="w")],
            do="An earlier version of icevirt built it, or the list was deleted.",
            repo=storage.url,
            missing=error.facts.get("path"),
        ) from error
    whole, count = found.whole
    if whole and digest_of(identify_files(found.files[at] for at in range(count))) != whole:
        raise FormatError(
            "the list of a dataset's files is not the one that its snapshot names",
            do=REBUILD,
            repo=storage.url,
            listing=name,
        )
    return found


def _sound(name: str) -> str:
    if not BUILD_ID.fullmatch(name):
        raise ObjectNotFoundError("the snapshot names no list of files", path=name)
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Files that a caller named, compared with those of a dataset."""

    new: tuple[SourceFile, ...]
    known: int
    changed: Mapping[str, str]  # how, by URL
    now: tuple[SourceFile, ...]  # those that changed, as they are
    excluded: int = 0  # that the dataset does not hold, and must not


def compare(
    given: Iterable[SourceFile],
    held: Mapping[str, SourceFile],
    bad: frozenset[str],
    excluded: frozenset[str] = frozenset(),
) -> Compared:
    """Compare files with those of a dataset; a bad file that was repaired counts as new.

    Excluded files that it does not hold are none of these.
    """
    new, changed, now, known, left = [], {}, [], 0, 0
    for file in given:
        before = held.get(file.url)
        if before is None and file.url in excluded:
            left += 1
        elif before is None:
            new.append(file)
        elif (how := difference(file, before)) is None:
            known += 1
        else:
            now.append(file)
            if file.url not in bad:
                changed[file.url] = how
    return Compared(new=tuple(new), known=known, changed=changed, now=tuple(now), excluded=left)


def compare_by_index(
    storage: Storage, pieces: Sequence[tuple[str, int]], count: int, given: Sequence[SourceFile]
) -> Compared | None:
    """Compare files with those of a dataset without reading which these are.

    Args:
        storage: Of the repository.
        pieces: Of the list of the dataset's files: name of each, and the row it begins with.
        count: How many files it has.
        given: The files to compare.

    Returns:
        None if the list has to be read: a file changed, was bad, or there is no index.
    """
    ends = [begin for _, begin in pieces[1:]] + [count]
    counts = [(name, end - begin) for (name, begin), end in zip(pieces, ends, strict=True)]
    try:
        found = look_up(Below(storage, f"{WORK[0]}/"), counts, given)
    except (ObjectNotFoundError, StorageError, FormatError):
        return None
    if Known.perhaps_changed in found:
        return None
    new = tuple(file for file, known in zip(given, found, strict=True) if known is Known.no)
    return Compared(new=new, known=len(given) - len(new), changed={}, now=())


def difference(now: SourceFile, before: SourceFile) -> str | None:
    """Say how a file changed. Servers say times to the second or finer, as they are asked."""
    is_fine = now.last_modified % _SECOND and before.last_modified % _SECOND
    is_coarse = not (is_fine or now.url.startswith("file://"))
    if is_coarse and now.last_modified // _SECOND == before.last_modified // _SECOND:
        before = SourceFile(
            url=now.url, size=before.size, etag=before.etag, last_modified=now.last_modified
        )
    return change(now, before)


def merge(
    held: Iterable[SourceFile], now: Iterable[SourceFile], new: Iterable[SourceFile]
) -> SourceFiles:
    """Return the files of a dataset that grows: those that are scanned again keep their place."""
    current = {file.url: file for file in now}
    return SourceFiles(chain((current.get(file.url, file) for file in held), new))


type OnChanged = Literal["refuse", "replace", "keep"]

_SHOWN = 5  # files in a message


@dataclass(slots=True, kw_only=True)
class GrowingSources:
    """The files of a dataset and those that are new, as sources of a build."""

    storage: Storage
    on_changed: OnChanged
    inputs: Inputs | None
    listing: FileListing
    bad: frozenset[str]
    excluded: frozenset[str] = frozenset()  # that must not be added
    _found: Compared | None = None

    def look(self) -> Compared:
        """List the files that the caller named, and compare them with the files of the dataset.

        Raises:
            SourcesChangedError: Some changed, and the caller did not say what is to happen.
        """
        given = () if self.inputs is None else outside(self.storage, self.inputs.files())
        held = {file.url: file for file in self.listing.files}
        found = compare(given, held, self.bad, self.excluded)
        if found.changed and self.on_changed == "refuse":
            raise _refusal_of(found, len(held))
        self._found = found
        return found

    def again(self, found: Compared) -> tuple[SourceFile, ...]:
        """Return the files that the dataset held otherwise, and that are scanned again."""
        if self.on_changed == "replace":
            return found.now
        return tuple(file for file in found.now if file.url not in found.changed)

    def held(self, found: Compared) -> FilesHeld:
        """Return which files the dataset holds."""
        again = frozenset(file.url for file in self.again(found))
        return FilesHeld(listing=self.listing, bad=len(self.bad - again), again=again)

    def files(self) -> SourceFiles:
        """Return all files; a second time, those that the caller named are looked at again."""
        found = self.look() if self._found is None else self._found
        self._found = None
        return merge(self.listing.files, self.again(found), found.new)


def _refusal_of(found: Compared, held: int) -> SourcesChangedError:
    return SourcesChangedError(
        f"{len(found.changed)} of the dataset's {held:,} files changed since it was built",
        fixes=[
            of_arguments({"on_changed": "replace"}, "scans them again, and replaces their values"),
            of_arguments(
                {"on_changed": "keep"},
                "appends the others; readers refuse what refers to these",
            ),
        ],
        do="Nothing was appended. You can also build again from all files:"
        ' icevirt.build(files, repo, mode="w") (icevirt build SOURCES... REPO --mode w).',
        files=dict(list(found.changed.items())[:_SHOWN]),
    )


def identities_in(catalog_: Storage, options: ScannerOptions) -> tuple[str, ...]:
    """Return the scans of a catalog that had these options, whatever the versions of scanners."""
    asked = json.loads(json.dumps(options_of(options)["options"]))
    try:
        there = read_scans(catalog_)
    except FormatError:
        return ()
    return tuple(sorted(name for name, scan in there.items() if scan["options"] == asked))
