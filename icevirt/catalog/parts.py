"""Make and store catalog parts: scan tasks write them, plans read them.

Parquet through pyarrow and the repository's own storage, because pip's Spark has no cloud file
systems. The bytes of a part depend on its content only.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import zstandard

from icevirt.archive import catalog
from icevirt.archive.array_layouts import ArrayLayout, LaidOutArrays, locations_of
from icevirt.archive.blocks.packing import PackedBlock, pack
from icevirt.archive.catalog import CatalogPart, path_of, scan_of
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import (
    DEFAULT,
    FactsBeside,
    Finding,
    ScanLimits,
    ScannedArray,
    ScannedFile,
    ScanOutcome,
    SchemaTexts,
)
from icevirt.archive.sources import SourceFile
from icevirt.catalog.array_rows import ArrayRow, ArrayRows
from icevirt.catalog.facts_beside import fact_row, write_fact_columns
from icevirt.catalog.parquet import REQUESTED, encode_table, files_of, read_table, telling_damage
from icevirt.catalog.references import encode
from icevirt.catalog.stacked_files import StackedFiles
from icevirt.errors import AlreadyExistsError, FormatError, NotFoundError, ObjectNotFoundError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import loads
from icevirt.planning.normal_form import file_signature
from icevirt.remedy_notation import dump_remedy
from icevirt.storage.local import LocalStorage
from icevirt.storage.protocol import Below, ObjectInfo, Storage

MARK = "catalog.json"
"""The object that makes a storage a catalog."""

_KEY = "icevirt_catalog"
_REMEMBERED = 128  # arrays that are described once
_NONE = "[]"  # an empty list as JSON


type _Schemas = tuple[tuple[str, str], ...]
"""Path and schema of arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTables:
    """The rows of a part, as columns by name, in the order of `icevirt.archive.catalog`."""

    files: Mapping[str, Sequence[Any]]
    arrays: Mapping[str, Sequence[Any]]
    refs: Iterable[tuple[str, PackedBlock]]  # (path of the array, block)
    more: Sequence[Mapping[str, Any]] = ()  # facts beside, a row each


def mark(storage: Storage) -> None:
    """Make the storage a catalog, or check that it is one of this version.

    Raises:
        AlreadyExistsError: It holds something that is no catalog.
        FormatError: It is a catalog of another version.
    """
    if storage.exists():
        check_mark(storage)
        return
    try:
        storage.put(MARK, json.dumps({_KEY: catalog.VERSION}).encode())
    except ObjectNotFoundError:  # nothing but empty directories is there, and one has this name
        _version(storage)
        raise


def check_mark(storage: Storage) -> None:
    """Check that the storage is a catalog of this version.

    Raises:
        NotFoundError: Nothing is there.
        AlreadyExistsError: It holds something that is no catalog.
        FormatError: It is a catalog of another version.
    """
    if not storage.exists():
        raise NotFoundError("no such catalog", do="Check the path.", catalog=storage.url)
    found = _version(storage)
    if found != catalog.VERSION:
        raise FormatError(
            "the catalog was written by another version of icevirt",
            do="Name another directory for the catalog.",
            catalog=storage.url,
            found=found,
            expected=catalog.VERSION,
        )


def _version(storage: Storage) -> Any:
    """Return the version in the mark; other formats have a ``catalog.json`` too."""
    try:
        return loads(storage.get(MARK))[_KEY]
    except (ObjectNotFoundError, ValueError, KeyError, TypeError) as error:
        raise AlreadyExistsError(
            "the path of the catalog holds something else",
            do="Name an empty or new directory for the catalog.",
            catalog=storage.url,
        ) from error


def complete_parts(storage: Storage) -> dict[str, int]:
    """Return when the parts whose three tables are there were written, by name."""
    return {name: info.last_modified for name, info in tables_of_files(storage).items()}


