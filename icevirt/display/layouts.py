"""Say what reading takes in the chunks of a variable, and in the chunks of its twin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import RenderableType

from icevirt.archive.reports.build import ArraySummary, LayoutCost, ReadCost, TwinAdvice
from icevirt.display.blocks import box, count, size, table_of, words
from icevirt.model.json import JSON
from icevirt.planning.schedule.twin_estimate import advise

if TYPE_CHECKING:
    from icevirt.access.columns.twin_array import ArrayChoices

_HOW = "at 30 ms a request, 16 at once, and 100 MB/s"
_SHOWN = 3  # arrays


def cost(read: ReadCost) -> str:
    """Return requests, bytes and seconds."""
    return f"{count(read.requests, 'request')}, {size(read.bytes)}, {read.seconds:.2f} s"


def array_choices(chosen: ArrayChoices) -> RenderableType:
    """Return for a terminal from which chunks a selection is read."""
    table = table_of(("variable", "read from", "own chunks", "twin", ""), right=())
    for name, each in chosen.items():
        twin = "" if each.twin is None else str(each.twin)
        table.add_row(words(name, "bold"), f"{each.layout} chunks", str(each.own), twin, each.note)
    return table


def document_choices(chosen: ArrayChoices) -> JSON:
    """Return the same as JSON."""
    return {
        name: {
            "variable": each.variable,
            "layout": each.layout,
            "own": dict(each.own._asdict()),
            "twin": None if each.twin is None else dict(each.twin._asdict()),
            "note": each.note,
        }
        for name, each in chosen.items()
    }


def compare_layouts(own: LayoutCost, twin: LayoutCost) -> dict[str, str | None]:
    """Return what a map and a series take in both layouts."""
    return {**_compare(own, twin), "estimated": _HOW}


def _compare(own: LayoutCost, twin: LayoutCost) -> dict[str, str | None]:
    return {
        "a map": f"own chunks: {cost(own.map)}; twin: {cost(twin.map)}",
        "a series": f"own chunks: {cost(own.series)}; twin: {cost(twin.series)}",
    }


def show_prices(priced: Sequence[TwinAdvice]) -> dict[str, str | None]:
    """Return what twins of chunks that were named take, of the arrays that take most."""
    first = sorted(priced, key=lambda each: -each.own.bytes)[:_SHOWN]
    rows: dict[str, str | None] = {}
    for each in first:
        rows[f"{each.path}"] = (
            f"a twin in chunks of {box(each.twin.chunk_shape)} stores about {size(each.twin.bytes)}"
        )
        rows |= {
            f"{each.path} {name}": text for name, text in _compare(each.own, each.twin).items()
        }
    left = len(priced) - len(first)
    rows |= {"others": f"{left:,}, in -o json"} if left else {}
    return rows | ({"estimated": _HOW} if first else {})


def propose_twin(arrays: Iterable[ArraySummary], repo: str) -> dict[str, str | None]:
    """Return when a twin pays; nothing where none does."""
    found = advise(arrays)
    if found is None:
        return {}
    chunks = ",".join(f"{name}={length}" for name, length in found.chunks.items())
    return {
        "a twin": f"of {found.path} in chunks of {box(found.twin.chunk_shape)} stores about"
        f" {size(found.twin.bytes)}: icevirt materialize {quote(repo)} {quote(found.path)} --beside"
        f" --chunks {quote(chunks)}",
        "its series": f"{cost(found.twin.series)}; in its own chunks {cost(found.own.series)}",
        "its maps": f"{cost(found.own.map)} in its own chunks, as before",
    }
