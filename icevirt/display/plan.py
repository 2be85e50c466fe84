"""Format a plan: what a build would do, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import ArraySummary
from icevirt.archive.reports.plan import ArrayCost, PlanDifference, ReadCost
from icevirt.display.arrays import array_table, facts
from icevirt.display.eras import eras
from icevirt.display.report import bad_file, listed
from icevirt.display.text import count, entry, references, size, words
from icevirt.objects.authorize import entry_of
from icevirt.planning.reader_support import named, readers_of_json
from icevirt.planning.schedule.cost_estimate import costs_of, windows_of

_SHOWN = 3  # arrays in a line
_LISTED = 10  # paths in a line


def build_plan(plan: BuildPlan) -> RenderableType:
    """Return the plan for a terminal."""
    cost = plan.cost or costs_of(plan)
    counts = cost.references
    told = {
        "files": f"{len(plan.files):,}, {_along(plan)}{_left_out(plan)}",
        "arrays": f"{len(plan.arrays)} in {plan.group}",
        "references": f"{references(counts)}: {size(counts.bytes_referenced)} stay in the files,"
        f" {size(counts.bytes_stored)} to be stored",
        "manifests": f"{cost.write_tasks:,} of {count(cost.windows, 'window')}",
        "tasks": f"{cost.scan_tasks:,} to scan, at most {cost.write_tasks:,} to write",
        **({"executor": plan.executor} if plan.executor else {}),
        "route": cost.route_told,
        "memory": f"about {size(cost.task_memory)} in a task, {size(cost.driver_memory)} in the"
        " driver, beside their processes",
        **_reading("one map", cost.map, None if cost.map is None else cost.map.map),
        **_reading("one series", cost.series, None if cost.series is None else cost.series.series),
        "eras": _eras(plan),
        "authorize": ", ".join(entry(entry_of(container)) for container in plan.containers),
    }
    return Group(
        Text(f"Plan {plan.build_id}", "bold"),
        facts(told),
        Text(),
        array_table(map(array_of, plan.arrays)),
        *([] if plan.eras is None else [Text(), eras(plan.eras)]),
        *_differing(plan.difference),
        *(words(f"note: {note}", "dim") for note in plan.notes),
        *(words(f"warning: {warning}", "yellow") for warning in cost.warnings),
        *listed("Left out", map(bad_file, plan.bad_files), "bold red"),
    )


def _along(plan: BuildPlan) -> str:
    if not plan.concat_dim:
        return "not concatenated"
    beside = "one after the other" if len(plan.concat_dim) == 1 else "side by side"
    return f"{beside} along {', '.join(plan.concat_dim)}"


def _left_out(plan: BuildPlan) -> str:
    count = len(plan.left_out) + len(plan.bad_files)
    return f"; {count:,} left out" if count else ""


def _eras(plan: BuildPlan) -> str:
    if plan.eras is None:
        unlike = [array.path for array in plan.arrays if array.hybrid and array.hybrid.deviates]
        if unlike:
            told = ", ".join(unlike[:_SHOWN])
            more = f" and {len(unlike) - _SHOWN} more" if len(unlike) > _SHOWN else ""
            return f"put together: files store {told}{more} differently, so their chunks are copied"
        return "1: all files decode equally"
    return f"{plan.eras.count}, a group each"


def _reading(what: str, of: ArrayCost | None, takes: ReadCost | None) -> dict[str, str]:
    """Return what it takes to read a step, or a point over all steps, of the worst array."""
    if of is None or takes is None:
        return {}
    return {what: f"at most {count(takes.requests, 'request')}, {size(takes.bytes)} of {of.path}"}


def array_of(array: PlannedArray) -> ArraySummary:
    """Return a planned array as reports show arrays."""
    return ArraySummary(
        path=array.path,
        data_type=named(array.schema.data_type),
        shape=array.shape,
        chunk_shape=array.chunk_shape,
        dimension_names=array.schema.dimension_names,
        references=array.written,
        manifests=windows_of(array),
        readers=readers_of_json(array.zarr_json),
    )


def _differing(found: PlanDifference | None) -> Iterator[Text]:
    if found is None:
        return
    if not found.changes and found.snapshot_id:
        yield words(f"as the last build ({found.snapshot_id})", "dim")
    for change in found.changes:
        yield words(
            "to replace the existing data: "
            f"{change.what}{'; refused without --allow-changes' if change.stops else ''}",
            "yellow" if change.stops else "",
        )
    for what, paths, style in (
        ("kept", found.kept, "dim"),
        ("replaced", found.replaced, "dim"),
        ("deleted", found.deleted, "yellow"),
    ):
        if paths:
            more = f" and {len(paths) - _LISTED:,} more" if len(paths) > _LISTED else ""
            yield words(f"{what}: {', '.join(paths[:_LISTED])}{more}", style)
