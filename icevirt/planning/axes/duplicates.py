"""Resolve files that hold the same steps, such as a product published twice.

Duplicates are files that hold the same variables and have equal labels along all concatenated
dimensions. A rule decides which of them is kept; without a rule they are refused. Files that
overlap in part are no duplicates, and the plan refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import LeftOut
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.planning.axes.coordinates import coordinate_of
from icevirt.planning.axes.file_order import Keys, Runs
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.axes.placement import data_along, files_along, numbered
from icevirt.planning.remedies import choose, leave_out

_SHOWN = 5  # files in a message

type Duplicates = Literal["refuse", "first", "last", "newest", "version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDuplicates:
    """Which files are kept, and what is wrong with those that are not settled."""

    kept: NDArray[np.int64]  # rows of the files, in their order
    left_out: tuple[LeftOut, ...] = ()
    refused: CombineError | None = None


def settled(
    facts: CatalogFacts, dimensions: Sequence[str], rule: Duplicates, new: Sequence[NewDimension]
) -> ResolvedDuplicates:
    """Keep one of the files with the same labels; say which there are where that is refused.

    Args:
        facts: Of all files, times counted alike.
        dimensions: Of the files, along which they are concatenated.
        rule: "first" and "last" go by the order given; "newest" by the time of modification, and
            among equal ones by the name; "version" by the name, numbers in it compared as numbers,
            so that a later creation time or version wins.
        new: Where files lie along dimensions that they do not have.

    Raises:
        CombineError: A rule is given, and nothing says which files hold the same steps.
    """
    everything = np.arange(len(facts.files))
    found = [(name, _labels(facts, name)) for name in dimensions]
    known = [(name, keys) for name, keys in found if keys is not None]
    if len(known) < len(found) and rule != "refuse" and len(facts.files) > 1:
        raise CombineError(
            "duplicates cannot compare steps: some files have a dimension without its coordinate",
            do="Omit duplicates.",
            dimensions=[name for name, keys in found if keys is None],
            duplicates=rule,
        )
    if len(known) < len(found) or not (found or new):
        return ResolvedDuplicates(kept=everything)
    columns = [*(each.cell for each in new), *(keys.column for _, keys in known)]
    place = numbered(columns, len(facts.files))
    placed = np.all([column >= 0 for column in columns], axis=0)
    number = np.unique(place, return_inverse=True)[1]
    often = placed & (np.bincount(number)[number] > 1)
    alike = _alike(facts, np.flatnonzero(often), place, dimensions)
    if alike and rule == "refuse":
        return ResolvedDuplicates(kept=everything, refused=_refused(facts, alike, new, known))
    preference = _preference(facts, rule)
    kept = np.ones(len(facts.files), np.bool_)
    left_out = []
    for rows in alike:
        best = max(rows, key=preference)
        for row in rows:
            if row != best:
                kept[row] = False
                left_out.append(LeftOut(url=facts.files.url[row], kept=facts.files.url[best]))
    return ResolvedDuplicates(kept=np.flatnonzero(kept), left_out=tuple(left_out))


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """The labels of files along one dimension."""

    column: NDArray[np.int64]  # (files,) equal where labels are; -1: the file lacks some
    row: NDArray[np.int64]  # (files,) among the keys
    keys: Keys


def _labels(facts: CatalogFacts, dimension: str) -> _Labels | None:
    """Return the labels of files along a dimension; None where there are none."""
    there = files_along(facts, dimension)
    found = coordinate_of(facts, dimension, there)
    if found is None:
        return None
    keys = found.keys()
    column, row = (np.full(len(facts.files), -1, np.int64) for _ in range(2))
    gone = np.concatenate([[0], np.cumsum(keys.missing)])[keys.runs.starts]
    known = (keys.runs.lengths > 0) & (np.diff(gone) == 0)
    column[there] = np.where(known, keys.runs.numbers(), -1)
    row[there] = np.arange(len(there))
    return _Labels(column, row, keys)


def _alike(
    facts: CatalogFacts,
    rows: NDArray[np.int64],
    place: NDArray[np.int64],
    dimensions: Sequence[str],
) -> list[list[int]]:
    """Return groups of files of one place that hold the same variables, in the order given."""
    if not len(rows):
        return []
    data = np.ones(len(facts.arrays.file), np.bool_)
    for dimension in dimensions:
        data &= data_along(facts, dimension)
    number = np.full(len(facts.files), -1, np.int64)
    number[rows] = np.arange(len(rows))
    mine = np.flatnonzero(data & (number[facts.arrays.file] >= 0))
    file, code = number[facts.arrays.file[mine]], facts.arrays.path.codes[mine].astype(np.int64)
    order = np.lexsort((code, file))
    starts = np.searchsorted(file[order], np.arange(len(rows) + 1))
    held = Runs(code[order], starts, np.zeros(len(rows), np.int32))
    alike: dict[tuple[int, int], list[int]] = {}
    keys = zip(place[rows].tolist(), held.numbers().tolist(), strict=True)
    for row, key, length in zip(rows.tolist(), keys, held.lengths.tolist(), strict=True):
        if length:
            alike.setdefault(key, []).append(row)
    return [group for group in alike.values() if len(group) > 1]


def _refused(
    facts: CatalogFacts,
    alike: Sequence[Sequence[int]],
    new: Sequence[NewDimension],
    known: Sequence[tuple[str, _Labels]],
) -> CombineError:
    """Return the error, which names the first group of files and their steps."""
    rows = alike[0]
    steps = {each.name: str(each.axis.name(int(each.cell[rows[0]]))) for each in new}
    for name, labels in known:
        places = labels.keys.runs.places(labels.row[rows[:1]])
        ends = labels.keys.shown(places[[0, -1]])
        steps[name] = ends[0] if len(places) == 1 else f"{ends[0]} to {ends[1]}"
    names = [name for name, _ in known] or [each.name for each in new]
    where = ", ".join(f"{name}={step}" for name, step in steps.items())
    nested = (  # which takes no labels that files tell
        "; or, to keep all of them in the order given, whatever their coordinates say, pass"
        f" {choose(combine='nested')}."
    )
    more = "" if len(alike) == 1 else f"; {len(alike) - 1} other steps have the same problem"
    return CombineError(
        f"{len(rows)} files hold the same variables at the same step along"
        f" {', '.join(map(repr, names))}: {where}{more}",
        do=f"Choose one with {choose(duplicates='newest')}, or version, first or last"
        f"{'.' if new else nested}",
        files=[facts.files.url[row] for row in rows[:_SHOWN]],
        step=steps,
    )


def _preference(facts: CatalogFacts, rule: Duplicates) -> Callable[[int], Any]:
    files = facts.files
    match rule:
        case "first":
            return lambda row: -row
        case "newest":
            return lambda row: (int(files.last_modified[row]), _natural(files.url[row]), row)
        case "version":
            return lambda row: (_natural(files.url[row]), row)
        case "last" | "refuse":
            return lambda row: row


def _natural(url: str) -> list[tuple[int, str]]:
    """Return a sort key of a file's name, then of its folders, in which v10 follows v9."""
    folder, _, name = url.rpartition("/")
    return [*_parts(name), (-2, ""), *_parts(folder)]


