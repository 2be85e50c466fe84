"""Scan one huge file in several tasks, and join their pieces to one catalog part.

A piece lies below ``pieces`` of the catalog until the scan ends. The task that finds all pieces
joins them; two that do so at once write the same. Everything unusual is left to one task that scans
the file whole: an error (which then names all that is wrong), values that together exceed what may
be stored, pieces that do not fit.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

from icevirt.archive import catalog
from icevirt.archive.catalog import CatalogPart
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import Finding, ScanLimits, ScannedArray, ScanOutcome, Severity, Share
from icevirt.catalog import references
from icevirt.catalog.parts import PartRows, PartTables, complete_parts, findings_json, write_part
from icevirt.errors import ScanCrashError, ScanMemoryError, ScanTimeoutError
from icevirt.planning.normal_form import file_signature
from icevirt.storage.protocol import Below, Storage
from icevirt.version import __version__

_FOLDER = "pieces"
_TOTALS = ("virtual", "inline", "virtual_bytes", "inline_bytes")
_SPENT = ("seconds", "requests", "bytes_fetched")
_LIMITS = (ScanCrashError.code, ScanMemoryError.code, ScanTimeoutError.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PieceResult:
    """What a task found in its share, but for the references."""

    name: str  # of the piece
    file: dict[str, Any]  # its row
    arrays: list[dict[str, Any]]
    findings: tuple[Finding, ...] = ()
    share: Share = field(default_factory=Share)
    tally: Mapping[str, int] = field(default_factory=dict)
    more: list[dict[str, Any]] = field(default_factory=list)  # facts beside

    @classmethod
    def loads(cls, raw: bytes) -> _PieceResult:
        """Return the result that a piece's JSON holds."""

        def unhex(value: dict[str, Any]) -> Any:
            return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else value

        found = json.loads(raw, object_hook=unhex)
        share, findings = found.pop("share"), found.pop("findings")
        return cls(
            **found,
            findings=tuple(
                Finding(**{**each, "severity": Severity(each["severity"])}) for each in findings
            ),
            share=Share(
                order=tuple(share["order"]),
                whole=frozenset(share["whole"]),
                runs={path: (low, high) for path, (low, high) in share["runs"].items()},
            ),
        )


