"""Format a plan: what a build would do, what it would cost, and the eras of the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.eras import REFUSED, Choice, Eras, Run
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import (
    ArrayCost,
    ArraySummary,
    PlanCost,
    PlanDifference,
    ReadCost,
)
from icevirt.archive.sources import name_of_url
from icevirt.display.blocks import (
    Facts,
    bytes_of,
    count,
    entry,
    list_lines,
    size,
    some,
    table_of,
    words,
)
from icevirt.display.document import document, pick, pick_fields
from icevirt.display.layouts import propose_twin, show_prices
from icevirt.display.report import array_table, show_left_out
from icevirt.model.json import JSON
from icevirt.objects.authorize import entry_of
from icevirt.planning.partial.storage_cost import deviates
from icevirt.planning.reader_support import name_of, readers_of_json
from icevirt.planning.schedule.cost_estimate import costs_of, windows_of
from icevirt.remedy_notation import show_remedy, write_remedy

_SHOWN = 3  # arrays in a line
_LISTED = 10  # paths in a line

SHOWN = 20
"""Eras, and runs of files within another era, that a terminal is shown."""


def build_plan(plan: BuildPlan) -> RenderableType:
    """Return the plan for a terminal."""
    cost = plan.cost or costs_of(plan)
    return Group(
        words(f"Plan {plan.build_id}", "bold"),
        plan_facts(plan, cost),
        Text(),
        array_table(map(array_of, plan.arrays)),
        *([] if plan.eras is None else [Text(), eras(plan.eras)]),
        *differing(plan.difference),
        *remarks(plan, cost),
        *show_left_out("Left out", plan.bad_files),
    )


def document_plan(plan: BuildPlan) -> JSON:
    """Return the plan as JSON."""
    arrays = [{**pick_fields(array_of(each)), "mode": each.mode.value} for each in plan.arrays]
    return {
        **pick(plan, ("build_id", "group", "concat_dim", "dimensions")),
        "files": list(plan.files.url),
        "arrays": arrays,
        "containers": [document(entry_of(container)) for container in plan.containers],
        "notes": list(map(show_remedy, plan.notes)),
        **pick(plan, ("left_out", "bad_files", "eras")),
        "cost": document(plan.cost or costs_of(plan)),
        "difference": document(plan.difference),
    }


def plan_difference(found: PlanDifference) -> RenderableType:
    """Return what a build would change, for a terminal."""
    return Group(*(list(differing(found)) or [words("nothing is there yet", "dim")]))


def plan_facts(plan: BuildPlan, cost: PlanCost) -> Facts:
    """Return what a plan is, and what it costs."""
    along = "not concatenated"
    if plan.concat_dim:
        beside = "one after the other" if len(plan.concat_dim) == 1 else "side by side"
        along = f"{beside} along {', '.join(plan.concat_dim)}"
    without = len(plan.left_out) + len(plan.bad_files)
    decode = "1: all files decode equally"
    if plan.eras is not None:
        decode = f"{plan.eras.count}, a group each"
    elif unlike := [array.path for array in plan.arrays if array.hybrid and deviates(array.hybrid)]:
        names = some(unlike, _SHOWN)
        decode = f"put together: files store {names} differently, so their chunks are copied"
    return Facts(
        {
            "files": f"{len(plan.files):,}, {along}{f'; {without:,} left out' if without else ''}",
            **{f"along {each.dimension}": str(each) for each in plan.dimensions},
            "arrays": f"{len(plan.arrays)} in {plan.group}",
            "references": bytes_of(cost.references, "to be stored"),
            "manifests": f"{cost.write_tasks:,}, for {count(cost.windows, 'window')} of arrays",
            "tasks": f"{cost.scan_tasks:,} to scan, at most {cost.write_tasks:,} to write",
            "executor": plan.executor or None,
            "route": cost.route_description,
            "memory": f"about {size(cost.task_memory)} for a task, {size(cost.driver_memory)} for"
            " the driver, and what Python takes",
            "one map": _reading(cost.map, cost.map.map if cost.map else None),
            "one series": _reading(cost.series, cost.series.series if cost.series else None),
            **(show_prices(plan.priced) or propose_twin(map(array_of, plan.arrays), "REPO")),
            "eras": decode,
            "authorize": ", ".join(entry(entry_of(each)) for each in plan.containers),
        }
    )


def remarks(plan: BuildPlan, cost: PlanCost) -> Iterator[Text]:
    """Yield decisions of a plan, and what it warns of."""
    yield from (words(f"note: {show_remedy(note)}", "dim") for note in plan.notes)
    yield from (words(f"warning: {show_remedy(warning)}", "yellow") for warning in cost.warnings)


def _reading(of: ArrayCost | None, takes: ReadCost | None) -> str | None:
    """Return what it takes to read a step, or a point over all steps, of the worst array."""
    if of is None or takes is None:
        return None
    return f"at most {count(takes.requests, 'request')}, {size(takes.bytes)} of {of.path}"


def array_of(array: PlannedArray) -> ArraySummary:
    """Return a planned array as reports show arrays."""
    return ArraySummary(
        path=array.path,
        data_type=name_of(array.schema.data_type),
        shape=array.shape,
        chunk_shape=array.chunk_extents,
        dimension_names=array.schema.dimension_names,
        references=array.written,
        manifests=windows_of(array),
        readers=readers_of_json(array.zarr_json),
    )


def differing(found: PlanDifference | None) -> Iterator[Text]:
    """Yield what a build would change of the dataset that is there."""
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
            yield words(f"{what}: {some(paths, _LISTED)}", style)


def eras(found: Eras) -> RenderableType:
    """Return the eras for a terminal."""
    along = f" along {found.dimension}" if found.dimension else ""
    order = "" if found.ordered else ", in the order given"
    table = table_of(("era", "files", "from", "to", "what differs"), right=("files",))
    table.padding = (0, 2, 0, 2)
    for era in found.eras[:SHOWN]:
        changes = ". ".join(map(str, era.changes))
        differs = (
            ("" if era.since is None else f"from era_{era.since}: {changes}"),
            (f"in {era.runs} pieces" if era.runs > 1 else ""),
        )
        ends = (
            f"{name_of_url(url)} ({label})" if label else name_of_url(url)
            for url, label in ((era.first, era.first_label), (era.last, era.last_label))
        )
        row = f"{era.files:,}", *ends, ", ".join(filter(None, differs))
        table.add_row(words(era.name, "bold"), *row)
    others = (each for each in found.choices if each.fix is None and each.why is None)
    return Group(
        Text.assemble(
            (f"{found.count} eras", "bold"),
            words(
                f"{along}: files within an era decode equally, files of different eras do "
                f"not{order}"
            ),
        ),
        table,
        *([words(f"  and {found.count - SHOWN:,} more", "dim")] if found.count > SHOWN else []),
        *list_lines("Files within another era", _runs_apart(found))[1:],
        *list_lines("Files that lack a variable", _absences(found))[1:],
        *list_lines(
            "Other options",
            (show_remedy(choice(each)) for each in others if each.option != REFUSED),
        )[1:],
    )


def _runs_apart(found: Eras) -> Iterator[str]:
    runs = Counter(f"{_files(run)} of era_{run.era} within era_{run.inside}" for run in found.apart)
    for line, times in [*runs.items()][:SHOWN]:
        yield line if times == 1 else f"{line}, in {times:,} places"
    if more := sum([*runs.values()][SHOWN:]) + found.more_apart:
        yield f"and {count(more, 'run')} more"


def _files(run: Run) -> str:
    if run.files == 1:
        return name_of_url(run.first)
    return f"{name_of_url(run.first)} to {name_of_url(run.last)}, {count(run.files, 'file')},"


def _absences(found: Eras) -> Iterator[str]:
    for absence in found.absences[:SHOWN]:
        names = ", ".join(map(name_of_url, absence.examples))
        more = absence.places - len(absence.examples)
        yield (
            f"{absence.variable} is not in {count(absence.places, 'place')} of era_{absence.era}:"
            f" {names}{f' and {more:,} more' if more > 0 else ''}"
        )


def choice(known: Choice) -> str:
    """Return one thing that can be done, on one line."""
    stored = f"; {size(known.bytes_stored)} to be stored" if known.bytes_stored else ""
    by = "; packing again could change values by up to"
    error = f"{by} {known.max_error:g}" if known.max_error else ""
    return write_remedy(known.option, f"  {known.does}{stored}{error}")