def tables_of_files(storage: Storage) -> dict[str, ObjectInfo]:
    """Return the tables of files, by the name of their part, which is complete."""
    return {
        info.path.removeprefix("files/").removesuffix(".parquet"): info
        for info in storage.list("files")
        if info.path.endswith(".parquet")
    }


def write_part(storage: Storage, run: str, tables: PartTables) -> str:
    """Write what was found in a run of files; it counts once its ``files`` table is there.

    Returns the name of the part. It covers the content, so that a task that was thought dead and
    writes after its successor found something else replaces none of its tables.
    """
    more = {name: [row[name] for row in tables.more] for name, _ in catalog.MORE}
    return write_columns(
        storage, run, files=tables.files, arrays=tables.arrays, refs=tables.refs, more=more
    )


def write_columns(
    storage: Storage,
    run: str,
    *,
    files: Mapping[str, Sequence[Any]],
    arrays: Mapping[str, Sequence[Any]],
    refs: Iterable[tuple[str, PackedBlock]],
    more: Mapping[str, Sequence[Any]],
) -> str:
    """Write a part as `write_part` does, with all its tables as columns by name."""
    packed, rows = encode(refs, run), encode_table(arrays, catalog.ARRAYS, run)
    name = f"{run}-{hashlib.blake2b(packed + rows, digest_size=8).hexdigest()}"
    storage.put(catalog.path_of("refs", name), packed)
    storage.put(catalog.path_of("arrays", name), rows)
    if len(more["row"]):  # before the part counts: no scan looks for them again
        write_fact_columns(storage, name, more)
    storage.put(catalog.path_of("files", name), encode_table(files, catalog.FILES, run))
    return name


