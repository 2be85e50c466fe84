"""Know what was decided of arrays, so that it is not decided again of equal facts.

A process that appends file after file plans files of the same arrays again and again. What is
decided of an array follows from its rows of the facts, from where files lie, and from the options.
Where all of them are equal, so is the decision. Labels differ from file to file, and so does what
is counted by them: arrays with labels are decided each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded
from icevirt.archive.kinds import NumberColumn
from icevirt.archive.plan import PlannedArray
from icevirt.planning.axes.axis import CombinedVariable, Placement
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.prepare import PreparedFacts

_MOST = 100_000  # rows of arrays that are compared and kept
_BYTES = 2048  # that an array takes beside its texts
_TEXTS = ("path", "schema", "shape", "digest", "own_path")
_COUNTS = ("virtual", "inline", "virtual_bytes", "inline_bytes")

type Decisions = Mapping[str, tuple[CombinedVariable, PlannedArray]]
"""What an array of several files is, and its plan, by path in the files."""

NOTHING: Decisions = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Decided:
    """Decisions, and what they follow from."""

    spec: CombineSpec
    alike: frozenset[str]
    columns: Mapping[str, Coded | NDArray[np.integer] | None]  # a row for each array of a file
    cells: Placement
    made: Decisions


@dataclass(slots=True)
class KnownDecisions:
    """What was decided last. Others may use it at the same time: it is replaced as a whole."""

    _last: _Decided | None = field(default=None)

    def find(self, prepared: PreparedFacts, spec: CombineSpec, cells: Placement) -> Decisions:
        """Return what would be decided again of arrays of files that have these cells."""
        last = self._last
        facts = prepared.facts
        if last is None or not _is_plain(prepared, spec) or facts.alike != last.alike:
            return NOTHING
        if not _is_same_choice(spec, last.spec) or not cells.alike(last.cells):
            return NOTHING
        columns = _columns_of(facts.arrays)
        if not all(_same_rows(columns[name], last.columns[name]).all() for name in _GLOBAL):
            return NOTHING
        changed = np.zeros(len(facts.arrays.file), np.bool_)
        for name, column in columns.items():
            changed |= ~_same_rows(column, last.columns[name])
        path = facts.arrays.path
        others = {path.values[code] for code in path.find_used(path.codes[changed]).tolist()}
        others |= _labeled(facts)
        return {path: made for path, made in last.made.items() if path not in others}

    def keep(
        self,
        prepared: PreparedFacts,
        spec: CombineSpec,
        cells: Placement,
        members: Sequence[CombinedVariable],
        arrays: Mapping[str, PlannedArray],
    ) -> None:
        """Keep what was decided.

        Args:
            prepared: The facts.
            spec: The choices.
            cells: Where files lie.
            members: What was found of arrays.
            arrays: Their plans, by path in the files, where nothing else counts: no missing files,
                no times that count otherwise, no numbers of elements.
        """
        facts = prepared.facts
        if not _is_plain(prepared, spec) or len(facts.arrays.file) > _MOST:
            self._last = None
            return
        labeled = _labeled(facts)
        found = {
            each.path: (replace(each, along=()), arrays[each.path])
            for each in members
            if each.path in arrays and each.path not in labeled
            if not any(axis.steps for axis in each.along)
        }
        bare = tuple(replace(axis, names=()) for axis in cells.axes)
        self._last = _Decided(
            spec=spec,
            alike=facts.alike,
            columns=_columns_of(facts.arrays),
            cells=replace(cells, axes=bare),
            made=found,
        )

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        if self._last is None:
            return 0
        texts = (e for e in self._last.columns.values() if isinstance(e, Coded))
        text = sum(len(value) for each in texts for value in each.values)
        return 3 * text + sum(
            _BYTES + len(made.zarr_json) + 32 * len(made.files)
            for _, made in self._last.made.values()
        )


_GLOBAL = ("file", "path", "schema", "shape")  # that decisions about other arrays look at


def _is_plain(prepared: PreparedFacts, spec: CombineSpec) -> bool:
    """Say whether nothing but the columns, the cells and the options is looked at."""
    more = (prepared.new, prepared.times, prepared.given, prepared.cuts, spec.labels, spec.spacing)
    others = (prepared.facts.cuts, prepared.nest, prepared.label_edits, prepared.twice)
    is_whole = all(each is None for each in others)
    return is_whole and not any(map(len, more)) and not spec.tolerance


def _is_same_choice(spec: CombineSpec, other: CombineSpec) -> bool:
    try:
        return spec == other
    except ValueError:  # arrays among attributes, whose equality is no single answer
        return False


def _labeled(facts: CatalogFacts) -> set[str]:
    path = facts.arrays.path
    return {path.values[code] for code in path.find_used(path.codes[facts.arrays.labels.row])}


def _columns_of(arrays: ArrayColumns) -> dict[str, Coded | NDArray[np.integer] | None]:
    """Return what decisions look at of each array of each file."""
    found: dict[str, Coded | NDArray[np.integer] | None] = {
        "file": np.asarray(arrays.file),
        "form": None if arrays.form is None else _numbers(arrays.form),
    }
    for name in _TEXTS:
        column: Coded | None = getattr(arrays, name)
        found[name] = None if column is None else Coded(_numbers(column.codes), column.values)
    return found | {name: getattr(arrays, name)[:] for name in _COUNTS}


def _numbers(column: NumberColumn) -> NDArray[np.integer]:
    numbers: NDArray[np.integer] = column[:]
    return numbers


def _same_rows(
    one: Coded | NDArray[np.integer] | None, other: Coded | NDArray[np.integer] | None
) -> NDArray[np.bool_]:
    """Say which rows of two columns are equal; columns of different lengths have none."""
    if one is None and other is None:
        return np.ones(1, np.bool_)
    if one is None or other is None or len(one) != len(other):
        return np.zeros(1, np.bool_)
    if not isinstance(one, Coded) or not isinstance(other, Coded):
        return np.asarray(np.asarray(one) == np.asarray(other))
    if one.values == other.values:
        return np.asarray(one.codes == other.codes)
    number = {value: code for code, value in enumerate(other.values)}
    codes = np.array([number.get(value, -1) for value in one.values], np.int64)
    return np.asarray(codes[one.codes] == other.codes)
