"""Files that hold the same steps: a product published twice, of which a stated rule keeps one.

Duplicates are files that hold the same variables and whose labels along the concatenated dimension
are the same, all of them. Files that overlap in part are no duplicates, and the plan refuses them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import LeftOut
from icevirt.errors import InvalidInputError
from icevirt.logic.cells import Axis, data_along, files_along
from icevirt.logic.labels import coordinate_of
from icevirt.logic.ordering import Runs

type Duplicates = Literal["refuse", "first", "last", "newest", "version"]


def check_rule(rule: str) -> None:
    """Raise ``InvalidInputError`` unless ``rule`` is one of ours."""
    known = get_args(Duplicates.__value__)
    if rule not in known:
        raise InvalidInputError(
            "unknown rule for duplicates", do=f"Use one of {', '.join(known)}.", duplicates=rule
        )


def without_duplicates(
    facts: CatalogFacts, dimensions: Sequence[str], rule: Duplicates, new: Sequence[Axis]
) -> tuple[NDArray[np.int64], tuple[LeftOut, ...]]:
    """Return the rows of the files to keep, in their order: one of those with the same labels.

    Args:
        facts: Of all files, times counted alike.
        dimensions: Of the files, along which they are concatenated.
        rule: "first" and "last" go by the order given; "newest" by the time of modification, and
            among equal ones by the name; "version" by the name, numbers in it compared as numbers,
            so that a later creation time or version wins. "refuse" keeps all.
        new: Where files lie along dimensions that they do not have.
    """
    everything = np.arange(len(facts.files))
    if not (dimensions or new) or rule == "refuse":
        return everything, ()
    places: list[list[object]] = [axis.cell.tolist() for axis in new]
    data = np.ones(len(facts.arrays.file), np.bool_)
    for dimension in dimensions:
        there = files_along(facts, dimension)
        found = coordinate_of(facts, dimension, there)
        if found is None or (len(dimensions) == 1 and not new and _says_nothing(found.values)):
            # without labels, or with one and the same value everywhere, nobody can tell
            return everything, ()
        numbers, lengths = found.values.numbers().tolist(), found.values.lengths.tolist()
        place: list[object] = [None] * len(facts.files)
        for row, number, length in zip(there.tolist(), numbers, lengths, strict=True):
            place[row] = number if length else None
        places.append(place)
        data &= data_along(facts, dimension)
    held = _variables(facts, data)
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(*places, strict=True)):
        if held[row] and None not in key:
            alike[*key, held[row]].append(row)
    preference = _preference(facts, rule)
    kept = np.ones(len(facts.files), np.bool_)
    left_out = []
    for rows in alike.values():
        best = max(rows, key=preference)
        for row in rows:
            if row != best:
                kept[row] = False
                left_out.append(LeftOut(url=facts.files.url[row], kept=facts.files.url[best]))
    return np.flatnonzero(kept), tuple(left_out)


def _says_nothing(labels: Runs) -> bool:
    """Say whether all files hold one and the same label."""
    return bool((labels.lengths == 1).all()) and not labels.numbers().any()


def _variables(facts: CatalogFacts, data: NDArray[np.bool_]) -> list[frozenset[int]]:
    """Return the data variables of each file, as numbers of their paths."""
    held: list[set[int]] = [set() for _ in range(len(facts.files))]
    rows = np.flatnonzero(data)
    codes = facts.arrays.path.codes[rows].tolist()
    for file, code in zip(facts.arrays.file[rows].tolist(), codes, strict=True):
        held[file].add(code)
    known: dict[frozenset[int], frozenset[int]] = {}  # most files hold the same
    return [known.setdefault(each, each) for each in map(frozenset, held)]


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


def told(left_out: Sequence[LeftOut], rule: Duplicates) -> list[str]:
    """Return a line that says what was left out, if anything was."""
    if not left_out:
        return []
    first = left_out[0]
    files = "1 file" if len(left_out) == 1 else f"{len(left_out)} files"
    text = (
        f"{files} left out, because others hold the same steps (duplicates={rule!r});"
        f" the first: {first.url}, kept: {first.kept}"
    )
    return [text]