class PartRows:
    """Gathers the rows of a part from one file after another.

    References are packed as they come and full blocks compressed, so that the files of a part, or
    the arrays of a huge one, are not held as they were scanned.
    """

    def __init__(
        self,
        limits: ScanLimits = DEFAULT,
        wanted: Callable[[ScannedArray], Fact] | None = None,
    ) -> None:
        """Take the limits of the scan, and what says which facts it looked for."""
        self._limits, self._wanted = limits, wanted
        self._more: list[dict[str, Any]] = []
        self._files: list[dict[str, Any]] = []
        self._arrays = ArrayRows()
        self._urls: list[str] = []
        self._blocks: dict[str, _Blocks] = defaultdict(lambda: _Blocks(self._urls))
        self._schemas = SchemaTexts()
        self._known: dict[int, tuple[ScannedArray, int, tuple[str, str], Fact]] = {}  # by id
        self._signatures: dict[Hashable, str] = {}
        self._stacks: dict[Hashable, StackedFiles] = {}
        self._stack_of: dict[int, tuple[ArrayLayout, StackedFiles | None]] = {}  # by id

    def add(self, outcome: ScanOutcome) -> None:
        """Add a file of the part, the next one."""
        row = len(self._files)
        self._urls.append(outcome.file.url)
        arrays: Sequence[ScannedArray] = outcome.scanned.arrays if outcome.scanned else ()
        if isinstance(arrays, LaidOutArrays) and (stack := self._find_stack(arrays.layout)):
            schemas = self._add_each(row, arrays.own), stack.schemas
            self._arrays.add(row, stack.numbers, stack.add(row, arrays))
            if stack.is_full:
                self._close(stack)
        else:
            schemas = self._add_each(row, arrays), ()
        signature = self._sign(*schemas) if outcome.scanned else ""
        self._files.append(_file_row(row, outcome, self._limits) | {"signature": signature})

    def _sign(self, own: _Schemas, shared: _Schemas) -> str:
        """Return the signature of a file; that of files with the same layout is looked up."""
        key = own, id(shared)
        if (found := self._signatures.get(key) if shared else None) is not None:
            return found
        found = file_signature(own + shared)
        if shared:  # the stack that has them is held as long as this
            self._signatures[key] = found
        return found

    def _add_each(self, row: int, arrays: Iterable[ScannedArray]) -> _Schemas:
        """Add arrays of a file; return path and schema of each."""
        numbers, schemas = list[int](), list[tuple[str, str]]()
        for array in arrays:
            number, schema, asked = self._describe(array)
            numbers.append(number)
            schemas.append(schema)
            self._blocks[array.path].add(row, array.references)
            if asked:
                self._more.append(fact_row(row, array, asked))
        self._arrays.add(row, numbers)
        return tuple(schemas)

    def _find_stack(self, layout: ArrayLayout) -> StackedFiles | None:
        """Return the files of a layout; None where facts are wanted beside its arrays.

        Layouts are told apart by what they say: another process may have made equal ones.
        """
        if (known := self._stack_of.get(id(layout))) is not None:
            return known[1]
        stack = None
        if layout.arrays and not any(map(self._note_asked, layout.arrays)):
            rows = [_array_row(array, self._schemas) for array in layout.arrays]
            indices = tuple(array.references.index.tobytes() for array in layout.arrays)
            said = (*(row[:3] for row in rows), indices)
            if (stack := self._stacks.get(said)) is None:
                schemas, numbers = tuple(row[:2] for row in rows), [*map(self._arrays.say, rows)]
                stack = self._stacks[said] = StackedFiles(layout, schemas, numbers)
        if len(self._stack_of) >= _REMEMBERED:
            self._stack_of.clear()
        self._stack_of[id(layout)] = layout, stack  # one that is held leaves its id to no other
        return stack

    def _close(self, stack: StackedFiles) -> None:
        """Pack what a stack holds."""
        for path, block in stack.pack():
            self._blocks[path].close_with(frozen(block) if stack.is_full else block)
        stack.clear()

    def _describe(self, array: ScannedArray) -> tuple[int, tuple[str, str], Fact]:
        """Return the number of what the row of an array says, its path and schema, and facts.

        Scanners return equal arrays as one.
        """
        if (known := self._known.get(id(array))) is not None:
            return known[1:]
        row = _array_row(array, self._schemas)
        number, schema, asked = self._arrays.say(row), row[:2], self._note_asked(array)
        if array.whole:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            # an array that is held leaves its id to no other
            self._known[id(array)] = array, number, schema, asked
        return number, schema, asked

    def _note_asked(self, array: ScannedArray) -> Fact:
        """Return the facts beside an array that need not be looked for again."""
        asked = Fact.none if self._wanted is None else self._wanted(array)
        if asked is Fact.none and array.beside is None:
            return asked
        beside = array.beside or FactsBeside()
        if beside.values is None:  # a plan that needs them says why they could not be stored
            asked &= ~Fact.values
        if beside.digest:
            asked |= Fact.digest
        if array.digest:
            asked &= ~Fact.digest
        return asked & ~Fact.labels if array.labels is not None else asked

    def tables(self) -> PartTables:
        """Return the rows; the references once, block by block."""
        for stack in self._stacks.values():
            self._close(stack)
        return PartTables(
            files={name: [row[name] for row in self._files] for name, _ in catalog.FILES},
            arrays=self._arrays.columns(),
            refs=(
                (path, block)
                for path in sorted(self._blocks)
                for block in self._blocks[path].pack()
            ),
            more=self._more,
        )


def findings_json(findings: Iterable[Finding]) -> str:
    """Return findings as a catalog holds them: each once, however many tasks found it."""
    unique = sorted(dict.fromkeys(findings), key=lambda finding: finding.path)
    if not unique:
        return _NONE
    return json.dumps([asdict(finding) for finding in unique])


