"""Record anew what each dataset of a branch is made of, when its files moved.

Lists, recipes, ends, files that are held back: all of them are immutable objects that snapshots
name. So new ones are written, and the snapshot of the relocation names these. Older snapshots keep
what they had. Values that were copied are compared at the new place first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from icevirt.amounts import plural
from icevirt.api.dataset import left_out
from icevirt.api.dataset.files_held import CATALOG, WORK_FOLDER, files_of_build
from icevirt.api.dataset.left_out import exclude, exclusions
from icevirt.api.dataset.records import (
    KeptRecipe,
    digest_of,
    identify_files,
    keep_recipe,
    provenance_of,
    recipe_named,
    records_in,
)
from icevirt.api.dataset.replacing import Carried
from icevirt.api.dataset.tail import TailState, tail_of, write_tail
from icevirt.api.dataset.target import Target
from icevirt.api.recipe import each_moved, toml
from icevirt.api.trust.readable_places import ReadablePlaces
from icevirt.archive.catalog import path_of, scan_of
from icevirt.archive.plan import FileRows
from icevirt.archive.reports.relocation import Moved, MovedDataset, total
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.listings import write_listing
from icevirt.catalog.lookup import look_up_files
from icevirt.catalog.part_copies import rename_files
from icevirt.catalog.parts import complete_parts
from icevirt.connect.urls import as_local_path, file_url, is_pattern, is_url, local_path
from icevirt.errors import FormatError, InvalidInputError
from icevirt.execution.executor import Executor, describe_jobs
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import Node, Snapshot
from icevirt.objects.answers import GONE
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.objects.source_lists.listing import find_changes, list_sources
from icevirt.objects.source_lists.names import directory_of
from icevirt.planning.containers import Relocation
from icevirt.planning.records import RELOCATED
from icevirt.repo.made_here import identify, is_remembered, read_places, remember, remember_places
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import Below, Storage
from icevirt.tasks.compare_files import CopiesTask, compare_copies
from icevirt.versioning import lookup
from icevirt.versioning.repo_updates import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Two prefixes: of files so far, and of the same files now."""

    old: str  # ends in a slash, as does `new`
    new: str
    paths: tuple[str, ...] = ()  # the old place as people spell it, without a slash at the end

    @classmethod
    def of(cls, old: str, new: str, given: str = "") -> Renaming:
        """Return the renaming of two URLs.

        Args:
            old: Prefix so far.
            new: Prefix now.
            given: The path of the old place as a person gave it, if it is one.
        """
        paths = [local_path(old)] if old.startswith("file://") else []
        if paths and given and not is_url(given):
            paths.append(as_local_path(given))
        return cls(old=old, new=new, paths=tuple({each.rstrip("/") for each in paths}))

    def url(self, url: str) -> str:
        """Return a URL; one below the old prefix below the new one."""
        return self.new + url.removeprefix(self.old) if url.startswith(self.old) else url

    def value(self, held: Any) -> Any:
        """Return a JSON value in which URLs are renamed."""
        if isinstance(held, str):
            return self.url(held)
        if isinstance(held, list | tuple):
            return [self.value(each) for each in held]
        if isinstance(held, Mapping):
            return {name: self.value(each) for name, each in held.items()}
        return held

    def text(self, given: str) -> str:
        """Return a path, pattern or URL of a recipe; one below the old place below the new one."""
        mark, bare = ("@", given[1:]) if given.startswith("@") else ("", given)
        if is_url(bare):
            slash = "" if bare.endswith("/") else "/"
            moved = self.url(bare + slash)
            return mark + (bare if moved == bare + slash else moved.removesuffix(slash))
        for path in self.paths:
            if bare == path or bare.startswith(f"{path}/"):
                new = local_path(self.new) if self.new.startswith("file://") else self.new
                return mark + new.rstrip("/") + bare.removeprefix(path)
        return given

    def recipe(self, kept: KeptRecipe) -> tuple[KeptRecipe, tuple[str, ...]]:
        """Return a recipe that names the new place, and what it cannot say."""
        document = tomllib.loads(kept.text)
        moved = each_moved(document, self.text)
        notes = []
        given = moved.get("sources")
        sources = [given] if isinstance(given, str) else [str(each) for each in given or ()]
        for each in [*sources]:
            if each.startswith("@"):
                notes.append(f"the list {each[1:]} is read as it is: let it name the new place")
                continue
            place = _place(each)
            # files move out of a directory that holds more than these
            is_around = self.old.startswith(place) and place != self.old
            if not is_around or self.new.startswith(place):
                continue
            if is_pattern(each.partition("://")[2] or each):
                notes.append(
                    f"the pattern {each} does not reach the new place: name it with"
                    " icevirt update --recipe"
                )
            else:
                is_disk = self.new.startswith("file://")
                sources.append(local_path(self.new) if is_disk else self.new)
        if sources:
            moved["sources"] = sources if len(sources) > 1 else moved["sources"]
        return (kept if moved == document else KeptRecipe(toml(moved))), tuple(notes)


