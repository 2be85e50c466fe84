"""Plan an archive of several eras: refuse it with the details, or make a group per era.

Each group is combined on its own and is a complete dataset, with its own coordinates and static
variables. All groups are one plan, written and committed together. Their parent group lists them,
so that the engine can show them as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.eras import ERA, MARK, Choice, Era, Eras
from icevirt.archive.facts import CatalogFacts, FileColumns
from icevirt.archive.plan import BuildPlan
from icevirt.archive.schema import ArraySchema, ScannedGroup
from icevirt.errors import CombineError, Fix, IcevirtError, InvalidInputError, OverlapError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.json import dump
from icevirt.planning.axes import duplicates
from icevirt.planning.axes.axis_ends import describe_axes
from icevirt.planning.axes.candidates import further_dimensions
from icevirt.planning.combine.combine import combine_prepared, split_rules_of, summaries_of
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import PreparedFacts, prepare
from icevirt.planning.edits.checked_names import refuse_void_options
from icevirt.planning.edits.spelled_names import rename_fixes
from icevirt.planning.eras.partition import EVERYWHERE, EraPartition, comparable, is_by_label, part
from icevirt.planning.eras.report import (
    FOLLOWED,
    MAX_REPORTED,
    READERS,
    as_floats,
    describe_eras,
    fix_limit,
    impossible,
    offer_native,
    offer_rectilinear,
)
from icevirt.planning.eras.working_fixes import keep_working_fixes
from icevirt.planning.meaning.grid_mappings import mapping_fixes, unlike_mappings
from icevirt.planning.meaning.mesh_fixes import with_mesh_fixes
from icevirt.planning.partial.mismatch import is_about_storage
from icevirt.planning.partial.storage_cost import refuse_expensive
from icevirt.planning.remedies import GROUPED, build_fix, fix, list_names, together

MAX_GROUPS = 1000
"""Groups that eras may become; with more of them each file is a group of its own, or nearly."""

_NAMED = 5  # eras in a note
_HANDY = 5  # groups that a reader puts up with where there is another way
_CHANGES = 50  # that the attributes of a group tell

_BLOCKED = {
    'on_mismatch="eras"': (GROUPED, "eras"),
    'on_mismatch="native"': ("values of files that differ are stored", "native"),
}


def combine_eras(facts: CatalogFacts, spec: CombineSpec) -> BuildPlan:
    """Decide how the files of a catalog become one dataset, or a dataset for each era.

    Raises:
        CombineError: They do not, without changing values. Where that is because files decode
            unlike, ``error.facts["eras"]`` is an `Eras`.
    """
    try:
        return _combine(facts, spec)
    except (CombineError, InvalidInputError) as error:
        if isinstance(error, CombineError):
            named = rename_fixes(facts, spec.concat_dim)
            in_groups = any(
                each.arguments.get("combine_options") == {"on_mismatch": "eras"}
                for each in error.fixes
            )
            mappings = () if in_groups else mapping_fixes(facts)
            meshes = with_mesh_fixes(facts, spec, error.fixes)
            further = further_dimensions(facts, spec.concat_dim)
            error.fixes = (*named, *meshes, *mappings, *further)
        keep_working_fixes(error, facts, spec, plan_once)
        raise


def plan_once(facts: CatalogFacts, spec: CombineSpec) -> BuildPlan:
    """Combine files; what is said of their eras where they are refused is not looked for."""
    prepared = prepare(facts, spec)
    refuse_void_options(prepared.facts, spec, [each.name for each in prepared.new])
    combine = _group if spec.options.on_mismatch == "eras" else combine_prepared
    try:
        return combine(prepared, spec)
    except CombineError as error:
        error.fixes = (*_list_untried(error, spec), *error.fixes)
        raise


def _list_untried(error: CombineError, spec: CombineSpec) -> Iterator[Fix]:
    """Yield what lets files differ that are encoded unlike, or store more, whatever it costs."""
    stored = error.facts.get("bytes_needed")
    if stored is not None:
        if spec.options.chunk_grid == "regular" and spec.options.on_mismatch != "eras":
            yield fix(READERS, chunk_grid="rectilinear")
        yield fix_limit(stored, spec)
    elif is_about_storage(error) and spec.options.on_mismatch == "refuse":
        for price, word in reversed(_BLOCKED.values()):
            yield fix(price, on_mismatch=word)


def _combine(facts: CatalogFacts, spec: CombineSpec) -> BuildPlan:
    prepared = prepare(facts, spec)
    refuse_void_options(prepared.facts, spec, [each.name for each in prepared.new])
    in_groups = spec.options.on_mismatch == "eras"
    try:
        return _group(prepared, spec) if in_groups else combine_prepared(prepared, spec)
    except CombineError as error:
        parted = None if in_groups else part(prepared, spec)
        if parted is None or parted.count < 2:
            raise _solve(error, prepared, spec) from error.__cause__
        eras = describe_eras(prepared, parted, spec)
        few = parted.count <= MAX_REPORTED  # each of many eras is a way to store the others
        natively = tuple((offer_native if few else as_floats)(prepared, parted, spec))
        following = (
            tuple(offer_rectilinear(prepared, spec, None)) if is_about_storage(error) else ()
        )
        grouped = tuple(_try_choice(each, prepared, spec, few=few) for each in eras.choices)
        choices = (*grouped, *following, *natively)
        raise _propose_choices(error, replace(eras, choices=choices)) from error


def _solve(error: CombineError, prepared: PreparedFacts, spec: CombineSpec) -> CombineError:
    """Return an error about what would be stored with what spares it, or allows it."""
    stored = error.facts.get("bytes_needed")
    if stored is None:
        return error
    following = (
        () if spec.options.on_mismatch == "eras" else offer_rectilinear(prepared, spec, stored)
    )
    fixes = [*(each.fix for each in following if each.fix), fix_limit(stored, spec)]
    return type(error)(error.what, do=error.do, fixes=fixes, **error.facts)


def _try_choice(choice: Choice, prepared: PreparedFacts, spec: CombineSpec, *, few: bool) -> Choice:
    """Return a choice, and where it is groups which cannot be built, why."""
    if choice.groups > MAX_GROUPS:
        return replace(choice, fix=None)
    if not (choice.groups and few):
        return choice
    options = replace(spec.options, on_mismatch="eras")
    try:
        _group(prepared, replace(spec, options=options))
    except IcevirtError as error:
        # what could be done must not hide why the files were refused
        return replace(choice, does=impossible(error), groups=0, fix=None, why=error)
    return choice


def _propose_choices(error: CombineError, eras: Eras) -> CombineError:
    """Return the error with what can be done, the best first: groups last where they are many."""
    by_length = any(each.option == FOLLOWED for each in eras.choices)  # one array, nothing copied
    choices = sorted(eras.choices, key=lambda each: each.groups > (0 if by_length else _HANDY))
    fixes = [*error.fixes, *(choice.fix for choice in choices if choice.fix is not None)]
    if all("scan_options" in each.arguments for each in fixes):
        fixes += _solve_what_blocks(error, choices)
    fixes.sort(key=lambda each: "scan_options" in each.arguments)  # variables that go come last
    return type(error)(error.what, do=error.do, fixes=fixes, **error.facts, eras=eras)


def _solve_what_blocks(error: CombineError, choices: Sequence[Choice]) -> Iterator[Fix]:
    """Yield the choices that something else prevents, each with what solves that."""
    for choice in choices:
        later = choice.why
        if later is None or later.what == error.what or choice.option not in _BLOCKED:
            continue
        price, word = _BLOCKED[choice.option]
        for each in later.fixes[:1]:
            # steps that another era holds are not missing
            if "missing" not in each.arguments.get("combine_options", {}):
                yield together(fix(price, on_mismatch=word), each)


def _group(prepared: PreparedFacts, spec: CombineSpec) -> BuildPlan:
    parted = part(prepared, spec)
    if parted.count < 2:
        return combine_prepared(prepared, spec)
    eras = describe_eras(prepared, parted, spec, limit=MAX_GROUPS)
    if parted.count > MAX_GROUPS:
        raise CombineError(
            f"{parted.count} eras would be too many groups: more than {MAX_GROUPS}",
            do="Leave the variable that differs out with drop_variables, or build the files of some"
            " eras only.",
            eras=eras,
        )
    if spec.spacing and not parted.contiguous:
        raise CombineError(
            "missing steps cannot be reserved because eras interleave",
            fixes=[
                build_fix("steps that no file holds get no place", without={"spacing": name})
                for name in spec.spacing
            ],
            spacing=dict(spec.spacing),
            eras=eras,
        )
    _refuse_halves(prepared, parted, spec)
    _refuse_overlaps(prepared, parted, spec)
    axes = prepared.cells(spec).axes if parted.ordered else ()
    turned = replace(prepared, falling=frozenset(each.dimension for each in axes if each.falls))
    plans = [
        _plan_era(turned, parted, replace(spec, group=_group_of(spec, number)), number)
        for number in range(parted.count)
    ]
    return _join_plans(prepared, parted, plans, eras, spec)


def _refuse_halves(prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec) -> None:
    """Refuse files with some of several dimensions: they may be of one era or of many."""
    arrays = prepared.facts.arrays
    for code in np.unique(arrays.schema.codes[parted.of_file[arrays.file] == EVERYWHERE]).tolist():
        names = ArraySchema.loads(arrays.schema.values[code]).dimension_names
        if spec.concatenates(names):
            row = int(np.argmax((arrays.schema.codes == code) & (parted.of_file[arrays.file] < 0)))
            raise CombineError(
                "a file has only some of the dimensions, so it belongs to no single era",
                do="Leave it out, or build the files of each era into a group of their own.",
                file=prepared.facts.url_of(row),
                variable=arrays.path[row],
            )


def _refuse_overlaps(prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec) -> None:
    """Refuse files of several eras that hold the same steps, where that can be known."""
    arrays = prepared.facts.arrays
    for variable in parted.variables:
        place = parted.place[arrays.file[variable.rows]]
        unlike = np.flatnonzero(variable.found != variable.number[place])  # of another file there
        if len(unlike):
            row = variable.rows[unlike[0]]
            other = variable.rows[place == place[unlike[0]]]
            pair = sorted(arrays.file[[row, other[other != row][0]]].tolist())
            raise OverlapError(
                f"two files overlap along {', '.join(map(repr, spec.concat_dim))}: both hold "
                f"{variable.path} for the same steps, and decode differently",
                do=duplicates.remedy(prepared.facts, (pair[0], pair[1]), spec.concat_dim),
                variable=variable.path,
                first=prepared.facts.files.url[pair[0]],
                second=prepared.facts.files.url[pair[1]],
            )
    existing = prepared.existing(spec.concat_dim)
    if not parted.ordered and all(comparable(prepared.facts, name) for name in existing):
        prepared.cells(spec)


def _group_of(spec: CombineSpec, number: int) -> str:
    return paths.join(spec.group, f"/era_{number}")


def _plan_era(
    prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec, number: int
) -> BuildPlan:
    mine = replace(prepared.only(parted.rows(number)), left_out=(), cuts=())
    try:
        # times that no unit of all files could count may have one of this era's
        return combine_prepared(mine.count_again(spec), spec)
    except CombineError as error:
        what = f"{paths.name(spec.group)}: {error.what}"
        raise type(error)(what, do=error.do, fixes=error.fixes, **error.facts) from error


# -- one plan ------------------------------------------------------------------------------------


def _join_plans(
    prepared: PreparedFacts,
    parted: EraPartition,
    plans: Sequence[BuildPlan],
    eras: Eras,
    spec: CombineSpec,
) -> BuildPlan:
    files, places = _collect_files(prepared, plans)
    arrays = tuple(
        replace(
            array,
            files=place[array.files],
            times=None if array.times is None else array.times.spread(place, len(files)),
        )
        for plan, place in zip(plans, places, strict=True)
        for array in plan.arrays
    )
    refuse_expensive(arrays, spec)  # what each era stores may be little, and all of it much
    by_number = {era.number: era for era in eras.eras}
    groups = {paths.canonical(spec.group): _mark_eras(prepared, parted, spec)}
    dimensions = summaries_of(prepared, prepared.cells(spec)) if parted.ordered else ()
    for number, plan in enumerate(plans):
        groups |= plan.groups
        top = paths.canonical(_group_of(spec, number))
        groups[top] = _describe_era(plan.groups.get(top), number, plan, by_number.get(number))
    names = [f"era_{number}" for number in range(len(plans))]
    return replace(
        plans[0],
        group=paths.canonical(spec.group),
        files=files,
        dimensions=dimensions,
        groups=groups,
        arrays=arrays,
        split_rules=split_rules_of(arrays),
        notes=(
            *duplicates.describe_duplicates(
                prepared.left_out, spec.options.duplicates, prepared.cuts
            ),
            *describe_axes(dimensions),
            *_collect_notes(names, plans),
        ),
        left_out=prepared.left_out,
        eras=eras,
    )


def _collect_notes(names: Sequence[str], plans: Sequence[BuildPlan]) -> Iterator[str]:
    about: dict[str, list[str]] = {}
    for name, plan in zip(names, plans, strict=True):
        of_axes = {*describe_axes(plan.dimensions)}  # what one era lacks, another one has
        for note in (each for each in plan.notes if each not in of_axes):
            about.setdefault(note, []).append(name)
    for note, eras in about.items():
        which = "all eras" if len(eras) == len(names) else list_names(eras, _NAMED)
        yield f"{which}: {note}"


def _collect_files(
    prepared: PreparedFacts, plans: Sequence[BuildPlan]
) -> tuple[FileColumns, list[NDArray[np.int64]]]:
    """Return the files of all plans, each once, and the row there of each plan's files."""
    files = prepared.facts.files
    size = int(files.row.max(initial=0)) + 1
    key = files.part.astype(np.int64) * size + files.row
    order = np.argsort(key)
    number = {name: at for at, name in enumerate(files.parts)}
    rows = []
    for plan in plans:
        own = np.array([number[name] for name in plan.files.parts], np.int64)
        wanted = own[plan.files.part] * size + plan.files.row
        rows.append(order[np.searchsorted(key[order], wanted)])
    used, first = np.unique(np.concatenate(rows), return_index=True)
    kept = used[np.argsort(first)]
    place = np.empty(len(files), np.int64)
    place[kept] = np.arange(len(kept))
    return files.take(kept), [place[each] for each in rows]