def _as_json(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return {each.name: getattr(value, each.name) for each in fields(value)}


def clear(storage: Storage) -> None:
    """Delete the pieces of all parts that are complete."""
    if there := {info.path.split("/")[1] for info in storage.list(_FOLDER)}:
        for name in there & _complete(storage):
            storage.delete_below(f"{_FOLDER}/{name}")


def _complete(storage: Storage) -> set[str]:
    return {catalog.run_of(name) for name in complete_parts(storage)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The pieces of the huge file that is all of ``part``, which says what piece is at hand."""

    catalog: Storage
    part: CatalogPart
    limits: ScanLimits
    max_stored: int  # bytes of values, of the whole file
    wanted: Callable[[ScannedArray], Fact] | None = None  # see `PartRows`

    def is_there(self) -> bool:
        """Say whether this piece is finished."""
        return self._name(self.part.piece) in self._list_found()

    def wait_to_be_joined(self) -> bool:
        """Say whether all pieces are finished, and the part does not exist."""
        every = {self._name(number) for number in range(self.part.of)}
        return every <= self._list_found() and self.part.name not in _complete(self.catalog)

    def write(self, outcome: ScanOutcome) -> None:
        """Write what a task found in its share."""
        rows = PartRows(self.limits, self.wanted)
        rows.add(outcome)
        tables = rows.tables()
        name, scanned = self._name(self.part.piece), outcome.scanned
        found = _PieceResult(
            name=name,
            file=_rows(tables.files)[0],
            arrays=_rows(tables.arrays),
            findings=scanned.findings if scanned else (),
            share=outcome.share or Share(),
            tally=scanned.tally if scanned else {},
            more=[dict(row) for row in tables.more],
        )
        self._storage.put(
            catalog.path_of("refs", name), references.encode(tables.refs, catalog.run_of(name))
        )
        self._storage.put(f"found/{name}", json.dumps(found, default=_as_json).encode())

    def join(self) -> bool:
        """Write the part; False where one task must scan the file whole."""
        tables = self._tables()
        if tables is not None:
            write_part(self.catalog, self.part.name, tables)
        return tables is not None

    @property
    def _storage(self) -> Storage:
        return Below(self.catalog, f"{_FOLDER}/{self.part.name}/")

    def _list_found(self) -> set[str]:
        return {info.path.rpartition("/")[2] for info in self._storage.list("found")}

    def _name(self, number: int) -> str:
        # a dot would stand before the tables that it shares: see `catalog.tables_of`
        return f"{number}-of-{self.part.of}-{__version__.replace('.', '_')}"

    def _tables(self) -> PartTables | None:
        """Return the rows of the part; None where the pieces do not make it."""
        names = map(self._name, range(self.part.of))
        found = [_PieceResult.loads(self._storage.get(f"found/{name}")) for name in names]
        # what crashed or took too long would do so again
        stopped = [each.file for each in found if each.file["code"] in _LIMITS]
        if stopped:
            return PartTables(
                files=_columns(stopped[:1], catalog.FILES),
                arrays=_columns([], catalog.ARRAYS),
                refs=(),
            )
        bad = any(each.file["status"] != catalog.OK for each in found)
        if bad or not _fit(found, self.max_stored):
            return None
        holders = _holders(found)
        arrays = []
        for path in found[0].share.order:
            if path in holders:
                rows = [row for each in holders[path] for row in each.arrays if row["path"] == path]
                sums = {name: sum(row[name] for row in rows) for name in _TOTALS}
                arrays.append(rows[0] | sums)
        reader = references.RefsReader(self._storage)
        return PartTables(
            files=_columns([_file(found, arrays)], catalog.FILES),
            arrays=_columns(arrays, catalog.ARRAYS),
            refs=(
                (path, block)
                for path in sorted(holders)
                for each in holders[path]
                for block in reader.blocks(each.name, path)
            ),
            more=[row for each in found for row in each.more],
        )


def _fit(found: Sequence[_PieceResult], max_stored: int) -> bool:
    """Say whether pieces are shares of one whole, and one task would have found the same."""
    tally = Counter[str]()
    for each in found:
        tally.update(each.tally)
    stored = tally.pop("", 0)
    first = found[0].share
    return (
        all(each.share.order == first.order for each in found)
        and stored <= max_stored
        and not any(tally.values())
        and all(_fits(found, path) for path in first.order)
    )


def _fits(found: Sequence[_PieceResult], path: str) -> bool:
    """Say whether an array is in one share, or its runs follow each other and say the same."""
    mine = [each for each in found if each.share.covers(path)]
    runs = sorted(each.share.runs[path] for each in mine if path in each.share.runs)
    if not runs:
        return len(mine) == 1
    follow = all(one[1] == other[0] for one, other in pairwise(runs))
    said = set()  # what all runs say alike
    for each in mine:
        rows = [row for row in each.arrays if row["path"] == path]
        facts = repr([{name: row[name] for name in row if name not in _TOTALS} for row in rows])
        said.add((facts, frozenset(f for f in each.findings if f.path == path)))
    return len(runs) == len(mine) and runs[0][0] == 0 and follow and len(said) == 1


def _holders(found: Sequence[_PieceResult]) -> dict[str, list[_PieceResult]]:
    """Return the pieces that hold an array, in the order of its runs."""
    holders: dict[str, list[_PieceResult]] = defaultdict(list)
    for each in found:
        for row in each.arrays:
            holders[row["path"]].append(each)
    for path, pieces in holders.items():
        pieces.sort(key=lambda each: each.share.runs.get(path, (0, 0)))
    return holders


def _file(found: Sequence[_PieceResult], arrays: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [each.file for each in found]
    left_out = {path for row in rows for path in json.loads(row["left_out"])}
    return (
        rows[0]
        | {name: sum(row[name] for row in rows) for name in _SPENT}
        | {
            "signature": file_signature(tuple((row["path"], row["schema"]) for row in arrays)),
            "findings": findings_json(finding for each in found for finding in each.findings),
            "places": _places(rows),
            "left_out": json.dumps(sorted(left_out)),
        }
    )


def _places(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say where references lead, as one task would: see `icevirt.catalog.parts`."""
    texts = {row["places"] for row in rows}
    others = {place for text in texts if text for place in json.loads(text)}
    if not others:
        return "" if "" in texts else "[]"
    if "" in texts:
        others.add(str(rows[0]["url"]).rpartition("/")[0] + "/")
    return json.dumps(sorted(others))


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _columns(
    rows: Sequence[Mapping[str, Any]], schema: Sequence[tuple[str, str]]
) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name, _ in schema}
