"""Compare a plan with what its group holds: what it removes, changes and adds.

It compares the arrays' metadata, which holds all that a reader depends on: variables, types,
dimensions, lengths and decoding. Chunks and codecs affect speed only, and a new build is meant to
add steps: such changes are reported and stop nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from icevirt.archive.plan import ArrayMode, BuildPlan
from icevirt.archive.reports.build import GROWN, OTHERS, PlanChange
from icevirt.archive.schema import DECODING, decoder_of
from icevirt.model import paths
from icevirt.model.attributes import read_dtypes, restore
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.planning.normal_form import differences
from icevirt.planning.reader_support import name_of
from icevirt.planning.remedies import list_names
from icevirt.planning.stored_form import StoredForms
from icevirt.planning.times.calendars import SINCE_REFORM
from icevirt.planning.times.units import DECODED_DURATIONS, bounds_of, calendar_called, says_since
from icevirt.versioning.merge.kept_nodes import Loss

_SHOWN = 10  # variables in a line
_OF_TIMES = ("data_type", "fill_value", "units", "dtype", "_FillValue", "missing_value")
"""What may differ of times and durations that mean the same."""


class _Length(NamedTuple):
    """How long an axis of an array was, and is."""

    path: str
    axis: int
    name: str
    before: int
    after: int


type Edits = tuple[FileEdit, str]
"""What a person set in all files, and the function that set more."""


def plan_changes(
    last: Mapping[str, bytes],
    files: int,
    plan: BuildPlan,
    edits: tuple[Edits, Edits],
    forms: StoredForms = MappingProxyType({}),
) -> list[PlanChange]:
    """Compare a plan with the arrays that it replaces.

    Args:
        last: zarr.json of the arrays, by path, as they are now.
        files: How many files the last build was made of; 0 unknown.
        plan: The new one.
        edits: Of the last build, and of the new one.
        forms: How variables are stored that are stored again.
    """
    old = {path: json.loads(raw) for path, raw in last.items()}
    new = {array.path: array for array in plan.arrays}
    steps: dict[str, dict[tuple[int, int], list[str]]] = {}
    longer: list[_Length] = []
    changes = []
    if gone := [path for path in old if path not in new]:
        text = f"{_count(gone)} vanished: {list_names(gone, _SHOWN)}"
        changes.append(PlanChange(what=text, stops=True))
    if added := [path for path in new if path not in old]:
        text = f"{_count(added)} new: {list_names(added, _SHOWN)}"
        changes.append(PlanChange(what=text, stops=False))
    documents = {path: json.loads(array.zarr_json) for path, array in new.items()}
    documents |= {
        path: form.apply(documents[path], path)
        for path, form in forms.items()
        if path in documents and form.misfit(documents[path]) is None
    }
    times = _times(old) & _times(documents)
    for path, array in new.items():
        if path in old:
            now = documents[path]
            # a build cuts chunks anew unless they are the chunks of the files
            of_files = array.mode in (ArrayMode.concat, ArrayMode.once)
            stored = of_files and not array.schema.whole
            is_time = path in times and not _is_corrected(array.source_path, edits)
            changes += _of_array(path, old[path], now, stored=stored, is_time=is_time)
            longer += _lengths(path, old[path], now, plan.concat_dim, steps)
    changes += _steps(steps)
    changes += _growth(longer, times)
    if 0 < len(plan.files) < files:
        changes.append(PlanChange(what=f"files {files:,} → {len(plan.files):,}", stops=False))
    return changes


def changes_of_others(
    found: Iterable[Loss], commits: Mapping[str, tuple[str, str]]
) -> Iterator[PlanChange]:
    """Yield what a build would undo of the work of others, a line for each of their commits.

    Args:
        found: What it would undo.
        commits: Id and message of the commit that changed a path last, where that is known.
    """
    lines: dict[tuple[bool, str], list[str]] = {}
    for loss in found:
        commit = commits.get(loss.path)
        by = "an earlier commit" if commit is None else f"commit {commit[0]} ({commit[1]!r})"
        lines.setdefault((loss.stops, by), []).append(f"{loss.path} ({loss.what})")
    for (stops, by), undone in lines.items():
        what = "would be lost" if stops else "would be undone"
        text = f"work of {by} {what}: {list_names(undone, _SHOWN)}"
        yield PlanChange(what=text, stops=stops, kind=OTHERS)


def _of_array(
    path: str, old: Mapping[str, Any], new: Mapping[str, Any], *, stored: bool, is_time: bool
) -> Iterator[PlanChange]:
    facts = [("data type", "data_type"), ("dimensions", "dimension_names")]
    for name, key in (*facts, ("fill value", "fill_value")):
        if old.get(key) != new.get(key):
            stops = not (is_time and key in _OF_TIMES)
            found = _change(path, name, old.get(key), new.get(key), stops=stops)
            yield replace(found, kind=name) if key == "fill_value" else found
    unlike = differences(_said(old), _said(new))
    for name in DECODING:
        was, now = _attribute(old, name), _attribute(new, name)
        if was != now:
            is_same = name in _OF_TIMES or (name == "calendar" and _agree(was, now))
            stops = f"attribute {name}" in unlike and not (is_time and is_same)
            yield _change(path, name, was, now, stops=stops)
    if not stored:
        return
    grids = [each["chunk_grid"]["configuration"] for each in (old, new)]
    if grids[0] != grids[1]:
        edges = [grid.get("chunk_shape", grid.get("chunk_shapes")) for grid in grids]
        yield _change(path, "chunks", *edges, stops=False)
    codecs = [[decoder_of(codec) for codec in each["codecs"]] for each in (old, new)]
    if codecs[0] != codecs[1]:
        names = [[name_of(codec) for codec in each] for each in codecs]
        yield _change(path, "codecs", *(names if names[0] != names[1] else codecs), stops=False)


def _said(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a document says of decoding, as the signature of a schema does."""
    attributes, dtypes = document.get("attributes") or {}, read_dtypes(document)
    named = (name for name in DECODING if name in attributes)
    said = {f"attribute {name}": [attributes[name], dtypes.get(name)] for name in named}
    return {"data type": document.get("data_type"), **said}


