"""Resolve files that hold the same steps, such as a product published twice, or rolling forecasts.

Duplicates are files that hold the same variables, and in part or in whole the same labels along all
concatenated dimensions. A rule decides which of them counts for a step; without a rule they are
refused. Of a file that wins some of its steps, these remain.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import LeftOut
from icevirt.errors import CombineError, Fix, OverlapError
from icevirt.model import paths
from icevirt.planning.axes.axis import NewDimension
from icevirt.planning.axes.coordinates import Runs
from icevirt.planning.axes.differing import dimension_apart
from icevirt.planning.axes.group_order import refuse_other_duplicates
from icevirt.planning.axes.label_proposals import labels_beside
from icevirt.planning.axes.name_proposals import relative
from icevirt.planning.axes.overlaps import (
    FileLabels,
    FilePieces,
    labels_of,
    merge_pieces,
    pieces_of,
)
from icevirt.planning.axes.placement import along, data_along, number_rows
from icevirt.planning.combine.options import Duplicates
from icevirt.planning.remedies import choose, fix, leave_out, own_names
from icevirt.remedy_notation import write_code, write_remedy

_SHOWN = 5  # files in a message
_NAMED = 2  # in a note


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsCut:
    """What was cut of files that hold some steps that another file holds too."""

    dimension: str
    files: int
    steps: int
    first: str  # URL
    ends: tuple[str, ...]  # the labels of the steps cut first


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDuplicates:
    """Which files are kept, and what is wrong with those that are not settled."""

    kept: NDArray[np.int64]  # rows of the files, in their order; one for each piece
    left_out: tuple[LeftOut, ...] = ()
    cuts: tuple[StepsCut, ...] = ()
    pieces: FilePieces | None = None  # that are kept, where files overlap in part
    labels: Mapping[str, FileLabels] = field(default_factory=dict)  # by dimension
    refused: CombineError | None = None


def settle_duplicates(
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
        CombineError: A rule is given, and nothing says which files hold the same steps, or groups
            of files say otherwise; or files of one step lie beside each other along a further
            dimension.
    """
    everything = np.arange(len(facts.files))
    found = {name: labels_of(facts, name) for name in dimensions}
    known = {name: labels for name, labels in found.items() if labels is not None}
    if len(known) < len(found) and rule != "refuse" and len(facts.files) > 1:
        raise CombineError(
            "duplicates cannot compare steps: some files have a dimension without its coordinate",
            do="Omit duplicates.",
            dimensions=[name for name, labels in found.items() if labels is None],
            duplicates=rule,
        )
    if len(known) < len(found) or not (found or new):
        return ResolvedDuplicates(kept=everything)
    pieces = pieces_of(len(facts.files), known)
    columns = [*(each.cell[pieces.file] for each in new), *pieces.cell.values()]
    place = number_rows(columns, len(pieces.file))
    placed = np.all([column >= 0 for column in columns], axis=0)
    number = np.unique(place, return_inverse=True)[1]
    often = np.flatnonzero(placed & (np.bincount(number)[number] > 1))
    alike = _Alike.among(facts, pieces, often, number, dimensions)
    _refuse_tiles(
        facts, alike.group, pieces.file[alike.rows], [*dimensions, *(n.name for n in new)]
    )
    if len(alike.rows) and rule == "refuse":
        error = _refusal(facts, pieces, alike, new, known)
        return ResolvedDuplicates(kept=everything, refused=error)
    best = alike.best(facts, pieces, rule)
    kept = best < 0
    kept[best[alike.rows]] = True
    rows = np.flatnonzero(kept)
    left_out = _list_left_out(facts, pieces, best, rows)
    cuts = tuple(_cuts(facts, pieces, rows, known))
    if left_out or cuts:
        refuse_other_duplicates(facts, known)
    if not pieces.skip:
        return ResolvedDuplicates(kept=rows, left_out=left_out)
    joined = merge_pieces(pieces.take(rows))
    return ResolvedDuplicates(
        kept=joined.file, left_out=left_out, cuts=cuts, pieces=joined, labels=known
    )