# -- what groups say -----------------------------------------------------------------------------


def _mark_eras(prepared: PreparedFacts, parted: EraPartition, spec: CombineSpec) -> bytes:
    described = {
        "version": 1,
        "dimension": parted.dimension,
        "groups": [f"era_{number}" for number in range(parted.count)],
        "order": "coordinate" if is_by_label(parted, spec) else "given",
        "contiguous": parted.contiguous,
        # the groups alone need not show it: what says a place may be left out
        **({"places": "several"} if unlike_mappings(prepared.facts) else {}),
    }
    return ScannedGroup(
        path=paths.ROOT, attributes=Attributes(values={MARK: described})
    ).zarr_json()


def _describe_era(zarr_json: bytes | None, number: int, plan: BuildPlan, era: Era | None) -> bytes:
    document = json.loads(zarr_json or ScannedGroup(path=paths.ROOT).zarr_json())
    attrs: dict[str, str | int] = {ERA: number, f"{ERA}_files": len(plan.files)}
    if era is not None:
        changes = [str(change) for change in era.changes[:_CHANGES]]
        more = len(era.changes) - len(changes)
        attrs[f"{ERA}_first"] = era.first_label or era.first
        attrs[f"{ERA}_last"] = era.last_label or era.last
        if changes:
            since = f"since era_{era.since}: "
            attrs[f"{ERA}_changes"] = since + ". ".join(
                [*changes, *([f"and {more} more"] if more else [])]
            )
    document["attributes"] |= attrs
    return dump(document)
