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
from icevirt.logic.cells import data_along, files_along
from icevirt.logic.labels import labels_of

type Duplicates = Literal["refuse", "first", "last", "newest", "version"]


def check_rule(rule: str) -> None:
    """Raise ``InvalidInputError`` unless ``rule`` is one of ours."""
    known = get_args(Duplicates.__value__)
    if rule not in known:
        raise InvalidInputError(
            "unknown rule for duplicates", do=f"Use one of {', '.join(known)}.", duplicates=rule
        )


def without_duplicates(
    facts: CatalogFacts, dimension: str | None, rule: Duplicates
) -> tuple[NDArray[np.int64], tuple[LeftOut, ...]]:
    """Return the rows of the files to keep, in their order: one of those with the same labels.

    Args:
        facts: Of all files, times counted alike.
        dimension: Along which files are concatenated.
        rule: "first" and "last" go by the order given; "newest" by the time of modification, and
            among equal ones by the name; "version" by the name, numbers in it compared as numbers,
            so that a later creation time or version wins. "refuse" keeps all.
    """
    everything = np.arange(len(facts.files))
    if dimension is None or rule == "refuse":
        return everything, ()
    there = files_along(facts, dimension)
    labels = labels_of(facts, dimension, there)
    alone = all(len(each) == 1 for each in labels or ())
    if labels is None or (alone and len({each.tobytes() for each in labels}) < 2):
        # without labels, or with one and the same value everywhere, nobody can tell
        return everything, ()
    held = _variables(facts, dimension)
    alike: dict[tuple[str, bytes, frozenset[int]], list[int]] = defaultdict(list)
    for row, values in zip(there.tolist(), labels, strict=True):
        if len(values):
            alike[values.dtype.str, values.tobytes(), held[row]].append(row)
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


def _variables(facts: CatalogFacts, dimension: str) -> list[frozenset[int]]:
    """Return the data variables of each file along the dimension, as numbers of their paths."""
    held: list[set[int]] = [set() for _ in range(len(facts.files))]
    rows = np.flatnonzero(data_along(facts, dimension))
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