def _refuse_tiles(
    facts: CatalogFacts,
    group: NDArray[np.int64],
    files: NDArray[np.int64],
    dimensions: Sequence[str],
) -> None:
    """Refuse files that no rule may leave out: they hold other places of the same steps."""
    if (found := dimension_apart(facts, group, files, dimensions)) is None:
        return
    name, first, other = found
    price = "files are placed along each of these dimensions"
    raise CombineError(
        f"files of one step along {', '.join(map(repr, dimensions))} lie beside each other along"
        f" {name!r}",
        fixes=[fix(price, concat_dim=[*dimensions, name])],
        first=facts.files.url[first],
        other=facts.files.url[other],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """FilePieces of which others hold the same variables at the same place."""

    rows: NDArray[np.int64]  # of the pieces, those of a group one behind the other
    group: NDArray[np.int64]  # of each

    @classmethod
    def among(
        cls,
        facts: CatalogFacts,
        pieces: FilePieces,
        rows: NDArray[np.int64],
        place: NDArray[np.int64],
        dimensions: Sequence[str],
    ) -> _Alike:
        """Find them among some pieces, given the place of all."""
        if not len(rows):
            return cls(rows, rows)
        held = _variables(facts, np.unique(pieces.file[rows]), dimensions)[pieces.file[rows]]
        rows, held = rows[held >= 0], held[held >= 0]
        group = np.unique(number_rows([place[rows], held], len(rows)), return_inverse=True)[1]
        often = (np.bincount(group) > 1)[group]
        rows, group = rows[often], group[often]
        first = np.full(int(group.max(initial=-1)) + 1, len(rows))
        np.minimum.at(first, group, np.arange(len(rows)))
        order = np.lexsort((rows, first[group]))
        return cls(rows[order], first[group][order])

    def best(self, facts: CatalogFacts, pieces: FilePieces, rule: Duplicates) -> NDArray[np.int64]:
        """Return which piece counts in the place of each of all pieces; -1 where it is alone."""
        best = np.full(len(pieces.file), -1, np.int64)
        files = np.unique(pieces.file[self.rows])
        ranked = np.array(sorted(files.tolist(), key=_preference(facts, rule)), np.int64)
        rank = np.zeros(len(facts.files), np.int64)
        rank[ranked] = np.arange(len(ranked))
        order = np.lexsort((rank[pieces.file[self.rows]], self.group))
        winner = np.full(int(self.group.max(initial=-1)) + 1, -1, np.int64)
        winner[self.group[order]] = self.rows[order]  # the last of each group stays
        best[self.rows] = winner[self.group]
        return best


def _variables(
    facts: CatalogFacts, rows: NDArray[np.int64], dimensions: Sequence[str]
) -> NDArray[np.int64]:
    """Number what some files hold along all dimensions, equal sets alike; -1 where nothing."""
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
    found = np.full(len(facts.files), -1, np.int64)
    found[rows] = np.where(held.lengths > 0, held.numbers(), -1)
    return found


def _list_left_out(
    facts: CatalogFacts, pieces: FilePieces, best: NDArray[np.int64], kept: NDArray[np.int64]
) -> tuple[LeftOut, ...]:
    """Return the files of which nothing is kept, and those that have their first steps."""
    files, first = np.unique(pieces.file, return_index=True)
    gone = ~np.isin(files, pieces.file[kept])
    others = pieces.file[best[first[gone]]]
    url = facts.files.url
    return tuple(
        LeftOut(url=url[file], kept=url[other])
        for file, other in zip(files[gone].tolist(), others.tolist(), strict=True)
    )


def _cuts(
    facts: CatalogFacts,
    pieces: FilePieces,
    kept: NDArray[np.int64],
    labels: Mapping[str, FileLabels],
) -> list[StepsCut]:
    """Return what is cut of files that keep some of their steps, in the first dimension cut."""
    lost = np.isin(pieces.file, pieces.file[kept])
    lost[kept] = False
    rows = np.flatnonzero(lost)
    if not len(rows):
        return []
    name = next(iter(pieces.skip))
    skips, counts = pieces.skip[name], pieces.count[name]
    file, skip = int(pieces.file[rows[0]]), int(skips[rows[0]])
    mine = rows[pieces.file[rows] == file]
    end = int((skips + counts)[mine].max())
    return [
        StepsCut(
            dimension=name,
            files=len(np.unique(pieces.file[rows])),
            steps=int(counts[rows].sum()),
            first=facts.files.url[file],
            ends=tuple(labels[name].ends(file, skip, end - skip)),
        )
    ]


def _refusal(
    facts: CatalogFacts,
    pieces: FilePieces,
    alike: _Alike,
    new: Sequence[NewDimension],
    known: Mapping[str, FileLabels],
) -> CombineError:
    """Return the error, which names the first group of files and their steps."""
    rows = alike.rows[alike.group == alike.group[0]]
    files = pieces.file[rows].tolist()
    steps = {each.name: str(each.axis.name(int(each.cell[files[0]]))) for each in new}
    partly = any(
        pieces.count[name][row] < known[name].keys.runs.lengths[known[name].row[pieces.file[row]]]
        for name in pieces.skip
        for row in rows.tolist()
    )
    if partly:
        return _overlapping(facts, pieces, alike, known, steps)
    for name, labels in known.items():
        ends = labels.ends(files[0])
        steps[name] = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    names = [*known] or [each.name for each in new]
    where = ", ".join(f"{name}={step}" for name, step in steps.items())
    groups = len(np.unique(alike.group))
    more = "" if groups == 1 else f"; {groups - 1} other steps have the same problem"
    return OverlapError(
        f"{len(rows)} files hold the same variables at the same step along"
        f" {', '.join(map(repr, names))}: {where}{more}",
        fixes=[
            *_lie_beside(facts, pieces, alike, [*known, *(e.name for e in new)]),
            *_rules(names, new),
        ],
        files=[facts.files.url[row] for row in files[:_SHOWN]],
        step=steps,
    )


def _lie_beside(
    facts: CatalogFacts, pieces: FilePieces, alike: _Alike, dimensions: Sequence[str]
) -> Iterator[Fix]:
    """Yield the fix that places files by what each step has all of: values, or dates in names."""
    files, arrays = pieces.file[alike.rows], facts.arrays
    groups = len(np.unique(alike.group))
    for code, path in enumerate(arrays.path.values):
        rows, name = np.flatnonzero(arrays.path.codes == code), paths.name(path)
        texts = {arrays.shape.values[each] for each in np.unique(arrays.shape.codes[rows]).tolist()}
        if texts != {"[]"} or len(rows) < len(facts.files) or paths.parent(path) != paths.ROOT:
            continue
        codes = arrays.digest.codes[rows]
        known, number = np.unique(codes, return_inverse=True)
        if name in dimensions or not all(arrays.digest.values[each] for each in known.tolist()):
            continue
        value = np.zeros(len(facts.files), np.int64)
        value[arrays.file[rows]] = number
        pairs = np.unique(np.stack([alike.group, value[files]]), axis=1).shape[1]
        if len(known) > 1 and pairs == len(files) == groups * len(known):
            yield fix(
                f"files of one step lie beside each other along {name}, by its values",
                concat_dim=[*dimensions, name],
                labels={name: f"variable:{name}"},
            )
            return
    if (told := labels_beside(facts, files, alike.group)) is not None:
        name, pattern, span = told
        price = f"files of one step lie beside each other: {span}, from the names"
        yield fix(price, concat_dim=[name, *dimensions], labels=pattern)


def _overlapping(
    facts: CatalogFacts,
    pieces: FilePieces,
    alike: _Alike,
    known: Mapping[str, FileLabels],
    steps: Mapping[str, str],
) -> CombineError:
    """Return the error about files that overlap in part."""
    rows = alike.rows[alike.group == alike.group[0]]
    name = next(iter(pieces.skip))
    labels = known[name]
    one, other = (int(pieces.file[row]) for row in rows[:2])
    shared = np.isin(pieces.cell[name], pieces.cell[name][pieces.file == one])
    mine = np.flatnonzero((pieces.file == other) & shared)
    count = int(pieces.count[name][mine].sum())
    again = np.ones(len(alike.rows), np.bool_)
    again[np.unique(alike.group, return_index=True)[1]] = False
    twice = int(pieces.count[name][alike.rows[again]].sum())
    files = len(np.unique(pieces.file[alike.rows]))
    where: dict[str, Any] = {"at": dict(steps)} if steps else {}
    both = _count(count, "step")
    each = "" if files == 2 else f"; {twice} steps of {files} files are held more than once"
    return OverlapError(
        f"two files overlap along {name!r}: both hold {both}{each}",
        fixes=_rules([*known], steps),
        first=facts.files.url[one],
        first_range=labels.ends(one),
        second=facts.files.url[other],
        second_range=labels.ends(other),
        both=labels.ends(other, int(pieces.skip[name][mine[0]]), count),
        **where,
    )


def _rules(dimensions: Sequence[str], new: object) -> list[Fix]:
    """Return how all steps are kept, and the rules that settle which file is used."""
    found = [
        fix("of files with the same steps, the one modified last counts", duplicates="newest"),
        fix("the one with the highest number in its name counts", duplicates="version"),
        fix("the first one among the sources counts", duplicates="first"),
        fix("the last one among the sources counts", duplicates="last"),
    ]
    if not new and len(dimensions) == 1:  # nested lists take no labels that files tell
        price = "files follow one another in the order given, and steps repeat"
        found.insert(0, fix(price, combine="nested", concat_dim=dimensions))
    return found


def _preference(facts: CatalogFacts, rule: Duplicates) -> Callable[[int], Any]:
    files = facts.files
    rules: dict[Duplicates, Callable[[int], Any]] = {
        "first": lambda row: -row,
        "newest": lambda row: (int(files.last_modified[row]), _natural(files.url[row]), row),
        "version": lambda row: (_natural(files.url[row]), row),
    }
    return rules.get(rule, lambda row: row)


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
    has = np.zeros(len(arrays.file), np.bool_)
    for dimension in dimensions:
        has |= along(facts, dimension)
    one, other = ({*own_names(arrays, np.flatnonzero(has & (arrays.file == f)))} for f in files)
    rule = write_remedy("choose one with ", choose(duplicates="newest"), ", or version")
    if one == other:
        return write_remedy("Leave one of them out, or ", rule, ".")
    return write_remedy(
        "Leave one of them out. Duplicates are files that hold the same variables: to make these "
        "duplicates, drop the variables that one of them lacks with ",
        leave_out(*sorted(one ^ other)),
        ", and ",
        rule,
        ".",
    )


def describe_duplicates(
    left_out: Sequence[LeftOut], rule: Duplicates, cuts: Sequence[StepsCut] = ()
) -> list[str]:
    """Return lines that say what was left out, if anything was."""
    found: list[str] = []
    chosen = write_code(f"duplicates={rule!r}", f"--duplicates {rule}")
    if left_out:
        names = relative([url for each in left_out[:_NAMED] for url in (each.url, each.kept)])
        pairs = [f"{out} (kept: {kept})" for out, kept in itertools.batched(names, 2)]
        more = f" and {len(left_out) - _NAMED:,} more" if len(left_out) > _NAMED else ""
        found.append(
            write_remedy(
                f"{_count(len(left_out), 'file')} left out because other files hold the same steps"
                " (",
                chosen,
                f"): {', '.join(pairs)}{more}",
            )
        )
    found += [
        write_remedy(
            f"{_count(each.steps, 'step')} of {_count(each.files, 'file')} cut along"
            f" {each.dimension!r} because other files hold them too (",
            chosen,
            f"); the first: {' to '.join(dict.fromkeys(each.ends))}"
            f" of {each.first.rpartition('/')[2]}",
        )
        for each in cuts
    ]
    return found


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