def _file_row(row: int, outcome: ScanOutcome, limits: ScanLimits) -> dict[str, Any]:
    scanned, error = outcome.scanned, outcome.error
    groups = scanned.groups if scanned else ()
    left_out = scanned.left_out if scanned else ()
    return {
        "row": row,
        "url": outcome.file.url,
        "size": outcome.file.size,
        "etag": outcome.file.etag,
        "last_modified": outcome.file.last_modified,
        "status": catalog.status_of(error.code) if error else catalog.OK,
        "code": error.code if error else "",
        "error": dump_remedy(str(error)) if error else "",
        "time_limit": limits.seconds,
        "memory_limit": limits.memory,
        "scanner": scanned.scanner if scanned else "",
        "scanner_version": scanned.scanner_version if scanned else "",
        "seconds": round(outcome.seconds, 6),
        "requests": outcome.requests,
        "bytes_fetched": outcome.bytes_fetched,
        "groups": json.dumps(
            [
                {
                    "path": group.path,
                    "values": dict(group.attributes.values),
                    "dtypes": dict(group.attributes.dtypes),
                }
                for group in groups
            ]
        ),
        "findings": findings_json(scanned.findings if scanned else ()),
        "places": _places(scanned) if scanned else "",
        "left_out": _NONE if not left_out else json.dumps(sorted({*left_out})),
    }


def _places(scanned: ScannedFile) -> str:
    """Say where the file's references lead, unless it is into itself only."""
    own = scanned.source.url
    if scanned.source.is_store:
        return json.dumps([own.rpartition("/")[0] + "/"])
    held = {id(each): each for each in locations_of(scanned.arrays)}
    if held and all(each.are_only(own) for each in held.values()):
        return "" if any(map(len, held.values())) else "[]"
    urls = {url for each in held.values() for url in each.url}
    if urls == {own}:
        return ""
    return json.dumps(sorted({url.rsplit("/", 1)[0] + "/" for url in urls}))


@lru_cache(1024)
def _shape_text(shape: tuple[int, ...]) -> str:
    return json.dumps(shape)


def _array_row(array: ScannedArray, schemas: SchemaTexts) -> ArrayRow:
    """Return the columns of an array but its row, in the order of the catalog."""
    table = array.references
    count, nbytes = table.count(ChunkType.virtual), int(table.length.sum())
    if 0 < count < len(table):
        referenced = int(table.length[table.kind == ChunkType.virtual].sum())
    else:
        referenced = nbytes if count else 0
    return (
        array.path,
        schemas.of(array),
        _shape_text(array.shape),
        array.labels,
        array.labels_dtype,
        array.digest,
        count,
        len(table) - count,
        referenced,
        nbytes - referenced,
    )


