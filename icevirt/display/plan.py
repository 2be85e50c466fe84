"""What a build would do, and what it would cost, before it does it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.report import ArraySummary, ReferenceCounts
from icevirt.display.arrays import array_table, facts
from icevirt.display.eras import eras
from icevirt.display.text import count, entry, references, size, words
from icevirt.logic.readers import named, readers_of_json
from icevirt.objects.endpoints import entry_of


def build_plan(plan: BuildPlan) -> RenderableType:
    """Return the plan for a terminal."""
    counts = sum((array.references for array in plan.arrays), ReferenceCounts())
    told = {
        "files": f"{len(plan.files):,}, {_along(plan)}",
        "arrays": f"{len(plan.arrays)} in {plan.group}",
        "references": f"{references(counts)}: {size(counts.bytes_referenced)} stay in the files,"
        f" {size(counts.bytes_stored)} to be stored",
        "manifests": count(sum(map(_windows, plan.arrays)), "window"),
        "eras": _eras(plan),
        "authorize": ", ".join(entry(entry_of(container)) for container in plan.containers),
    }
    return Group(
        Text(f"Plan {plan.build_id}", "bold"),
        facts(told),
        Text(),
        array_table(map(array_of, plan.arrays)),
        *([] if plan.eras is None else [Text(), eras(plan.eras)]),
        *(words(f"note: {note}", "dim") for note in plan.notes),
    )


def _along(plan: BuildPlan) -> str:
    if not plan.concat_dim:
        return "not concatenated"
    beside = "one after the other" if len(plan.concat_dim) == 1 else "beside one another"
    return f"{beside} along {', '.join(plan.concat_dim)}"


def _eras(plan: BuildPlan) -> str:
    if plan.eras is None:
        return "1: all files decode alike"
    return f"{plan.eras.count}, a group each"


def _windows(array: PlannedArray) -> int:
    """Return how many manifests the chunk grid of an array is cut into."""
    number = 1
    for chunks, edge in zip(array.grid, array.window, strict=True):
        number *= -(-chunks // edge)
    return number


def array_of(array: PlannedArray) -> ArraySummary:
    """Return a planned array as reports show arrays."""
    return ArraySummary(
        path=array.path,
        data_type=named(array.schema.data_type),
        shape=array.shape,
        chunk_shape=array.chunk_shape,
        dimension_names=array.schema.dimension_names,
        references=array.references,
        manifests=_windows(array),
        readers=readers_of_json(array.zarr_json),
    )