def _attribute(document: Mapping[str, Any], name: str) -> Any:
    value = (document.get("attributes") or {}).get(name)
    dtype = read_dtypes(document).get(name)
    if dtype is None:
        return value
    with suppress(ValueError, TypeError):  # anybody may have written them
        value = restore({name: value}, {name: dtype})[name]
    return f"{value} ({dtype})"


def _times(documents: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the paths of times and durations, and of their bounds.

    A build converts times to another date, unit or type where files need it, which changes no time.
    """
    found = set()
    for path, document in documents.items():
        attributes = document.get("attributes") or {}
        units = attributes.get("units")
        if isinstance(units, str) and (says_since(units) or units in DECODED_DURATIONS):
            found |= {path, *bounds_of(path, attributes)}
    return found


def _agree(*calendars: Any) -> bool:
    """Say whether calendars have the same dates."""
    return {calendar_called(str(each or "standard")) for each in calendars} <= SINCE_REFORM


def _is_corrected(path: str, edits: tuple[Edits, Edits]) -> bool:
    """Say whether the units of an array differ because a person says something else of them.

    Then the stored numbers stay, and another date changes all times.
    """
    (one, function), (other, again) = edits
    return function != again or one.choose_attributes(path).get("units") != other.choose_attributes(
        path
    ).get("units")


def _lengths(
    path: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    along: Collection[str],
    steps: dict[str, dict[tuple[int, int], list[str]]],
) -> Iterator[_Length]:
    """Yield lengths of dimensions that differ; those along which files lie are gathered."""
    was, now = old["shape"], new["shape"]
    names = new.get("dimension_names") or [None] * len(now)
    if len(was) != len(now):
        return  # the dimensions differ, which is reported
    for axis, (before, after) in enumerate(zip(was, now, strict=True)):
        name = names[axis] or f"axis {axis}"
        if before == after:
            continue
        if name in along:
            steps.setdefault(name, {}).setdefault((before, after), []).append(path)
        else:
            yield _Length(path, axis, name, before, after)


def _growth(lengths: Sequence[_Length], times: Collection[str]) -> Iterator[PlanChange]:
    """Yield lengths that differ though no files lie along their dimension.

    If times became more, and nothing else became longer or shorter, the files grew at their end, as
    a store does to which a program appends.
    """
    is_growth = len({each.name for each in lengths}) == 1 and all(
        each.axis == 0
        and each.after > each.before
        and any(f"{above.rstrip('/')}/{each.name}" in times for above in paths.ancestors(each.path))
        for each in lengths
    )
    for each in lengths:
        found = _change(each.path, f"length along {each.name}", each.before, each.after, stops=True)
        yield replace(found, kind=GROWN if is_growth else "")


def _steps(steps: Mapping[str, Mapping[tuple[int, int], list[str]]]) -> Iterator[PlanChange]:
    for name, found in steps.items():
        for (before, after), arrays in found.items():
            what = f"steps along {name} {before:,} → {after:,} of {list_names(arrays, _SHOWN)}"
            yield PlanChange(what=what, stops=after < before, kind="steps")


def _change(path: str, name: str, was: Any, now: Any, *, stops: bool) -> PlanChange:
    before, after = (
        "none"
        if each is None
        else each
        if isinstance(each, str)
        else json.dumps(each, ensure_ascii=False)
        for each in (was, now)
    )
    return PlanChange(what=f"{path}: {name} {before} → {after}", stops=stops)


def _count(paths: Sequence[str]) -> str:
    return f"{len(paths)} variable{'' if len(paths) == 1 else 's'}"