class _Blocks:
    """The packed blocks of one array, each closed when it holds enough references or bytes."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._full: list[bytes | PackedBlock] = []  # large ones compressed
        self._run: list[tuple[int, ChunkTable]] = []
        self._refs = self._data = 0

    def add(self, row: int, table: ChunkTable) -> None:
        """Add the references of a file."""
        for piece in _pieces(table):
            if self._run and self._run[-1][1].ndim != piece.ndim:  # they only share the name
                self._close()
            self._run.append((row, piece))
            self._refs += len(piece)
            self._data += len(piece.inline)
            if self._refs >= catalog.BLOCK_REFS or self._data >= catalog.BLOCK_DATA:
                self._close()

    def close_with(self, block: bytes | PackedBlock) -> None:
        """Close the block that is open, and add one."""
        if self._run:
            self._close()
        self._full.append(block)

    def pack(self) -> Iterator[PackedBlock]:
        """Yield the blocks, the last one not full."""
        yield from (thaw(each) if isinstance(each, bytes) else each for each in self._full)
        if self._run:
            yield _pack(self._run, self._urls)

    def _close(self) -> None:
        self._full.append(frozen(_pack(self._run, self._urls)))
        self._run, self._refs, self._data = [], 0, 0


def frozen(value: object) -> bytes:
    """Return a value pickled and compressed."""
    raw = zstandard.ZstdCompressor(level=1).compress(pickle.dumps(value))
    return bytes(memoryview(raw))  # it keeps a buffer of the size that it might have needed


def thaw(raw: bytes) -> Any:
    """Return the value of which `frozen` was called, in this job."""
    return pickle.loads(zstandard.ZstdDecompressor().decompress(raw))  # noqa: S301


def _pieces(table: ChunkTable) -> Iterator[ChunkTable]:
    """Cut the table of a huge array, so that it is never packed whole."""
    if len(table) <= catalog.BLOCK_REFS or len(table.inline):
        yield table
        return
    for low in range(0, len(table), catalog.BLOCK_REFS):
        piece = table.take(np.arange(low, min(low + catalog.BLOCK_REFS, len(table))))
        used, source = np.unique(piece.source, return_inverse=True)
        held = table.locations if len(table.locations) == len(used) else table.locations.take(used)
        yield replace(piece, source=source.astype(np.uint32), locations=held)


def _pack(run: Sequence[tuple[int, ChunkTable]], urls: Sequence[str]) -> PackedBlock:
    return pack([row for row, _ in run], [t for _, t in run], [urls[row] for row, _ in run])


_SCANS, _REQUESTED, _SCANNING = "scans", "asked", "opening"  # folders


def describe_scan(storage: Storage, identity: str, options: Mapping[str, Any]) -> None:
    """Record the options behind an identity in the names of parts."""
    storage.put(f"{_SCANS}/{identity}.json", json.dumps(options, indent=1).encode())


def read_scans(storage: Storage) -> dict[str, Any]:
    """Return the options of the scans of a catalog, by identity."""
    found = {}
    for info in storage.list(_SCANS):
        note = storage.get(info.path)
        with telling_damage(info.path):
            scan = json.loads(note)
            if not all(isinstance(scan[kind], dict) for kind in ("options", "scanners")):
                raise TypeError("it does not describe a scan")
        found[info.path.rpartition("/")[2].removesuffix(".json")] = scan
    return found


def note_asked(storage: Storage, identity: str, files: Sequence[SourceFile]) -> None:
    """Record which files a scan is about to scan, in their order."""
    if not files:
        return
    columns = {name: [getattr(file, name) for file in files] for name, _ in REQUESTED}
    note = encode_table(columns, REQUESTED)
    name = f"{identity}-{hashlib.blake2b(note, digest_size=16).hexdigest()}"
    storage.put(path_of(_REQUESTED, name), note)


def files_asked(storage: Storage, identity: str) -> tuple[SourceFile, ...]:
    """Return the files that scans of an identity requested, in the order of their first request.

    Each is described as it was listed the last time that it had to be scanned; it may have changed
    since.

    Raises:
        FormatError: A note is damaged.
    """
    found: dict[str, SourceFile] = {}
    names = [name for name, _ in REQUESTED]
    for info in sorted(storage.list(_REQUESTED), key=lambda info: (info.last_modified, info.path)):
        if scan_of(info.path.removeprefix(f"{_REQUESTED}/")) == identity:
            for file in files_of(read_table(storage, info.path, names)):
                found[file.url] = file
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class ScanNotes:
    """Marks of the parts that are being scanned, by which the next attempt notices a dead process.

    A part is marked when its scan begins, and the mark is removed when the scan ends, however it
    ends: only a process that died leaves one. Cost: a listing per task, two small writes per part.
    None waits for the disk: who cuts the power is known without them.
    """

    storage: Storage

    def has_died_in(self, parts: Sequence[CatalogPart]) -> bool:
        """Say whether an earlier scan of one of the parts died, or is still running elsewhere."""
        noted = {info.path for info in self.storage.list(_SCANNING)}
        return any(path_of(_SCANNING, part.label) in noted for part in parts)

    @contextmanager
    def scanning(self, part: CatalogPart) -> Iterator[None]:
        """Keep a mark of the part for as long as the block runs."""
        note, storage = path_of(_SCANNING, part.label), _without_waiting(self.storage)
        storage.put(note, b"")
        try:
            yield
        finally:
            storage.delete(note)


def _without_waiting(storage: Storage) -> Storage:
    """Return a storage whose writes return before the disk has them, where it is a local one."""
    if isinstance(storage, Below):
        return Below(_without_waiting(storage.storage), storage.prefix)
    return storage.not_waiting() if isinstance(storage, LocalStorage) else storage
