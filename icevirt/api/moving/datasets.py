"""Record anew what each dataset of a branch is made of, when its files moved.

Lists, recipes, ends, files that are held back: all of them are immutable objects that snapshots
name. So new ones are written, and the snapshot of the relocation names these. Older snapshots keep
what they had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from icevirt.api.dataset import left_out
from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER, files_of_build
from icevirt.api.dataset.left_out import exclude, exclusions
from icevirt.api.dataset.records import (
    RELOCATED,
    digest_of,
    keep_recipe,
    listed,
    provenance_of,
    recipe_named,
    records_in,
)
from icevirt.api.dataset.replacing import Carried
from icevirt.api.dataset.tail import TailState, tail_of, write_tail
from icevirt.api.dataset.target import Target
from icevirt.api.moving.renaming import Renaming
from icevirt.api.trust.made_here import (
    is_remembered,
    remember,
    remember_places,
    remembered_places,
)
from icevirt.api.trust.readable_places import ReadablePlaces
from icevirt.archive.catalog import path_of
from icevirt.archive.reports.relocation import MovedDataset
from icevirt.archive.scanned import SourceFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.listings import FileListing, write_listing
from icevirt.catalog.part_copies import rename_files
from icevirt.errors import FormatError, InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import Node
from icevirt.objects.answers import GONE
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.objects.source_lists.listing import changed_since, list_sources
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.repo.settings import as_json
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Below, Storage
from icevirt.versioning import lookup

type Copies = Mapping[SourceFile, SourceFile]
"""Files as a dataset lists them, and as they are at their new place."""

_NAMING = ("bad_files", "left_out", "combine", "scan")  # parts of a record that name files


@dataclass(slots=True, kw_only=True)
class MovingDatasets:
    """The datasets of a branch whose files moved."""

    storage: Storage
    head: RepoInfoFile
    branch: str
    names: Renaming
    access: SourceAccess  # to the new place
    compare: Callable[[Copies], frozenset[SourceFile]]  # returns those that are not the same
    trusted: str | None  # digest of a recipe
    is_plan: bool
    reports: list[MovedDataset] = field(default_factory=list)
    changed: dict[SourceFile, SourceFile] = field(default_factory=dict)  # with another checksum now
    _made: list[tuple[dict[str, Any], Carried]] = field(default_factory=list)

    def look(self, current: RepoState, manifests: Mapping[ObjectId12, str]) -> None:
        """Find the datasets, and write what is said of them; nothing names it yet.

        Args:
            current: The repository.
            manifests: The ids of manifests that were written, by those that they replace.

        Raises:
            FormatError: A list of files is damaged.
        """
        self.reports, self.changed, self._made = [], {}, []
        for group in self._groups(current):
            target = Target.at(self.head, current, branch=self.branch, group=group)
            self._one(target, manifests)

    @property
    def is_nothing(self) -> bool:
        """Whether no record names the old place."""
        return not self.reports

    def metadata(self, nodes: Iterable[Node]) -> JSONObject:
        """Return what the snapshot says, and write it for the time when the snapshot is gone.

        Args:
            nodes: Of the snapshot.
        """
        if self.is_nothing:
            return {}
        there = [*nodes]
        for record, carried in self._made:
            carried.keep(self.storage, record, there)
        builds = [record for record, _ in self._made]
        return as_json(
            {RELOCATED: {"old": self.names.old, "new": self.names.new, "builds": builds}}
        )

    def exclude(self) -> None:
        """Keep files out under their new names that must not be in the dataset."""
        for _, note in [*exclusions(self.storage)]:
            moved = [now for url in note.urls if (now := self.names.url(url)) != url]
            if moved:
                exclude(self.storage, moved, why=note.why, branch=note.branch, group=note.group)

    def follow(self) -> None:
        """Carry on what is no part of a snapshot: scans, and whose recipe is trusted here."""
        catalog = Below(self.storage, CATALOG)
        with suppress(FormatError):  # files are scanned again
            rename_files(catalog, self.names.url, self.changed)
        for each in self.reports:
            if each.recipe and each.is_trusted:
                remember(self.storage.url, each.recipe)
        remember_places(self.storage.url, self._places())

    # -- inside ------------------------------------------------------------------------------

    def _places(self) -> Iterator[str]:
        """Yield where directories that this user named lie now; the caller authorized the place."""
        old, new = self.names.old, self.names.new
        for each in remembered_places(self.storage.url):
            if each.startswith(old) or old.startswith(each):
                yield self.names.url(each) if each.startswith(old) else new

    def _groups(self, current: RepoState) -> list[str]:
        tip = lookup.branch_tip(current.info, self.branch)
        history = lookup.ancestry(current.info, tip)
        return sorted({str(each.get("group")) for one in history for each in records_in(one)})

    def _one(self, target: Target, manifests: Mapping[ObjectId12, str]) -> None:
        last = target.last_build()
        record = None if last is None else provenance_of(last, target.group)
        if last is None or record is None:
            return
        new = {name: self.names.value(record[name]) for name in _NAMING if name in record}
        notes: list[str] = []
        held, held_now = self._held(target)
        recipe, recipe_now = self._recipe(record, notes)
        listing = self._listing(record, notes)
        urls = () if listing is None else listing.files.urls
        count = sum(url.startswith(self.names.old) for url in urls)
        is_same = all(new.get(name) == record.get(name) for name in _NAMING)
        if is_same and not count and recipe == recipe_now and held == held_now:
            return
        is_trusted = bool(recipe) and (
            self.trusted == recipe or is_remembered(self.storage.url, recipe)
        )
        self.reports.append(
            MovedDataset(
                group=target.group,
                files=count,
                recipe_before=recipe,
                recipe=recipe_now,
                is_trusted=is_trusted,
                notes=tuple(notes),
            )
        )
        if self.is_plan:
            return
        carried = Carried.of(target)
        pieces: tuple[tuple[str, int], ...] = ()
        if listing is not None:
            stamps = self._stamps(listing.files)
            self.changed |= stamps
            files = self._files(listing.files, stamps)
            name = digest_of(listed(files))
            pieces = write_listing(Below(self.storage, WORK_FOLDER), name, files)
            new["listing"] = name
            if (state := tail_of(self.storage, record)) is not None:
                new["tail"] = write_tail(self.storage, self._tail(state, stamps, pieces, manifests))
        if held_now:
            new["held"] = left_out.keep_held(self.storage, held_now)
        if recipe_now:
            new["recipe"] = recipe_now
        self._made.append(({**carried.record, **new}, carried))

    def _held(self, target: Target) -> tuple[Any, Any]:
        held = left_out.held_files(self.storage, target.held_back()[0])
        return held, tuple(replace(each, url=self.names.url(each.url)) for each in held)

    def _recipe(self, record: Mapping[str, Any], notes: list[str]) -> tuple[str, str]:
        """Return the digests of the recipe before and now; "" where there is none."""
        try:
            known = recipe_named(self.storage, str(record.get("recipe", "")))
            moved, recipe_notes = self.names.recipe(known)
        except (InvalidInputError, FormatError, ValueError):
            return "", ""
        notes += recipe_notes
        if not self.is_plan:
            keep_recipe(self.storage, moved)
        return known.digest, moved.digest

    def _listing(self, record: Mapping[str, Any], notes: list[str]) -> FileListing | None:
        try:
            return files_of_build(self.storage, record)
        except InvalidInputError as error:
            notes.append(error.what)
            return None

    def _files(self, files: SourceFiles, stamps: Copies) -> SourceFiles:
        return SourceFiles(self._file(each, stamps) for each in files)

    def _file(self, file: SourceFile, stamps: Copies) -> SourceFile:
        return stamps.get(file) or self._renamed(file)

    def _renamed(self, file: SourceFile) -> SourceFile:
        """Return a file by its new name; a disk gives no etags, so one of a bucket ends there."""
        url = self.names.url(file.url)
        is_new_disk = url.startswith("file://") and not file.url.startswith("file://")
        return replace(file, url=url, etag="" if is_new_disk else file.etag)

    def _stamps(self, files: SourceFiles) -> Copies:
        """Return the files with another time or etag now, of those that are the same files."""
        before = {
            self.names.url(file.url): file for file in files if file.url.startswith(self.names.old)
        }
        moved = [*map(self._renamed, before.values())]
        places = ReadablePlaces.of([self.names.new])  # a link there may lead out of it
        left = {each.url for each in places.elsewhere(moved, repo=self.storage.url)}
        with granted(self.access):
            how = changed_since(each for each in moved if each.url not in left)
            there = [url for url, what in how.items() if what != GONE]
            now = {before[each.url]: each for each in (list_sources(there) if there else ())}
        others = self.compare(now)
        return {file: each for file, each in now.items() if file not in others}

    def _tail(
        self,
        state: TailState,
        stamps: Copies,
        pieces: tuple[tuple[str, int], ...],
        manifests: Mapping[ObjectId12, str],
    ) -> TailState:
        """Return the end of a dataset at the new place."""
        scans = MemoryStorage()
        for path, raw in state.described.items():
            scans.put(path, raw)
        before = rename_files(scans, self.names.url, stamps)
        scans.delete_many([path_of("files", part) for part in before])
        hot = manifests.get(ObjectId12.parse(state.hot), state.hot) if state.hot else ""
        return replace(
            state,
            ends=tuple(self._file(each, stamps) for each in state.ends),
            pieces=pieces,
            hot=hot,
            described={info.path: scans.get(info.path) for info in scans.list()},
        )
