"""Check every referenced file: it exists, with the recorded length and time.

The last referenced byte is read with the recorded checksum enforced, so the check is the same on
every kind of storage, and is what a reader would meet. No read asks a file of which everything was
copied: it is looked at like a file before a build.

References are matched to the variable, group and elements of their file, too. A repository records
neither the group of the file that became its root, nor along which dimension a contiguous variable
was cut, nor what the file calls a dimension: all of them are found again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.columns.stored_array import StoredArray, open_array
from icevirt.archive.reports.verification import MOST_SHOWN, Checked, Difference, DifferenceKind
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.file_hashes import hash_of_url
from icevirt.errors import FormatError, IcevirtError, ScanError, UnsupportedError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Node
from icevirt.objects.answers import GONE, Checksum
from icevirt.objects.authorize import Authorizer
from icevirt.objects.fetch import read
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.objects.source_lists.listing import find_changes
from icevirt.objects.stores import document_of_chunk, may_be_chunk
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.repo.commits.validation import any_grid
from icevirt.repo.repository import Repository
from icevirt.repo.session import Session
from icevirt.scan.contract import ByteSource, CodecPackage, GridUse, Policy, ScannerOptions
from icevirt.scan.registry import is_recognized, scan
from icevirt.storage.protocol import Storage
from icevirt.tasks.compare_files import kind_of
from icevirt.versioning.lookup import users_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkToCompare:
    """A chunk whose values are to be compared."""

    array: str
    index: tuple[int, ...]
    offset: int
    length: int
    file: tuple[str, Checksum]  # URL as the reference has it, and what the scan saw
    object: str = ""  # URL of the chunk, where it is an object of a store that is one file


def choose(
    session: Session,
    key: ObjectId12,
    rows: NDArray[np.int64],
    users: Mapping[ObjectId8, ArrayNode],
) -> dict[str, list[ChunkToCompare]]:
    """Return the virtual references among the chosen rows of a manifest, by file.

    Args:
        session: The version of the repository.
        key: Of the manifest.
        rows: Of all tables of the manifest, which follow one another.
        users: The arrays that refer to it.
    """
    authorizer = Authorizer(session.config.virtual_chunk_containers, ())
    chosen: dict[str, list[ChunkToCompare]] = {}
    start = 0
    for node, table in session.assets.read_manifest(key).arrays.items():
        mine = rows[(rows >= start) & (rows < start + len(table))] - start
        start += len(table)
        for row in mine[table.kind[mine] == ChunkType.virtual].tolist() if node in users else ():
            wanted = ChunkToCompare(
                array=users[node].path,
                index=tuple(table.index[row].tolist()),
                offset=int(table.offset[row]),
                length=int(table.length[row]),
                file=file_of(table, int(table.source[row])),
            )
            chosen.setdefault(authorizer.absolute(wanted.file[0]), []).append(wanted)
    return chosen


def by_store(
    chosen: Mapping[str, Sequence[ChunkToCompare]], authorizer: Authorizer
) -> dict[str, list[ChunkToCompare]]:
    """Return references by the file that is scanned: those into objects of a store by the store."""

    def may_look(url: str) -> bool:
        with suppress(IcevirtError):
            authorizer.grant(url)
            return True
        return False

    known: dict[str, str | None] = {}  # documents of stores by folders of chunks
    found: dict[str, list[ChunkToCompare]] = {}
    for url, wanted in chosen.items():
        folder = url.rpartition("/")[0]
        if may_be_chunk(url) and folder not in known:
            known[folder] = document_of_chunk(url, may_look)
        document = known.get(folder)
        mine = [replace(each, object=url) for each in wanted] if document else wanted
        found.setdefault(document or url, []).extend(mine)
    return found


def file_of(table: ChunkTable, number: int) -> tuple[str, Checksum]:
    """Return a location of a table, and what it was when it was scanned."""
    places = table.locations
    checksum = Checksum(etag=places.etag[number], last_modified=int(places.last_modified[number]))
    return places.url[number], checksum


def regions_of(
    session: Session, difference: Difference, wanted: Sequence[ChunkToCompare]
) -> Checked:
    """Return what is wrong with a file, for each array that was to be compared with it."""
    indexes: dict[str, list[tuple[int, ...]]] = {}
    for each in wanted:
        indexes.setdefault(each.array, []).append(each.index)
    return Checked(
        differences=tuple(
            replace(difference, array=array, region=region_of(session, array, np.array(found)))
            for array, found in indexes.items()
        )
    )


def row_of(wanted: ChunkToCompare, array: ScannedArray) -> int | None:
    """Return the row of a scanned array that leads to the wanted bytes."""
    table = array.references
    at = np.flatnonzero(
        (table.kind == ChunkType.virtual)
        & (table.offset == wanted.offset)
        & (table.length == wanted.length)
    )
    if wanted.object and len(at):
        held = table.locations.url[table.source[at]]
        at = at[held.lengths == len(wanted.object.encode())]
        at = at[table.locations.url[table.source[at]].begin_with(wanted.object.encode())]
    return int(at[0]) if len(at) else None


def part_of_chunk(
    wanted: ChunkToCompare, array: ScannedArray
) -> tuple[ScannedArray, tuple[int, ...]] | None:
    """Return the array in chunks as long as the wanted bytes, if these are a part of its chunks.

    Uncompressed chunks are cut along their first axis where files of several lengths share them.
    """
    table, edge = array.references, array.chunk_shape[0] if array.chunk_shape else 0
    if len(array.codecs) != 1 or not edge:
        return None
    offset, length = table.offset.astype(np.int64), table.length.astype(np.int64)
    inside = (offset <= wanted.offset) & (wanted.offset + wanted.length <= offset + length)
    at = np.flatnonzero((table.kind == ChunkType.virtual) & inside)
    if not len(at):
        return None
    row, size = int(at[0]), int(length[at[0]]) // edge
    steps, begin = wanted.length // size, (wanted.offset - int(offset[row])) // size
    if steps * size != wanted.length or begin % steps or edge % steps:
        return None
    first, *rest = table.index[row].tolist()
    number = (first * edge + begin) // steps
    return replace(array, chunk_shape=(steps, *array.chunk_shape[1:])), (number, *rest)


def covers(wanted: ChunkToCompare, array: ScannedArray) -> bool:
    """Say whether the wanted bytes are part of an array that is one uncompressed block."""
    table = array.references
    virtual = table.take(table.kind == ChunkType.virtual)
    if len(array.codecs) != 1 or not len(virtual):
        return False
    end = int((virtual.offset + virtual.length).max())
    return int(virtual.offset.min()) <= wanted.offset and wanted.offset + wanted.length <= end


def group_of(held: str, variables: Iterable[str]) -> str:
    """Return the group of a file that became the root, from the paths of one and the same chunk.

    The path whose end has most in common with the repository's decides, because a dataset can have
    several names in a file; it is the root if not even the last part is the same.
    """
    best, group = 0, paths.ROOT
    for variable in variables:
        mine, theirs = held.split("/"), variable.split("/")
        common = 0
        while mine and theirs and mine[-1] == theirs[-1]:
            mine.pop()
            theirs.pop()
            common += 1
        if common > best:
            best, group = common, "/".join(theirs) or paths.ROOT
    return group


def is_elsewhere(node: Node | None, other: ScannedArray, shift: Mapping[str, int]) -> bool:
    """Say whether the place of a file's variable is unknown, along an axis missing in ``shift``.

    The dataset has more elements along such an axis than the file.
    """
    if not isinstance(node, ArrayNode):
        return False
    own = zip(
        reversed(other.dimension_names), reversed(other.shape), reversed(node.shape), strict=False
    )
    return any((name or "") not in shift and mine != whole for name, mine, whole in own)


type Box = tuple[slice, ...]


def bounds(held: StoredArray) -> list[NDArray[np.int64]]:
    """Return where chunks of a zarr array begin along each axis, and where the last one ends."""
    try:
        return [
            np.minimum(np.arange(-(-length // edge) + 1) * edge, length)
            for length, edge in zip(held.shape, held.zarr.shards or held.zarr.chunks, strict=True)
        ]
    except NotImplementedError:  # their lengths differ
        return [np.cumsum([0, *sizes]) for sizes in held.zarr.read_chunk_sizes]


def box_of(held: StoredArray, first: Sequence[int], last: Sequence[int]) -> Box:
    """Return the elements of the chunks from one index to another, both included."""
    return tuple(
        slice(int(edges[begin]), int(edges[end + 1]))
        for begin, end, edges in zip(first, last, bounds(held), strict=True)
    )


def describe_box(box: Box) -> str:
    """Return a box as text, like ``[3:4, 0:330]``."""
    return "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]"


def region_of(session: Session, path: str, indexes: NDArray[Any]) -> str:
    """Return the smallest box of an array around some chunks, as text.

    Args:
        session: The version of the repository.
        path: Path of the array.
        indexes: Of the chunks, ``(n, ndim)``.
    """
    with any_grid():
        try:
            held = open_array(session, path)
        except FormatError:
            return "[?]"  # what is reported of the chunks says more
        return describe_box(box_of(held, indexes.min(0).tolist(), indexes.max(0).tolist()))


def dimensions_of(held: StoredArray) -> tuple[str | None, ...]:
    """Return the names of all dimensions, as far as the metadata goes."""
    metadata: Any = held.zarr.metadata  # of Zarr v3
    return tuple(metadata.dimension_names or ())


def box_at(index: Sequence[int], edges: Sequence[int], shape: Sequence[int]) -> Box:
    """Return the elements of a chunk of a file."""
    return tuple(
        slice(number * edge, min((number + 1) * edge, length))
        for number, edge, length in zip(index, edges, shape, strict=True)
    )


def shape_of(box: Box) -> tuple[int, ...]:
    """Return how many elements a box has along each axis."""
    return tuple(int(part.stop - part.start) for part in box)


class SourceVariables:
    """The variables of one file, as those who built the dataset may have scanned them.

    Args:
        session: The version of the repository.
        source: The file.
        scanner: That was named for the dataset; "" where content decides. Files of references lead
            to files that it cannot describe: content decides for these.
    """

    def __init__(self, session: Session, source: ByteSource, scanner: str = "") -> None:
        self.scanner = scanner
        self.group = paths.ROOT  # of the file, which became the root
        self._session = session
        self._source = source
        self._renamed: dict[str, str] = {}  # dimensions of the file, as the dataset calls them
        self._scans: dict[str | None, ScannedFile] = {}
        self._stored: tuple[tuple[str, str], ...] = ()  # policies of variables, as of a build

    @property
    def arrays(self) -> Sequence[ScannedArray]:
        """All of them, uncut."""
        return self._scan(None).arrays

    def find(
        self, wanted: ChunkToCompare, names: Iterable[str | None]
    ) -> tuple[ScannedArray, tuple[int, ...]] | None:
        """Find the variable and the chunk of the file that lie where the reference points.

        All dimensions of the array are tried: files may have been concatenated along any.
        """
        others: list[str] = []
        tried: list[str | None] = [None, *names]
        own = (name for array in self.arrays for name in array.dimension_names)
        # those that the file calls otherwise last
        for dimension in dict.fromkeys(itertools.chain(tried, own)):
            for array in self._scan(dimension).arrays:
                row = row_of(wanted, array)
                if row is not None and wanted.array.endswith(array.path):
                    return array, tuple(array.references.index[row].tolist())
                if row is not None and self.group == paths.ROOT:
                    others.append(array.path)
        for array in self.arrays:
            found = part_of_chunk(wanted, array)
            if found is not None and wanted.array.endswith(array.path):
                return found
            if found is not None and self.group == paths.ROOT:
                others.append(array.path)
        group = group_of(wanted.array, others)
        if group != paths.ROOT:
            self.group, self._scans = group, {}
            return self.find(wanted, names)
        return None

    def in_file(self, variable: str) -> str:
        """Return the path of a variable in the file."""
        return self.group.rstrip("/") + variable

    def rename(self, variable: str) -> str:
        """Return what the dataset calls the coordinate of a dimension that it gave another name."""
        own = paths.name(variable)
        return variable.removesuffix(own) + self._renamed.get(own, own)

    def call(self, theirs: Sequence[str | None], mine: Sequence[str | None]) -> None:
        """Note dimensions that the dataset gave other names, and look for their coordinates."""
        for name, now in zip(theirs, mine, strict=False):
            if name and now and name != now and self._renamed.get(name) != now:
                self._renamed[name] = now
                self._scans.clear()

    def _scan(self, concat_dim: str | None) -> ScannedFile:
        if concat_dim not in self._scans:
            # what a build left out may be what no scan can describe
            names = {paths.name(node.path) for node in self._session.snapshot.arrays()}
            names |= self._renamed.keys()
            self._scans[concat_dim] = self.scan(concat_dim, variables=tuple(sorted(names)))
        return self._scans[concat_dim]

    def scan(self, concat_dim: str | None = None, **more: Any) -> ScannedFile:
        """Scan the file; ``more`` are options of a scanner."""
        known = tuple(each.value for each in CodecPackage)  # those who built may have accepted any
        options = ScannerOptions(
            concat_dim=concat_dim, group=self.group, codecs=known, policy=self._stored, **more
        )
        try:
            return scan(self._source, replace(options, scanner=self.scanner))
        except ScanError as error:
            refusals = [error]
            if isinstance(error, UnsupportedError):  # the dataset may have a group of each grid
                apart = replace(options, scanner=self.scanner, grids=GridUse.groups.value)
                try:
                    return scan(self._source, apart)
                except ScanError as other:
                    refusals.append(other)
            if any(map(self._is_stored, refusals)):
                return self.scan(concat_dim, **more)
            if not self.scanner or not is_recognized(self._source):
                raise
            self.scanner = ""
            return scan(self._source, options)

    def _is_stored(self, error: ScanError) -> bool:
        """Note that the dataset stores what cannot be referenced; say whether that is new."""
        rule = (str(error.facts.get("variable", "")), Policy.native.value)
        if not isinstance(error, UnsupportedError) or not rule[0] or rule in self._stored:
            return False
        self._stored += (rule,)
        return True


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
    index_of: Mapping[str, str] | None = None  # where indices were let count all elements
    scanners: Mapping[str, str] = field(default_factory=dict)  # that were named, by group
    rows: tuple[Any, ...] = ()  # for `compare_values`: by manifest, which references

    def scanner_of(self, path: str) -> str:
        """Return the scanner that was named for the dataset of an array; "" for none."""
        group = path
        while group not in self.scanners and group != paths.ROOT:
            group = paths.parent(group)
        return self.scanners.get(group, "")

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
