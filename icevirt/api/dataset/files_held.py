"""Keep which files a dataset is made of, and find the new and the changed among others.

Objects of the repository say so, and every writer of the repository can change them. So the list
is compared with its digest in the snapshot; `readable_places` says which files may be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from icevirt.api.dataset.records import digest_of, identify_files, options_of
from icevirt.api.trust.readable_places import REBUILD
from icevirt.archive.sources import SourceFile
from icevirt.catalog.listings import FileListing, Known, look_up, read_listing, write_listing
from icevirt.catalog.parts import read_scans
from icevirt.errors import (
    FormatError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
)
from icevirt.objects.answers import change
from icevirt.planning.records import BUILD_ID
from icevirt.planning.remedies import build_fix
from icevirt.repo.kept_objects import KeptObjects
from icevirt.repo.layout import WORK
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.protocol import Below, Storage

WORK_FOLDER = f"{WORK[0]}/"
"""Where a repository holds what is icevirt's alone."""

CATALOG = f"{WORK_FOLDER}catalog/"
"""Where a repository keeps what was scanned of the files of its datasets."""

type OnChanged = Literal["refuse", "replace", "keep"]

_SECOND = 1_000_000_000


def keep_files(
    storage: Storage, name: str, files: Sequence[SourceFile], kept: FileListing
) -> tuple[tuple[str, int], ...]:
    """Write which files a dataset is made of, before the commit that says so.

    Args:
        storage: The root of the repository.
        name: A digest of the files.
        files: All of them.
        kept: The files that stay of the list before. If all stay, the list itself goes on.

    Returns:
        The pieces of the list: the name of each, and the row that it begins with.
    """
    grown = kept if kept.pieces else None
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
        found = read_listing(KeptObjects(storage, WORK_FOLDER), _sound(name))
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
class FileDifferences:
    """How files differ from those that a dataset is made of."""

    added: tuple[SourceFile, ...] = ()
    corrected: tuple[SourceFile, ...] = ()  # as they are now
    vanished: tuple[SourceFile, ...] = ()  # as the dataset holds them
    waiting: tuple[SourceFile, ...] = ()  # new or corrected, and perhaps not written to the end
    known: int = 0  # files that the dataset holds as they are
    excluded: int = 0  # that the dataset does not hold, and must not
    rescanned: tuple[SourceFile, ...] = ()  # of the corrected ones: by request alone

    @property
    def candidates(self) -> tuple[SourceFile, ...]:
        """The files that are scanned."""
        return (*self.added, *self.corrected)


def compare(
    listed: Iterable[SourceFile],
    held: Mapping[str, SourceFile],
    *,
    gone: Collection[str] = (),
    bad: Collection[str] = (),
    absent: Collection[str] = (),
    excluded: Collection[str] = (),
    is_young: Callable[[SourceFile], bool] = lambda _: False,
) -> FileDifferences:
    """Compare files.

    Args:
        listed: Files of the archive, as they are.
        held: Files of the dataset, as it holds them, by URL.
        gone: URLs of files of the dataset that are no longer there.
        bad: URLs of files of the dataset that could not be scanned; they are tried again.
        absent: URLs of files of the dataset that were gone before, whose steps read as missing.
        excluded: URLs of files that must not be added.
        is_young: Says whether a file may still be written.
    """
    added, corrected, waiting, known, left = [], [], [], 0, 0
    for file in listed:
        before = held.get(file.url)
        if before is None and file.url in excluded:
            left += 1
            continue
        is_whole = before is not None and file.url not in bad and file.url not in absent
        if is_whole and before is not None and difference(file, before) is None:
            known += 1
        elif is_young(file):
            waiting.append(file)
        elif before is None:
            added.append(file)
        else:
            corrected.append(file)
    return FileDifferences(
        added=tuple(added),
        corrected=tuple(corrected),
        vanished=tuple(held[url] for url in held if url in gone and url not in absent),
        waiting=tuple(waiting),
        known=known,
        excluded=left,
    )


def compare_by_index(
    storage: Storage, pieces: Sequence[tuple[str, int]], count: int, given: Sequence[SourceFile]
) -> FileDifferences | None:
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
        found = look_up(KeptObjects(storage, f"{WORK[0]}/"), counts, given)
    except (ObjectNotFoundError, StorageError, FormatError):
        return None
    if Known.perhaps_changed in found:
        return None
    new = tuple(file for file, known in zip(given, found, strict=True) if known is Known.no)
    return FileDifferences(added=new, known=len(given) - len(new))


def difference(now: SourceFile, before: SourceFile) -> str | None:
    """Say how a file changed. Servers say times to the second or finer, as they are asked."""
    is_fine = now.last_modified % _SECOND and before.last_modified % _SECOND
    is_coarse = not (is_fine or now.url.startswith("file://"))
    if is_coarse and now.last_modified // _SECOND == before.last_modified // _SECOND:
        before = SourceFile(
            url=now.url, size=before.size, etag=before.etag, last_modified=now.last_modified
        )
    return change(now, before)


def identities_in(catalog_: Storage, options: ScannerOptions) -> tuple[str, ...]:
    """Return the scans of a catalog that had these options, whatever the versions of scanners."""
    asked = json.loads(json.dumps(options_of(options)["options"]))
    try:
        there = read_scans(catalog_)
    except FormatError:
        return ()
    return tuple(sorted(name for name, scan in there.items() if scan["options"] == asked))
