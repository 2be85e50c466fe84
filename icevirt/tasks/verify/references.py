"""Check every referenced file: it exists, with the recorded length and time.

The last referenced byte is read with the recorded checksum enforced, so the check is the same on
every kind of storage, and is what a reader would meet. No read asks a file of which everything was
copied: it is looked at like a file before a build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.reports.verification import MOST_SHOWN, Checked, Difference, DifferenceKind
from icevirt.archive.scanned import SourceFiles
from icevirt.catalog.file_hashes import hash_of_url
from icevirt.errors import IcevirtError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.objects.answers import GONE, Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.fetch import read
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.objects.source_lists.listing import find_changes
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.storage.protocol import Storage
from icevirt.tasks.compare_files import kind_of
from icevirt.tasks.verify.matching import file_of, region_of
from icevirt.versioning.lookup import users_of

type _File = tuple[str, Checksum]  # URL, and what it was when it was scanned


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask:
    """Some manifests of one snapshot."""

    repo: Storage
    snapshot_id: str
    access: Mapping[str, Any]  # credentials by authorized prefix
    manifests: tuple[bytes, ...]
    tolerance: Mapping[str, float] = field(default_factory=dict)  # by name, as the build was given
    edit: FileEdit = field(default_factory=FileEdit)  # attributes that the build set in all files
    preprocessed: bool = False  # whether a function may have set more
    rows: tuple[Any, ...] = ()  # for `compare_values`: by manifest, which references

    def session(self) -> Session:
        """Open the version that is verified."""
        opened = Repository.open(self.repo, authorize_virtual_chunk_access=self.access)
        return opened.readonly_session(snapshot_id=self.snapshot_id)


def check_references(task: VerifyTask) -> tuple[Checked, NDArray[np.uint64]]:
    """Look at every file that manifests refer to, once; return hashes of their URLs, too."""
    session = task.session()
    ends: dict[_File, int] = {}
    references = Counter[_File]()
    for _, table in _tables(session, task.manifests):
        virtual = table.take(table.kind == ChunkType.virtual)
        far = np.zeros(len(table.locations), np.uint64)  # ends of the farthest references
        np.maximum.at(far, virtual.source, virtual.offset + virtual.length)
        counts = np.bincount(virtual.source, minlength=len(far))
        for number in np.flatnonzero(counts).tolist():
            file = file_of(table, number)
            ends[file] = max(int(far[number]), ends.get(file, 0))
            references[file] += int(counts[number])
    authorizer = Authorizer(session.config.virtual_chunk_containers, task.access)
    looked = ((file, look(authorizer, *file, end=end)) for file, end in ends.items())
    wrong = {file: difference for file, difference in looked if difference is not None}
    shown = dict(islice(wrong.items(), MOST_SHOWN))
    found = [
        replace(shown[file], array=array, region=region_of(session, array, indexes))
        for (file, array), indexes in _find_corners(session, task.manifests if shown else (), shown)
    ]
    urls = {hash_of_url(authorizer.absolute(url)) for url, _ in ends}
    checked = Checked(
        references=references.total(),
        files=len(ends),
        unverifiable=sum(references[file] for file in ends if not file[1].is_verifiable),
        differences=tuple(found[:MOST_SHOWN]),
        more=len(wrong) - len(shown) + max(0, len(found) - MOST_SHOWN),
    )
    return checked, np.array(sorted(urls), np.uint64)


def prefixes_used(task: VerifyTask) -> frozenset[str]:
    """Return the url_prefixes of the containers that references of the manifests use."""
    session = task.session()
    containers = session.config.virtual_chunk_containers.values()
    names = {each.name: each.url_prefix for each in containers if each.name is not None}
    beginnings = {f"vcc://{name}/": prefix for name, prefix in names.items()}
    beginnings |= {each.url_prefix: each.url_prefix for each in containers}
    longest = sorted(beginnings, key=len, reverse=True)
    found: set[str] = set()
    for _, table in _tables(session, task.manifests):
        rest = np.unique(table.source[table.kind == ChunkType.virtual]).astype(np.int64)
        for beginning in longest:
            hit = table.locations.url.begin_with(beginning.encode(), rest)
            if hit.any():
                found.add(beginnings[beginning])
            rest = rest[~hit]
    return frozenset(found)


def _tables(session: Session, manifests: Iterable[bytes]) -> Iterator[tuple[str, ChunkTable]]:
    """Yield path and references of the arrays that refer to manifests."""
    for key, users in users_of(session.snapshot.arrays(), manifests).items():
        for node, table in session.assets.read_manifest(key).arrays.items():
            if node in users:
                yield users[node].path, table


def _find_corners(
    session: Session, manifests: Iterable[bytes], files: Container[_File]
) -> Iterable[tuple[tuple[_File, str], NDArray[np.uint32]]]:
    """Return by file and array the corners of the box of its chunks, ``(2, ndim)``."""
    corners: dict[tuple[_File, str], NDArray[np.uint32]] = {}
    for array, table in _tables(session, manifests):
        virtual = table.take(table.kind == ChunkType.virtual)
        for number in np.unique(virtual.source).tolist():
            if (file := file_of(table, number)) not in files:
                continue
            indexes = virtual.index[virtual.source == number]
            if (known := corners.get((file, array))) is not None:
                indexes = np.concatenate([known, indexes])
            corners[file, array] = np.stack([indexes.min(0), indexes.max(0)])
    return corners.items()


def look(authorizer: Authorizer, url: str, checksum: Checksum, *, end: int) -> Difference | None:
    """Return how a file changed since it was scanned; references end at byte ``end``."""
    try:
        length = min(1, end)
        read(authorizer.grant(url), offset=end - length, length=length, checksum=checksum)
    except IcevirtError as error:
        return Difference(kind=kind_of(error), file=authorizer.absolute(url), what=str(error))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTask:
    """Some files, as they were when they were scanned."""

    files: SourceFiles
    access: SourceAccess


def check_copied(task: CopiedTask) -> Checked:
    """Look at each file."""
    with grant_access(task.access):
        changed = find_changes(task.files)
    differences = tuple(
        Difference(
            kind=DifferenceKind.missing if how == GONE else DifferenceKind.changed,
            file=url,
            what=f"{how}, and what was copied of it is what it was. Run `icevirt update`.",
        )
        for url, how in islice(changed.items(), MOST_SHOWN)
    )
    more = len(changed) - len(differences)
    return Checked(files=len(task.files), differences=differences, more=more)
