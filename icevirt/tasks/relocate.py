"""Point the references of manifests to the new place of their files, after looking at these.

A task holds one manifest at a time. The id of a manifest covers its content, so that a task that
runs twice writes the same objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.reports.relocation import FileHashes, Moved, total
from icevirt.archive.reports.verification import MOST_SHOWN, Difference, DifferenceKind
from icevirt.catalog.file_hashes import hash_of_url
from icevirt.errors import IcevirtError, UnauthorizedError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.objects.answers import Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.comparing import Copy, Looked, first_difference, look_at, pieces
from icevirt.planning.containers import Relocation
from icevirt.repo.assets import Assets
from icevirt.storage.protocol import Storage
from icevirt.tasks.compare_files import kind_of
from icevirt.wire.manifests.encoding import ManifestEncoding

_KNOWN = 1 << 17  # files that are remembered from one manifest to the next

type _File = tuple[str, Checksum]  # absolute URL at the old place, and what the scan recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocateTask:
    """Some manifests of one snapshot."""

    repo: Storage
    users: Mapping[ObjectId12, Collection[ObjectId8]]  # the arrays that refer to each manifest
    access: Mapping[str, Any]  # by authorized prefix
    relocation: Relocation
    manifests: tuple[bytes, ...]
    sample: tuple[int, ...]  # references of each whose bytes are compared; -1: of all
    seed: int
    is_plan: bool = False  # count only: look at no file and write nothing
    encoding: ManifestEncoding = field(default_factory=ManifestEncoding)


def relocate(task: RelocateTask) -> Moved:
    """Write the manifests of a task anew, as far as their references change."""
    work = _Relocating(task)
    each = zip(task.manifests, task.sample, strict=True)
    return total(work.move(ObjectId12(key), sample) for key, sample in each)


class _Relocating:
    """The files that a task has met."""

    def __init__(self, task: RelocateTask) -> None:
        self._task, self._to = task, task.relocation
        self._old = Authorizer(task.relocation.before, task.access)
        self._new = Authorizer(task.relocation.after, task.access)
        self._assets = Assets(task.repo, manifests=task.encoding, compares=True)
        self._files: dict[_File, _Placed] = {}

    def move(self, key: ObjectId12, sample: int) -> Moved:
        """Write a manifest anew; ``sample`` of its references are compared."""
        if len(self._files) > _KNOWN:
            self._files.clear()  # which costs another look at some
        found = self._assets.read_manifest(key)
        users = self._task.users[key]
        tables = {node: table for node, table in found.arrays.items() if node in users}
        parts = {node: part for node, each in tables.items() if (part := self._part(each))}
        there = sum(part.there for part in parts.values())
        moved = Moved(there=there, referenced=_arrays(tables, True), copied=_arrays(tables, False))
        if not any(len(part.hit) for part in parts.values()):
            return moved
        met = {file for part in parts.values() for file in part.files}
        moved += Moved(
            files=_hashes(met),
            references=sum(len(part.rows) for part in parts.values()),
            bytes=sum(part.bytes for part in parts.values()),
            absolute=sum(part.absolute for part in parts.values()),
        )
        if self._task.is_plan:
            is_text = any(part.is_new_text for part in parts.values())
            planned = (bytes(key), b"", 0, found.num_chunk_refs)
            return replace(moved, manifests=(planned,) if is_text else ())
        new = [file for file in sorted(met, key=lambda file: file[0]) if file not in self._files]
        problems = [*self._look(new), *self._too_short(parts)]
        moved += self._compare(key, tables, parts, sample, problems)
        changed = {node: self._rewrite(tables[node], part) for node, part in parts.items()}
        moved += Moved(restamped=_hashes(file for file in met if self._files[file].is_restamped))
        if problems or all(changed[node] is tables[node] for node in changed):
            return moved + Moved(
                differences=tuple(problems[:MOST_SHOWN]),
                wrong=_hashes((problem.file, None) for problem in problems),
            )
        found.refuse_loss()
        info = self._assets.put_manifest({**tables, **changed})
        row = (bytes(key), bytes(info.id), info.size_bytes, info.num_chunk_refs)
        return moved + Moved(manifests=(row,))

    def _part(self, table: ChunkTable) -> _PartAtOld | None:
        """Return which locations of a table lie at the old place; None where none is virtual."""
        virtual = np.flatnonzero(table.kind == ChunkType.virtual)
        if not len(virtual):
            return None
        used = np.unique(table.source[virtual]).astype(np.int64)
        urls = self._to.absolute(table.locations.url)
        hit = used[urls.begin_with(self._to.old.encode(), used)]
        there = used[urls.begin_with(self._to.new.encode(), used)]
        rows = virtual[np.isin(table.source[virtual], hit)]
        at_new = int(np.isin(table.source[virtual], there).sum())
        places, old = table.locations, urls[hit]
        written = table.locations.url[hit]
        absolute = self._to.move(old)
        # what is relative to a container that moves, moves with it
        is_named = written.begin_with(b"vcc://")
        follows = self._to.follows(written)
        texts = self._to.write(absolute)
        mixed = Strings.join([texts, written])
        texts = mixed[np.where(follows, len(hit) + np.arange(len(hit)), np.arange(len(hit)))]
        checksums = zip(places.etag[hit], places.last_modified[hit].tolist(), strict=True)
        files = [
            (url, Checksum(etag=etag, last_modified=seconds))
            for url, (etag, seconds) in zip(old, checksums, strict=True)
        ]
        ends = np.zeros(len(places), np.uint64)
        np.maximum.at(ends, table.source[rows], table.offset[rows] + table.length[rows])
        return _PartAtOld(
            hit=hit,
            rows=rows,
            files=files,
            texts=texts,
            is_new_text=not bool(follows.all()) if len(hit) else False,
            absolute=int((~is_named).sum()),
            ends=ends[hit],
            bytes=int(table.length[rows].sum()),
            there=at_new,
        )

    def _look(self, files: Sequence[_File]) -> list[Difference]:
        """Look at files at both places; return what is wrong with them."""
        if not files:
            return []
        old = [Copy(self._old.grant(url), checksum) for url, checksum in files]
        urls = self._to.move(Strings.of([url for url, _ in files]))
        new = [
            Copy(self._new.grant(url), checksum)
            for url, (_, checksum) in zip(urls, files, strict=True)
        ]
        problems = []
        looked = zip(files, old, new, look_at(old), look_at(new), strict=True)
        for file, before, after, was, now in looked:
            placed = _Placed.of(before, after, was, now)
            self._files[file] = placed
            if placed.problem is not None:
                problems.append(placed.problem)
        return problems

    def _too_short(self, parts: Mapping[ObjectId8, _PartAtOld]) -> Iterator[Difference]:
        """Yield the files that end before their references do."""
        for part in parts.values():
            for file, end in zip(part.files, part.ends.tolist(), strict=True):
                placed = self._files[file]
                if placed.problem is None and placed.now is not None and end > placed.now.size:
                    what = f"it has {placed.now.size:,} bytes, and references reach to {end:,}"
                    placed.problem = _difference(DifferenceKind.truncated, placed.new, what)
                    yield placed.problem

    def _compare(
        self,
        key: ObjectId12,
        tables: Mapping[ObjectId8, ChunkTable],
        parts: Mapping[ObjectId8, _PartAtOld],
        sample: int,
        problems: list[Difference],
    ) -> Moved:
        """Compare bytes of references at both places."""
        total = sum(len(part.rows) for part in parts.values())
        chosen = np.ones(total, np.bool_)
        if 0 <= sample < total:
            number = int.from_bytes(bytes(key)[:8])
            drawn = np.random.default_rng([self._task.seed, number]).choice(
                total, sample, replace=False
            )
            chosen = np.isin(np.arange(total), drawn)
        ranges = size = start = 0
        alone: set[_File] = set()
        for node, part in parts.items():
            table = tables[node]
            mine = chosen[start : start + len(part.rows)] | self._unsure(table, part)
            rows = part.rows[mine]
            start += len(part.rows)
            order = np.argsort(table.source[rows], kind="stable")
            cuts = np.flatnonzero(np.diff(table.source[rows[order]])) + 1
            numbers = dict(zip(part.hit.tolist(), part.files, strict=True))
            alone |= {file for file in part.files if not self._files[file].is_comparable}
            for group in np.split(rows[order], cuts) if len(rows) else ():
                placed = self._files[numbers[int(table.source[group[0]])]]
                if placed.problem is not None or not placed.is_comparable:
                    continue
                offset, length = pieces(table.offset[group], table.length[group])
                if (difference := placed.compare(offset, length)) is not None:
                    placed.problem = difference
                    problems.append(difference)
                ranges += len(group)
                size += int(length.sum())
        return Moved(compared=ranges, compared_bytes=size, alone=_hashes(alone))

    def _unsure(self, table: ChunkTable, part: _PartAtOld) -> NDArray[np.bool_]:
        """Say which references are compared whatever the sample: one of each file with a new stamp.

        The stamp alone says that such a file may be another one.
        """
        numbers = [
            number
            for number, file in zip(part.hit.tolist(), part.files, strict=True)
            if self._files[file].is_restamped
        ]
        first = np.zeros(len(part.rows), np.bool_)
        source = table.source[part.rows]
        found, at = np.unique(source, return_index=True)
        first[at[np.isin(found, numbers)]] = True
        return first

    def _rewrite(self, table: ChunkTable, part: _PartAtOld) -> ChunkTable:
        """Return a table with the new locations and checksums; the same one if none is new."""
        placed = [self._files[file] for file in part.files]
        is_restamped = any(each.is_restamped for each in placed)
        if not part.is_new_text and not is_restamped:
            return table
        places = table.locations
        numbers = np.arange(len(places))
        numbers[part.hit] = len(places) + np.arange(len(part.hit))
        stamps = [each.stamp(file[1]) for each, file in zip(placed, part.files, strict=True)]
        new = Locations(
            url=part.texts,
            etag=Strings.of([each.etag for each in stamps]),
            last_modified=np.array([each.last_modified for each in stamps], np.uint32),
        )
        return replace(table, locations=(places + new).take(numbers))


@dataclass(slots=True, kw_only=True)
class _PartAtOld:
    """The locations of a table that lie at the old place."""

    hit: NDArray[np.int64]  # their numbers
    rows: NDArray[np.int64]  # of references to them
    files: list[_File]
    texts: Strings  # as references hold them
    is_new_text: bool  # whether one of them changes
    absolute: int  # locations that no container's name begins
    ends: NDArray[np.uint64]  # of the farthest reference
    bytes: int  # referenced
    there: int  # references to the new place


@dataclass(slots=True, kw_only=True)
class _Placed:
    """A file at both places."""

    old: Copy
    new: Copy
    was: Looked | None  # None: it cannot be read there
    now: Looked | None
    problem: Difference | None = None

    @classmethod
    def of(
        cls, old: Copy, new: Copy, was: Looked | IcevirtError, now: Looked | IcevirtError
    ) -> _Placed:
        """Compare what is known of a file."""
        if isinstance(was, UnauthorizedError):
            raise was
        if isinstance(now, IcevirtError):
            problem = _difference(kind_of(now), new, now.what)
            return cls(old=old, new=new, was=None, now=None, problem=problem)
        before = was if isinstance(was, Looked) else None
        found = cls(old=old, new=new, was=before, now=now)
        if before is not None and before.is_unchanged and before.size != now.size:
            what = f"it has {now.size:,} bytes, and {before.size:,} at its old place"
            found.problem = _difference(DifferenceKind.truncated, new, what)
        elif not now.is_unchanged and not found.is_comparable:
            why = was.change if isinstance(was, Looked) else was
            facts = now.change.facts if now.change is not None else {}
            what = (
                f"references record {facts.get('recorded')!r} and it has {facts.get('found')!r};"
                " its bytes cannot be compared with its old place:"
                f" {'' if why is None else why.what}"
            )
            found.problem = _difference(DifferenceKind.changed, new, what)
        return found

    @property
    def is_comparable(self) -> bool:
        """Whether the file at its old place is what was scanned."""
        return self.was is not None and self.was.is_unchanged

    @property
    def is_restamped(self) -> bool:
        """Whether references record another checksum at the new place."""
        was, now = self.was, self.now
        if self.problem is not None or now is None:
            return False
        if not now.is_unchanged or was is None or not was.is_unchanged:
            return not now.is_unchanged
        # readers accept both copies, and the time says that one is another file
        return self.old.checksum.is_time and was.seconds != now.seconds

    def stamp(self, recorded: Checksum) -> Checksum:
        """Return what references record."""
        return self.now.checksum if self.is_restamped and self.now is not None else recorded

    def compare(self, offset: NDArray[np.int64], length: NDArray[np.int64]) -> Difference | None:
        """Compare bytes; those at the new place are read as what references will record."""
        after = Copy(self.new.grant, self.stamp(self.new.checksum))
        try:
            at = first_difference(self.old, after, offset, length)
        except IcevirtError as error:
            return _difference(kind_of(error), self.new, error.what)
        if at is None:
            return None
        what = f"byte {at:,} is another one than at its old place"
        return _difference(DifferenceKind.value, self.new, what)


def _difference(kind: DifferenceKind, copy: Copy, what: str) -> Difference:
    return Difference(kind=kind, file=copy.grant.url, what=what)


def _hashes(files: Any) -> FileHashes:
    """Return a number for each file, by which files of several tasks are counted once."""
    return np.unique(np.array([hash_of_url(url) for url, _ in files], np.uint64))


def _arrays(tables: Mapping[ObjectId8, ChunkTable], is_virtual: bool) -> FileHashes:
    """Return the numbers of arrays with chunks that are virtual, or with some that are not."""
    found = [
        int.from_bytes(bytes(node), "little")
        for node, table in tables.items()
        if ((table.kind == ChunkType.virtual) == is_virtual).any()
    ]
    return np.array(sorted(found), np.uint64)
