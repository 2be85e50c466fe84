"""Say which variables a dataset stores once more in other chunks, and whether they are in step.

A twin is a stored variable beside the variable that it copies. Its row in the record of a dataset
is that of any stored variable, and names that variable. So a plan of files has it as one more array
of the same variable of the files, and whatever makes a dataset longer or anew takes it along.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from icevirt.amounts import volume
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.plan import BuildPlan, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.attributes import TWIN_MARKS
from icevirt.model.json import JSON, JSONObject
from icevirt.model.multiscales import SAID
from icevirt.model.snapshot import ArrayNode, GroupNode, Node, Snapshot, document_of
from icevirt.model.twins import digest_of_twin, marks_in
from icevirt.planning.levels import group_json, say_levels
from icevirt.planning.stored_form import StoredForm, StoredForms, forms_of

BEHIND = "the variable that it copies was changed"


def own_twins(record: Mapping[str, Any], tip: Snapshot) -> StoredForms:
    """Return the twins that a record of a dataset names, and that are still there."""
    return {
        path: form
        for path, form in forms_of(record).items()
        if form.of is not None and _is_own(record, tip.find(path))
    }


def _is_own(record: Mapping[str, Any], node: Node | None) -> bool:
    """Say whether a node is of the dataset of a record, and no other one that lies there now."""
    build_id = str(record.get("build_id")).encode()
    return node is not None and node.id == ObjectId8.of_content(build_id, node.path.encode())


def is_twin(forms: StoredForms, path: str) -> bool:
    """Say whether forms call an array the twin of another."""
    return path in forms and forms[path].of is not None


def is_twin_of(path: str, form: StoredForm, arrays: Mapping[str, PlannedArray]) -> bool:
    """Say whether a plan has an array as twin, as a form says; anybody may have written that."""
    twin, variable = arrays.get(path), arrays.get(form.of or "")
    if twin is None or variable is None or twin is variable:
        return False
    return twin.source_path == variable.source_path and twin.files is variable.files


def with_twins[T](of_arrays: Mapping[str, T], forms: StoredForms) -> dict[str, T]:
    """Return what is said of arrays, by path, and of twins, of which the same holds."""
    found = {
        path: of_arrays[form.of or ""]
        for path, form in forms.items()
        if (form.of or "") in of_arrays
    }
    return {**found, **of_arrays}


def add_twins(plan: BuildPlan, twins: StoredForms) -> BuildPlan:
    """Return a plan with an array for each twin of its variables, to which no reference belongs.

    A twin that its variable does not fit any more is left out.
    """
    arrays = {array.path: array for array in plan.arrays}
    added = tuple(
        replace(
            arrays[form.of],
            path=path,
            node_id=ObjectId8.of_content(plan.build_id.encode(), path.encode()),
            references=ReferenceCounts(),
            expected=0,
        )
        for path, form in twins.items()
        if form.of in arrays
        and path not in arrays
        and form.misfit(json.loads(arrays[form.of].zarr_json)) is None
    )
    if not added:
        return plan
    notes = tuple(_note(array, twins[array.path], plan.concat_dim) for array in added)
    return replace(plan, arrays=(*plan.arrays, *added), notes=(*plan.notes, *notes))


def _note(array: PlannedArray, form: StoredForm, growing: Sequence[str]) -> str:
    """Say in which chunks a twin lies, and how much of it each append writes again."""
    edges, names = form.chunk_shape or array.chunk_shape, array.schema.dimension_names
    data_type = array.schema.data_type if form.coarsen is None else "float64"
    size = rewritten_bytes(form.shape(array.shape), edges, names, growing, data_type)
    lengths = " × ".join(map(str, edges))
    again = f"; an append writes up to {volume(size)} of its values again" if size else ""
    what = "the twin" if form.coarsen is None else "a coarser copy"
    return f"{array.path} is {what} of {form.of}, in chunks of {lengths}{again}"


def rewritten_bytes(
    shape: Sequence[int],
    edges: Sequence[int],
    names: Sequence[str | None],
    growing: Iterable[str],
    data_type: object,
) -> int:
    """Return how many bytes of values an append writes again at most: the last chunks."""
    sizes, dtype = [*zip(names, edges, shape, strict=True)], find_fixed_dtype(data_type)
    width = 0 if dtype is None else dtype.itemsize
    found = (
        width * math.prod(edge if each == name else size for each, edge, size in sizes)
        for name in growing
        if name in names
    )
    return max(found, default=0)


def with_copied(chosen: Sequence[str], forms: StoredForms) -> tuple[str, ...]:
    """Return paths of variables with their twins, and of twins with their variables."""
    pairs = [(path, form.of) for path, form in forms.items() if form.of is not None]
    more = (each for pair in pairs if not {*pair}.isdisjoint(chosen) for each in pair)
    return tuple(dict.fromkeys((*chosen, *more)))


def leave_behind(
    record: Mapping[str, Any], edited: Mapping[str, str], changed: Iterable[str]
) -> dict[str, str]:
    """Return what others changed, with the twins of variables that were changed since."""
    there = {*changed}
    behind = {path: BEHIND for path, form in forms_of(record).items() if form.of in there}
    return {**behind, **edited}


def find_unmarked(
    record: Mapping[str, Any], metadata: Mapping[str, Any], nodes: Mapping[str, Node]
) -> dict[str, str]:
    """Return the twins that the commit of a build does not mark as it has them.

    Then another commit repeated the metadata of the build: what it changed is not known.

    Args:
        record: Of the build.
        metadata: Of the snapshot that holds the record.
        nodes: Of that snapshot, by path.
    """
    marks, edited = marks_in(metadata), record.get("edited", {})
    found = {}
    for path, of in _pairs_in(record):
        twin, variable = nodes.get(path), nodes.get(of)
        if path in edited or not isinstance(twin, ArrayNode) or not isinstance(variable, ArrayNode):
            continue
        if marks.get(path) != digest_of_twin(variable, twin):
            found[path] = BEHIND
    return found


def mark_twins(
    records: Iterable[Mapping[str, Any]], before: Mapping[str, Any], nodes: Sequence[Node]
) -> JSONObject:
    """Return the marks of a commit: those of twins that records of datasets call in step.

    Args:
        records: That the commit leaves.
        before: Metadata of the snapshot that it stands on, whose marks are carried on.
        nodes: That it commits.
    """
    there = {node.path: node for node in nodes if isinstance(node, ArrayNode)}
    marks: dict[str, JSON] = {
        path: mark for path, mark in marks_in(before).items() if path in there
    }
    for record in records:
        for path, of in _pairs_in(record):
            twin, variable = there.get(path), there.get(of)
            marks.pop(path, None)
            are_own = _is_own(record, twin) and _is_own(record, variable)
            if twin and variable and are_own and path not in record.get("edited", {}):
                marks[path] = digest_of_twin(variable, twin)
    return {TWIN_MARKS: marks} if marks else {}


def say_levels_in(
    records: Sequence[Mapping[str, Any]], nodes: tuple[Node, ...]
) -> tuple[Node, ...]:
    """Return nodes of which groups say which coarser copies their variables have by now.

    Args:
        records: Of datasets that a commit leaves; they say to which groups that was said.
        nodes: That it commits.
    """
    said = {path for record in records for path in _groups_in(record)}
    if not said:
        return nodes
    there = {node.path: node for node in nodes if isinstance(node, ArrayNode)}
    levels = [
        (of, path, how)
        for record in records
        for path, of in _pairs_in(record)
        if path in there and of in there and (how := forms_of(record)[path].coarsen) is not None
        if not how.is_identity and there[of].dimension_names != (paths.name(of),)  # no coordinate
    ]

    def say(node: Node) -> Node:
        if not isinstance(node, GroupNode) or node.path not in said:
            return node
        before = document_of(node).get("attributes") or {}
        own = [each for each in levels if paths.parent(each[0]) == node.path]
        now = say_levels(before, node.path, own)
        return node if now == before else node._replace(user_data=group_json(node.user_data, now))

    return tuple(map(say, nodes))


def _groups_in(record: Mapping[str, Any]) -> list[str]:
    """Return the groups that say which coarser copies there are, and not because files do."""
    with suppress(TypeError, AttributeError):
        return [path for path, names in record.get("kept", {}).items() if SAID[1] in names]
    return []


def _pairs_in(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the twins that a record names, with their variables; none where it is no record."""
    with suppress(ValueError, TypeError, AttributeError):
        return [(path, each.of) for path, each in forms_of(record).items() if each.of is not None]
    return []
