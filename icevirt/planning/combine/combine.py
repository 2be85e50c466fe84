"""Combine normalized facts into the plan of one dataset, or refuse with the reason.

Files combine when every array decodes equally in all files that have it, their grids agree, chunks
line up, and arrays without the concatenated dimension hold the same values everywhere. Files may
hold different variables of the same steps. Anything else is refused with the files, the variable
and the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from icevirt.amounts import plural, volume
from icevirt.archive.facts import CatalogFacts, StepCuts, describe_variables
from icevirt.archive.joining import Form, find_edge, itemsize_of
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.reports.build import AxisSummary
from icevirt.archive.scanned import names_by_group
from icevirt.archive.schema import ScannedGroup
from icevirt.errors import CombineError
from icevirt.model import multiscales, paths
from icevirt.model.config.document import SplitRule
from icevirt.planning import reader_support
from icevirt.planning.axes import duplicates
from icevirt.planning.axes import gaps as holes
from icevirt.planning.axes.axis import CombinedVariable, Placement
from icevirt.planning.axes.axis_ends import describe_axes, summary_of_axis
from icevirt.planning.axes.group_order import describe_groups
from icevirt.planning.axes.placement import as_given
from icevirt.planning.combine import tolerance
from icevirt.planning.combine.combine_attrs import combine_attributes
from icevirt.planning.combine.hints import find_limits
from icevirt.planning.combine.known_decisions import NOTHING, KnownDecisions
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.plan_variable import plan_array
from icevirt.planning.combine.prepare import PreparedFacts
from icevirt.planning.combine.stacking import coordinate
from icevirt.planning.combine.tolerance import offer_tolerance
from icevirt.planning.combine.variables import members_of, place_in_cells, without_repeats
from icevirt.planning.containers import containers_for
from icevirt.planning.meaning.conventions import describe_conventions
from icevirt.planning.meaning.grid_mappings import refuse_unlike_mappings
from icevirt.planning.meaning.mesh_fixes import indices_to_shift
from icevirt.planning.partial.storage_cost import describe_storage as describe_hybrids
from icevirt.planning.partial.storage_cost import refuse_expensive
from icevirt.planning.schedule.write_tasks import split_rules
from icevirt.planning.times.recoding import describe_recodings
from icevirt.remedy_notation import write_option, write_remedy

_TOGETHER = 1 << 20  # bytes of the chunks that are proposed for contiguous values
_MANY = 1000  # references that would be spared
_NEIGHBOURS = 4  # arrays before one that are looked at for equal columns


def combine_prepared(
    prepared: PreparedFacts, spec: CombineSpec, known: KnownDecisions | None = None
) -> BuildPlan:
    """Decide how files whose facts were made alike become one dataset.

    Args:
        prepared: The facts.
        spec: The choices.
        known: What was decided last, which is replaced by what is decided now.

    Raises:
        CombineError: They do not, without changing values; the message says which and why.
    """
    facts, times = prepared.facts, prepared.times
    first = as_given(facts, spec.concat_dim, [e.name for e in prepared.new if e.is_new])
    limits = find_limits(spec.tolerance, describe_variables(facts))
    decided = NOTHING if known is None else known.find(prepared, spec, first)
    # files that disagree have no order to speak of
    try:
        members = [*members_of(facts, first, spec, limits, decided)]
    except CombineError as error:
        offer_tolerance(error, facts, spec)
        raise
    if prepared.twice is not None:
        raise prepared.twice
    cells = prepared.cells(spec)
    if cells.alike(first):  # nearly always: files are listed in their order
        members = [place_in_cells(member, cells) for member in members]
    else:
        members.clear()
        decided = NOTHING
        members.extend(members_of(facts, cells, spec, limits))
    del first  # of ten million files these are 160 MB
    indices = indices_to_shift(facts, cells, prepared.given, spec)
    refuse_unlike_mappings(facts)
    unlike = describe_conventions(facts, spec.options.combine_attrs)
    gaps = holes.find(facts, members, rule=spec.options.missing)
    arrays: tuple[PlannedArray, ...] = ()
    plain: dict[str, PlannedArray] = {}  # that follow from nothing but the facts of the array
    for member in members:
        recoded = times.get(member.path)
        recoded = None if recoded is None else recoded.take(cells.rows)
        gap = gaps.get(member.path)
        given = prepared.given.get(member.path, ())
        is_plain = recoded is None and gap is None and member.path not in indices
        if is_plain and member.path in decided:
            arrays += (decided[member.path][1],)
            plain[member.path] = arrays[-1]
            continue
        made = plan_array(
            facts,
            member if member.path not in indices else without_repeats(facts, member),
            cells,
            spec,
            gap=gap,
            times=recoded,
            given=given,
            limits=limits,
            index=indices.get(member.path),
        )
        for other in reversed(arrays[-_NEIGHBOURS:]):  # mostly equal columns are held once
            if np.array_equal(other.files, made.files):
                is_same = np.array_equal(other.starts, made.starts)
                starts = other.starts if is_same else made.starts
                made = replace(made, files=other.files, starts=starts)
                break
        arrays += (made,)
        if is_plain:
            plain[member.path] = made
    if known is not None:
        known.keep(prepared, spec, cells, members, plain)
    refuse_expensive(arrays, spec)
    arrays += tuple(
        coordinate(prepared.describe(each, cells, spec), each.values, spec.group, spec.build_id)
        for each in prepared.new
        if each.values is not None and each.variable is None
    )
    dimensions = summaries_of(prepared, cells)
    plan = BuildPlan(
        build_id=spec.build_id,
        group=paths.canonical(spec.group),
        concat_dim=spec.concat_dim,
        dimensions=dimensions,
        files=facts.files.take(cells.rows),
        groups=_combine_groups(facts, cells, spec, arrays, prepared.given),
        arrays=arrays,
        containers=containers_for(facts.places),
        split_rules=split_rules_of(arrays),
        notes=(
            *(axis.reason for axis in cells.axes if axis.reason),
            *describe_groups(cells),
            *(a.steps.describe(a.dimension) for a in cells.axes if a.has_gaps and a.steps),
            *describe_axes(dimensions),
            *describe_recodings(times),
            *duplicates.describe_duplicates(
                prepared.left_out, spec.options.duplicates, prepared.cuts
            ),
            *holes.describe_gaps(gaps),
            *_describe_padding(members),
            *describe_hybrids(arrays),
            *tolerance.describe_tolerance(facts, members, limits),
            *_describe_static(facts, arrays),
            *_describe_cuts(arrays, spec),
            *unlike,
            *reader_support.describe_unseen(
                (each.path, each.schema.attributes, each.schema.data_type) for each in arrays
            ),
            *reader_support.describe_savings(
                {each.path: (each.zarr_json, each.references.bytes_referenced) for each in arrays}
            ),
            *reader_support.describe_readers(
                {each.path: reader_support.readers_of_json(each.zarr_json) for each in arrays}
            ),
        ),
        left_out=prepared.left_out,
    )
    return plan if facts.cuts is None else _hold_files_once(plan, facts.cuts.take(cells.rows))


def summaries_of(prepared: PreparedFacts, cells: Placement) -> tuple[AxisSummary, ...]:
    """Return the labels along each dimension in short."""
    new = {each.name: each for each in prepared.new}
    found = (summary_of_axis(prepared.facts, axis, new.get(axis.dimension)) for axis in cells.axes)
    return tuple(each for each in found if each is not None)


def _hold_files_once(plan: BuildPlan, cuts: StepCuts) -> BuildPlan:
    """Let a plan of pieces of files hold each file once."""
    _, first, number = np.unique(cuts.source, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    row = rank[number]
    arrays = tuple(
        replace(
            each,
            files=row[each.files],
            times=None if each.times is None else each.times.take(first[order]),
        )
        for each in plan.arrays
    )
    return replace(plan, files=plan.files.take(first[order]), arrays=arrays)


def split_rules_of(arrays: tuple[PlannedArray, ...]) -> tuple[SplitRule, ...]:
    """Return the splitting rules that keep the windows of arrays."""
    return split_rules(
        {
            array.path: (
                array.grid,
                array.window,
                array.axes[0] if array.axes else (None if array.mode is ArrayMode.once else 0),
            )
            for array in arrays
        }
    )


def _describe_padding(members: Sequence[CombinedVariable]) -> list[str]:
    """Return a line for the arrays of which some files hold less along a dimension."""
    found: dict[tuple[str, int, int, int], list[str]] = {}
    for member in members:
        for axis, longest in zip(member.ragged, member.full, strict=True):
            if member.spells and axis == len(member.schema.dimension_names) - 1:
                continue  # no reader sees how many characters there was room for
            lengths = member.along_axes((axis,))[:, 0]
            short = int((lengths < longest).sum())
            name = member.schema.dimension_names[axis] or ""
            found.setdefault((name, short, len(lengths), longest), []).append(member.path)
    return [
        f"{short} of {files} files are shorter along {name!r} than the longest ({longest}), and "
        f"read as missing after their ends: {', '.join(names)}"
        for (name, short, files, longest), names in found.items()
    ]


def _describe_static(facts: CatalogFacts, arrays: tuple[PlannedArray, ...]) -> list[str]:
    path = facts.arrays.path
    held = dict(zip(path.values, path.counts().tolist(), strict=True))
    return [
        f"{array.path} is in {held[array.source_path]} of {len(facts.files)} files and stored once"
        for array in arrays
        if array.mode is ArrayMode.once and held[array.source_path] < len(facts.files)
    ]


def _describe_cuts(arrays: tuple[PlannedArray, ...], spec: CombineSpec) -> Iterator[str]:
    """Yield a line for each array of which steps could as well stay together in chunks."""
    if spec.options.split_contiguous is not None:
        return
    for each in arrays:
        if each.axes[:1] != (0,) or each.form is None or not (each.form == Form.cut).any():
            continue
        held = each.lengths if each.held is None else each.held
        longest = int(np.gcd.reduce(held[:, 0]))
        nbytes = math.prod(each.chunk_shape) * itemsize_of(each.schema.data_type)
        edge = find_edge(longest, _TOGETHER // nbytes)
        chunks = each.expected * each.chunk_shape[0] // edge
        if each.expected - chunks >= _MANY:
            size = volume(nbytes // each.chunk_shape[0] * edge)
            choice = write_option("split_contiguous", "1MiB")
            yield write_remedy(
                f"{each.path} is contiguous in the files, and each step becomes a chunk:"
                f" {plural(each.expected, 'reference')} to {volume(nbytes)}; with ",
                choice,
                f" {plural(chunks, 'reference')} to {size}",
            )


# -- groups ------------------------------------------------------------------------------------


def _combine_groups(
    facts: CatalogFacts,
    cells: Placement,
    spec: CombineSpec,
    arrays: Sequence[PlannedArray],
    given: Mapping[str, tuple[str, ...]],
) -> dict[str, bytes]:
    """Return the groups of the dataset; groups of later files count unless "override" was chosen.

    Where files hold different arrays they may have different groups, and all are looked at.
    """
    names = names_by_group(_order_paths(facts, cells, spec, arrays))
    rows = cells.rows
    is_uniform = len(facts.arrays.file) == len(facts.files) * len(facts.arrays.path.values)
    if spec.options.combine_attrs == "override" and is_uniform:
        rows = rows[:1]
    found: dict[str, list[ScannedGroup]] = {}
    for row in rows.tolist():
        for group in facts.groups_of(row):
            found.setdefault(group.path, []).append(group)
    made = {}
    for path, groups in found.items():
        top, below = paths.join(spec.group, path), path.rstrip("/") + "/"
        axes = {each.removeprefix(below): len(added) for each, added in given.items()}
        attributes = combine_attributes(
            [each.attributes for each in groups], spec.options.combine_attrs, path=path
        )
        attributes = replace(attributes, values=multiscales.fit(attributes.values, axes))
        made[top] = groups[0].zarr_json(attributes, variables=names.get(top, ()))
    return made


def _order_paths(
    facts: CatalogFacts, cells: Placement, spec: CombineSpec, arrays: Sequence[PlannedArray]
) -> list[str]:
    """Return the paths of arrays in the order of the first file, then those of later files only.

    Arrays that no file has (labels of new dimensions) come last, as in xarray's ``concat``.
    """
    codes, file = facts.arrays.path.codes, facts.arrays.file
    first = np.flatnonzero(file == cells.rows[0]) if len(cells.rows) else np.zeros(0, np.int64)
    later = np.ones(len(facts.arrays.path.values), np.bool_)
    later[codes[first]] = False
    more = np.flatnonzero(later[codes]) if later.any() else first[:0]
    more = more[np.argsort(cells.place[file[more]], kind="stable")]
    in_order = dict.fromkeys(codes[np.concatenate([first, more])].tolist())
    place = {
        paths.join(spec.group, facts.arrays.path.values[code]): at
        for at, code in enumerate(in_order)
    }
    return sorted((each.path for each in arrays), key=lambda path: place.get(path, len(place)))
