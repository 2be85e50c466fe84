"""Scanned files as the rows of a catalog part."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from icevirt.archive import catalog
from icevirt.archive.packing import PackedBlock, pack
from icevirt.archive.scanned import Finding, ScannedArray, ScannedFile
from icevirt.archive.schema import ArraySchema, file_signature
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.spark.attempt import Outcome
from icevirt.spark.catalog import PartTables
from icevirt.spark.limits import DEFAULT, Limits


def tables_of(outcomes: Sequence[Outcome], limits: Limits = DEFAULT) -> PartTables:
    """Turn the outcomes of a part, scanned under ``limits``, into the rows of its three tables."""
    arrays: dict[str, list[Any]] = {name: [] for name, _ in catalog.ARRAYS}
    tables: dict[str, list[tuple[int, ChunkTable]]] = defaultdict(list)
    files: list[dict[str, Any]] = []
    for row, outcome in enumerate(outcomes):
        own: list[tuple[str, str]] = []
        for array in outcome.scanned.arrays if outcome.scanned else ():
            told = _array_row(row, array)
            own.append((array.path, told["schema"]))
            for name, value in told.items():
                arrays[name].append(value)
            tables[array.path].append((row, array.references))
        signature = file_signature(own) if outcome.scanned else ""
        files.append(_file_row(row, outcome, limits) | {"signature": signature})
    urls = [outcome.file.url for outcome in outcomes]
    return PartTables(
        files=_columns(files),
        arrays=arrays,
        refs=[(path, block) for path in sorted(tables) for block in _blocks(tables[path], urls)],
    )


def findings_json(findings: Iterable[Finding]) -> str:
    """Return findings as a catalog holds them: each once, however many tasks found it."""
    told = sorted(dict.fromkeys(findings), key=lambda finding: finding.path)
    return json.dumps([asdict(finding) for finding in told])


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name, _ in catalog.FILES}


def _file_row(row: int, outcome: Outcome, limits: Limits) -> dict[str, Any]:
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
    urls = {url for array in scanned.arrays for url in array.references.locations.url}
    if urls == {own}:
        return ""
    return json.dumps(sorted({url.rsplit("/", 1)[0] + "/" for url in urls}))


def _array_row(row: int, array: ScannedArray) -> dict[str, Any]:
    table = array.references
    virtual = table.kind == ChunkType.virtual
    return {
        "row": row,
        "path": array.path,
        "schema": ArraySchema.of(array).dumps(),
        "shape": json.dumps(array.shape),
        "labels": array.labels,
        "labels_dtype": array.labels_dtype,
        "digest": array.digest,
        "virtual": int(virtual.sum()),
        "inline": int((~virtual).sum()),
        "virtual_bytes": int(table.length[virtual].sum()),
        "inline_bytes": int(table.length[~virtual].sum()),
    }


def _blocks(tables: Iterable[tuple[int, ChunkTable]], urls: Sequence[str]) -> Iterable[PackedBlock]:
    """Pack tables, closing a block when it holds enough references or bytes."""
    run: list[tuple[int, ChunkTable]] = []
    refs = data = 0
    for row, table in tables:
        for piece in _pieces(table):
            if run and run[-1][1].ndim != piece.ndim:  # files that only share the name
                yield _packed(run, urls)
                run, refs, data = [], 0, 0
            run.append((row, piece))
            refs += len(piece)
            data += len(piece.inline)
            if refs >= catalog.BLOCK_REFS or data >= catalog.BLOCK_DATA:
                yield _packed(run, urls)
                run, refs, data = [], 0, 0
    if run:
        yield _packed(run, urls)


def _pieces(table: ChunkTable) -> Iterator[ChunkTable]:
    """Cut the table of a huge array, so that nobody has to hold all of it."""
    if len(table) <= catalog.BLOCK_REFS or len(table.inline):
        yield table
        return
    for low in range(0, len(table), catalog.BLOCK_REFS):
        yield table.take(np.arange(low, min(low + catalog.BLOCK_REFS, len(table))))


def _packed(run: Sequence[tuple[int, ChunkTable]], urls: Sequence[str]) -> PackedBlock:
    return pack([row for row, _ in run], [t for _, t in run], [urls[row] for row, _ in run])
