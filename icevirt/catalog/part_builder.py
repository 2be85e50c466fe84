"""Convert scanned files to the rows of a catalog part."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import zstandard

from icevirt.archive import catalog
from icevirt.archive.blocks.packing import PackedBlock, pack
from icevirt.archive.joining import Fact
from icevirt.archive.limits import DEFAULT, ScanLimits
from icevirt.archive.scanned import FactsBeside, Finding, ScannedArray, ScannedFile, ScanOutcome
from icevirt.archive.schema import ArraySchema, SchemaTexts, file_signature
from icevirt.catalog.facts_beside import fact_row
from icevirt.catalog.parts import PartTables
from icevirt.model.chunks import ChunkTable, ChunkType

_VIRTUAL = int(ChunkType.virtual)


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
        self._arrays: dict[str, list[Any]] = {name: [] for name, _ in catalog.ARRAYS}
        self._urls: list[str] = []
        self._blocks: dict[str, _Blocks] = defaultdict(lambda: _Blocks(self._urls))
        self._schemas = SchemaTexts()

    def add(self, outcome: ScanOutcome) -> None:
        """Add a file of the part, the next one."""
        row, own = len(self._files), list[tuple[str, str]]()
        self._urls.append(outcome.file.url)
        for array in outcome.scanned.arrays if outcome.scanned else ():
            told = _array_row(row, array, self._schemas)
            own.append((array.path, told["schema"]))
            for name, value in told.items():
                self._arrays[name].append(value)
            self._blocks[array.path].add(row, array.references)
            if asked := self._asked(array):
                self._more.append(fact_row(row, array, asked))
        signature = file_signature(tuple(own)) if outcome.scanned else ""
        self._files.append(_file_row(row, outcome, self._limits) | {"signature": signature})

    def _asked(self, array: ScannedArray) -> Fact:
        """Return the facts beside an array that need not be looked for again."""
        beside = array.beside or FactsBeside()
        asked = Fact.none if self._wanted is None else self._wanted(array)
        if beside.values is None:  # why they could not be stored is told to whoever needs them
            asked &= ~Fact.values
        return (asked | Fact.digest if beside.digest else asked) & ~_known(array)

    def tables(self) -> PartTables:
        """Return the rows; the references once, block by block."""
        return PartTables(
            files=_columns(self._files),
            arrays=self._arrays,
            refs=(
                (path, block)
                for path in sorted(self._blocks)
                for block in self._blocks[path].packed()
            ),
            more=self._more,
        )


def _known(array: ScannedArray) -> Fact:
    """Return the facts that the description of an array holds."""
    return (Fact.digest if array.digest else Fact.none) | (
        Fact.none if array.labels is None else Fact.labels
    )


def findings_json(findings: Iterable[Finding]) -> str:
    """Return findings as a catalog holds them: each once, however many tasks found it."""
    told = sorted(dict.fromkeys(findings), key=lambda finding: finding.path)
    return json.dumps([asdict(finding) for finding in told])


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name, _ in catalog.FILES}


def _file_row(row: int, outcome: ScanOutcome, limits: ScanLimits) -> dict[str, Any]:
    scanned, error = outcome.scanned, outcome.error
    groups = scanned.groups if scanned else ()
    return {
        "row": row,
        "url": outcome.file.url,
        "size": outcome.file.size,
        "etag": outcome.file.etag,
        "last_modified": outcome.file.last_modified,
        "status": catalog.status_of(error.code) if error else catalog.OK,
        "code": error.code if error else "",
        "error": str(error) if error else "",
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
        "left_out": json.dumps(sorted({*scanned.left_out}) if scanned else []),
    }


def _places(scanned: ScannedFile) -> str:
    """Say where the file's references lead, unless it is into itself only."""
    own = scanned.source.url
    held = {id(each): each for each in (array.references.locations for array in scanned.arrays)}
    urls = {url for each in held.values() for url in each.url}
    if urls == {own}:
        return ""
    return json.dumps(sorted({url.rsplit("/", 1)[0] + "/" for url in urls}))


def _array_row(row: int, array: ScannedArray, schemas: SchemaTexts) -> dict[str, Any]:
    table = array.references
    virtual = table.kind == _VIRTUAL
    count, nbytes = int(np.count_nonzero(virtual)), int(table.length.sum())
    if 0 < count < len(table):
        referenced = int(table.length[virtual].sum())
    else:
        referenced = nbytes if count else 0
    return {
        "row": row,
        "path": array.path,
        "schema": schemas.of(ArraySchema.of(array)),
        "shape": json.dumps(array.shape),
        "labels": array.labels,
        "labels_dtype": array.labels_dtype,
        "digest": array.digest,
        "virtual": count,
        "inline": len(table) - count,
        "virtual_bytes": referenced,
        "inline_bytes": nbytes - referenced,
    }


class _Blocks:
    """The packed blocks of one array, each closed when it holds enough references or bytes."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._full: list[bytes] = []
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

    def packed(self) -> Iterator[PackedBlock]:
        """Yield the blocks, the last one not full."""
        yield from map(_thawed, self._full)
        if self._run:
            yield _packed(self._run, self._urls)

    def _close(self) -> None:
        self._full.append(_frozen(_packed(self._run, self._urls)))
        self._run, self._refs, self._data = [], 0, 0


def _frozen(block: PackedBlock) -> bytes:
    raw = zstandard.ZstdCompressor(level=1).compress(pickle.dumps(block))
    return bytes(memoryview(raw))  # it keeps a buffer of the size that it might have needed


def _thawed(raw: bytes) -> PackedBlock:
    raw = zstandard.ZstdDecompressor().decompress(raw)
    block: PackedBlock = pickle.loads(raw)  # noqa: S301  # made by `_frozen`
    return block


def _pieces(table: ChunkTable) -> Iterator[ChunkTable]:
    """Cut the table of a huge array, so that nobody has to hold all of it."""
    if len(table) <= catalog.BLOCK_REFS or len(table.inline):
        yield table
        return
    for low in range(0, len(table), catalog.BLOCK_REFS):
        yield table.take(np.arange(low, min(low + catalog.BLOCK_REFS, len(table))))


def _packed(run: Sequence[tuple[int, ChunkTable]], urls: Sequence[str]) -> PackedBlock:
    return pack([row for row, _ in run], [t for _, t in run], [urls[row] for row, _ in run])