def all_names(urls: Iterable[str], moves: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return URLs with the names that the same files had before they were moved, and have since."""
    both = [*moves]
    ways = [Renaming(old=old, new=new) for old, new in (*both, *((b, a) for a, b in both))]
    found, left = set(urls), [*urls]
    while left:
        url = left.pop()
        more = {each.url(url) for each in ways} - found
        found |= more
        left += more
    return frozenset(found)


def _place(source: str) -> str:
    """Return the directory of a source, as a URL that ends in a slash."""
    if is_url(source):
        return directory_of(source)
    return file_url(directory_of(source)).rstrip("/") + "/"


_PER_TASK = 64  # files


def compare_copies_of(  # noqa: PLR0917 - files, and what is known of them
    running: Executor,
    storage: Storage,
    base: Snapshot,
    found: Moved,
    changed: Mapping[SourceFile, SourceFile],
    relocation: Relocation,
    access: Mapping[str, Any],
) -> Moved:
    """Compare what references do not reach, of files that have another checksum now.

    Args:
        running: Runs the tasks.
        storage: The repository.
        base: The version whose files moved.
        found: What tasks found of its manifests.
        changed: The files as datasets list them, and as they are.
        relocation: From where to where.
        access: To both places.
    """
    pairs, catalog = [*changed.items()], Below(storage, CATALOG)
    scans = sorted({scan_of(part) for part in complete_parts(catalog)})
    known = look_up_files(catalog, "", SourceFiles(file for file, _ in pairs), also=scans)
    rows = FileRows(parts=known.parts, part=known.part, row=known.row)
    referenced = _find_referenced(base, found)
    tasks = []
    for low in range(0, len(pairs), _PER_TASK):
        pile = np.arange(low, min(low + _PER_TASK, len(pairs)))
        is_known = known.part[pile] >= 0
        order = [*pile[is_known].tolist(), *pile[~is_known].tolist()]
        tasks.append(
            CopiesTask(
                files=tuple(pairs[at] for at in order),
                rows=rows.take(pile[is_known]),
                catalog=catalog,
                referenced=referenced,
                relocation=relocation,
                access=access,
            )
        )
    with describe_jobs(f"relocate: {plural(len(pairs), 'file')} with another time"):
        return total(running.run(compare_copies, tasks))


def _find_referenced(base: Snapshot, found: Moved) -> frozenset[str]:
    """Return the names of variables of which a version holds references and nothing else."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for node in base.arrays():
        number = int.from_bytes(bytes(node.id), "little")
        is_copied = number in found.copied or number not in found.referenced
        names[is_copied].add(paths.name(node.path))
    return frozenset(names[False] - names[True])


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
        history = lookup.ancestry(current.info, lookup.branch_tip(current.info, self.branch))
        groups = {str(each.get("group")) for one in history for each in records_in(one)}
        for group in sorted(groups):
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
        with suppress(FormatError):  # files are scanned again
            rename_files(Below(self.storage, CATALOG), self.names.url, self.changed)
        for each in self.reports:
            if each.recipe and each.is_trusted:
                remember(identify(self.storage), each.recipe)
        # directories that this user named lie elsewhere now; the caller authorized the place
        old, new = self.names.old, self.names.new
        remember_places(
            identify(self.storage),
            [
                self.names.url(each) if each.startswith(old) else new
                for each in read_places(identify(self.storage))
                if each.startswith(old) or old.startswith(each)
            ],
        )

    # -- inside ------------------------------------------------------------------------------

    def _one(self, target: Target, manifests: Mapping[ObjectId12, str]) -> None:
        last = target.last_build()
        record = None if last is None else provenance_of(last, target.group)
        if last is None or record is None:
            return
        new = {name: self.names.value(record[name]) for name in _NAMING if name in record}
        notes: list[str] = []
        held = left_out.read_held(self.storage, target.find_held_back()[0])
        held_now = tuple(replace(each, url=self.names.url(each.url)) for each in held)
        recipe, recipe_now = self._recipe(record, notes)
        listing = None
        try:
            listing = files_of_build(self.storage, record)
        except InvalidInputError as error:
            notes.append(error.what)
        urls = () if listing is None else listing.files.urls
        count = sum(url.startswith(self.names.old) for url in urls)
        is_same = all(new.get(name) == record.get(name) for name in _NAMING)
        if is_same and not count and recipe == recipe_now and held == held_now:
            return
        is_trusted = self.trusted == recipe or is_remembered(identify(self.storage), recipe)
        self.reports.append(
            MovedDataset(
                group=target.group,
                files=count,
                recipe_before=recipe,
                recipe=recipe_now,
                is_trusted=bool(recipe) and is_trusted,
                notes=tuple(notes),
            )
        )
        if self.is_plan:
            return
        carried = Carried.of(target)
        if listing is not None:
            stamps = self._stamps(listing.files)
            self.changed |= stamps
            files = SourceFiles(self._file(each, stamps) for each in listing.files)
            name = new["listing"] = digest_of(identify_files(files))
            pieces = write_listing(Below(self.storage, WORK_FOLDER), name, files)
            if (state := tail_of(self.storage, record)) is not None:
                new["tail"] = write_tail(self.storage, self._tail(state, stamps, pieces, manifests))
        if held_now:
            new["held"] = left_out.keep_held(self.storage, held_now)
        if recipe_now:
            new["recipe"] = recipe_now
        self._made.append(({**carried.record, **new}, carried))

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

    def _file(self, file: SourceFile, stamps: Copies) -> SourceFile:
        return stamps.get(file) or self._rename(file)

    def _rename(self, file: SourceFile) -> SourceFile:
        """Return a file by its new name; a disk gives no etags, so one of a bucket ends there."""
        url = self.names.url(file.url)
        is_new_disk = url.startswith("file://") and not file.url.startswith("file://")
        return replace(file, url=url, etag="" if is_new_disk else file.etag)

    def _stamps(self, files: SourceFiles) -> Copies:
        """Return the files with another time or etag now, of those that are the same files."""
        before = {
            self.names.url(file.url): file for file in files if file.url.startswith(self.names.old)
        }
        moved = [*map(self._rename, before.values())]
        places = ReadablePlaces.of([self.names.new])  # a link there may lead out of it
        left = {each.url for each in places.elsewhere(moved, repo=self.storage.url)}
        with grant_access(self.access):
            how = find_changes(each for each in moved if each.url not in left)
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