def _parts(text: str) -> list[tuple[int, str]]:
    parts: Sequence[str] = re.split(r"([0-9]+)", text)
    return [(int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)]


def remedy(facts: CatalogFacts, files: tuple[int, int], dimensions: Sequence[str]) -> str:
    """Return what to do about two files that hold a variable for the same steps.

    Where one of them holds further variables along the dimensions, no rule chooses between them.
    """
    arrays = facts.arrays
    called = arrays.path if arrays.own_path is None else arrays.own_path
    one, other = (
        {
            called[row]
            for row in np.flatnonzero(arrays.file == file).tolist()
            if {*ArraySchema.loads(arrays.schema[row]).dimension_names} & {*dimensions}
        }
        for file in files
    )
    rule = f"choose one with {choose(duplicates='newest')}, or version"
    if one == other:
        return f"Leave one of them out, or {rule}."
    return (
        "Leave one of them out. Duplicates are files that hold the same variables: to make these "
        "duplicates, drop the variables that one of them lacks with "
        f"{leave_out(*sorted(one ^ other))}, and {rule}."
    )


def describe_duplicates(left_out: Sequence[LeftOut], rule: Duplicates) -> list[str]:
    """Return a line that says what was left out, if anything was."""
    if not left_out:
        return []
    first = left_out[0]
    files = "1 file" if len(left_out) == 1 else f"{len(left_out)} files"
    text = (
        f"{files} left out because other files hold the same steps (duplicates={rule!r}); the "
        f"first: {first.url}, kept: {first.kept}"
    )
    return [text]
