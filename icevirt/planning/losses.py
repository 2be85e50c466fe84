"""Measure what a plan leaves out of the files, and put what loses least first.

Every command that an error proposes carries its `DataLoss`. It is counted here alone, and here is
the one order of proposals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Coded, FileColumns
from icevirt.archive.joining import itemsize_of
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import DataLoss, Fix
from icevirt.model import paths
from icevirt.planning.axes.placement import number_rows
from icevirt.planning.meaning.local_indices import START
from icevirt.planning.partial.storage_cost import stored_bytes
from icevirt.planning.remedies import GROUPED, count_groups

_STORING = frozenset(("on_mismatch", "missing", "chunk_grid", "float_variables"))
"""Options that decide whether values are stored; the others say nothing of it."""

_CHOOSING = frozenset(("duplicates",))
"""Options by which files or steps are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a plan costs."""

    loss: DataLoss
    stored: int  # bytes of values
    groups: str = ""  # into which files part, in words

    @classmethod
    def of(cls, facts: CatalogFacts, plan: BuildPlan) -> Measured:
        """Count what the files of facts hold and a plan lacks, and what it stores."""
        eras = plan.eras
        groups = "" if eras is None else count_groups(eras.count, as_one=eras.as_one)
        loss = _HeldRows(facts).less(plan)
        return cls(loss=loss, stored=stored_bytes(plan.arrays), groups=groups)

    def put_on(self, fix: Fix) -> Fix:
        """Return a fix with what it costs."""
        says = not _STORING.isdisjoint(fix.arguments.get("combine_options", {}))
        stored = self.stored if self.stored or says else None
        price = fix.price.replace(GROUPED, self.groups or GROUPED)
        return replace(fix, price=price, loss=self.loss, stored=stored)


def sort_by_loss(fixes: Iterable[Fix]) -> list[Fix]:
    """Return proposals, what keeps all values first; those that lose alike stay in their order."""
    return sorted(fixes, key=_rank)


def _rank(fix: Fix) -> tuple[int, float]:
    """Return what a proposal is sorted by; what discards an unknown part comes last.

    What a user has to know of the values, as they say nothing of it, comes behind what keeps them.
    """
    if may_lose(fix):
        return (2, math.inf) if fix.loss is None else fix.loss.rank
    said = fix.arguments.get("combine_options", {}).get("attrs", {})
    least = int(any(each.keys() - {START} for each in said.values()))
    return max((least, 0.0), (0, 0.0) if fix.loss is None else fix.loss.rank)


def may_lose(fix: Fix) -> bool:
    """Say whether the arguments of a fix leave something out, as far as they say it."""
    if fix.loss is not None:
        return bool(fix.loss)
    scanning = fix.arguments.get("scan_options", {})
    is_less = not _CHOOSING.isdisjoint(fix.arguments.get("combine_options", {}))
    return is_less or bool({"drop_variables", "max_bad_files"} & scanning.keys())


def keeps_one_dataset(fixes: Iterable[Fix]) -> bool:
    """Say whether one of some proposals keeps all values in one dataset."""
    return any(_rank(each) == (0, 0) for each in fixes)


def is_measured_whole(fix: Fix) -> bool:
    """Say whether a plan with a fix was made, and it lacks nothing."""
    return fix.loss is not None and not fix.loss


def with_loss_of(fix: Fix, other: Fix) -> Fix:
    """Return a fix with what another one was measured to cost."""
    return replace(fix, loss=other.loss, stored=other.stored)


class _HeldRows:
    """What files hold: a row for each array of each file."""

    def __init__(self, facts: CatalogFacts) -> None:
        self.own, self._facts = facts.arrays.in_files, facts
        arrays = facts.arrays
        self._file = np.asarray(arrays.file[np.arange(len(self.own))], np.int64)
        self._path = _wide(self.own)
        key = self._file * len(self.own.values) + self._path
        self._order = np.argsort(key, kind="stable")
        self._keys = key[self._order]
        shapes = [json.loads(each) for each in arrays.shape.values]
        elements = np.array([math.prod(each) for each in shapes], np.float64)
        types = (ArraySchema.loads(each).data_type for each in arrays.schema.values)
        width = np.array([itemsize_of(each) for each in types], np.float64)
        self._size = elements[arrays.shape.codes] * width[arrays.schema.codes]

    def _number_values(self, dimensions: Sequence[str]) -> NDArray[np.int64]:
        """Number the rows, alike where a variable has equal values in several files.

        Along dimensions of a plan that have labels, values are equal only if they belong to the
        same steps. Along others files follow one another, and what is not held twice is repeated.
        """
        arrays, rows = self._facts.arrays, len(self._path)
        names = [ArraySchema.loads(each).dimension_names for each in arrays.schema.values]
        labelled = {*dimensions} & {*map(paths.name, self.own.values)}
        along = np.array([not labelled.isdisjoint(each) for each in names], np.bool_)
        is_along, digest = along[_wide(arrays.schema)], _wide(arrays.digest)
        known = np.array([bool(each) for each in arrays.digest.values], np.bool_)[digest]
        columns = []
        for path in np.flatnonzero([_is_label(each, dimensions) for each in self.own.values]):
            mine = np.flatnonzero((self._path == path) & known)
            columns.append(np.full(len(self._facts.files), -1, np.int64))
            columns[-1][self._file[mine]] = digest[mine]
        steps = number_rows(columns, len(self._facts.files))
        has_labels = np.any([each >= 0 for each in columns], axis=0) if columns else steps > 0
        alike = number_rows(
            [self._path, _wide(arrays.schema), digest, np.where(is_along, steps[self._file], 0)],
            rows,
        )
        known &= ~is_along | has_labels[self._file]
        return np.where(known, alike, alike.max(initial=0) + 1 + np.arange(rows))

    def less(self, plan: BuildPlan) -> DataLoss:
        """Return what a plan lacks of it."""
        files = _find_files(self._facts.files, plan.files)
        share, cut = np.zeros(len(self._path)), np.zeros(len(self._facts.files), np.int64)
        of_eras = _files_of_eras(plan)
        for each in plan.arrays:
            if each.mode is not ArrayMode.given:
                compared = files[of_eras[_era_of(plan, each)]] if of_eras else files
                self._add(share, cut, each, files, compared)
                if _is_label(
                    each.source_path, plan.concat_dim
                ):  # of steps that are held twice, too
                    share[self._path == _find(self.own.values, each.source_path)] = 1.0
        gone = np.ones(len(self._facts.files), np.bool_)
        gone[files] = False
        if plan.concat_dim and gone.any():
            cut[gone] = self._length_along(plan.concat_dim[0])[gone]
        eras = plan.eras
        value = self._number_values(plan.concat_dim)
        found = self._count(share, value, gone, int(cut.sum()))
        apart = 0 if eras is None or eras.as_one else eras.count
        return replace(found, groups=apart)

    def _add(
        self,
        share: NDArray[np.float64],
        cut: NDArray[np.int64],
        planned: PlannedArray,
        files: NDArray[np.int64],
        compared: NDArray[np.int64],
    ) -> None:
        """Add how much of each row an array of the dataset holds.

        What is stored once was compared in all files, or in all of an era.
        """
        mine = files[planned.files]
        if planned.sources is None:
            code = _find(self.own.values, planned.source_path)
            codes = np.full(len(mine), code, np.int64)
        else:
            of = np.array([_find(self.own.values, each) for each in planned.sources.values])
            codes = of[planned.sources.codes].astype(np.int64)
        if planned.mode is ArrayMode.once:
            code = codes[0] if len(codes) else -1
            rows, there = self._rows(compared, np.full(len(compared), code, np.int64))
            share[rows[there]] = 1.0
            return
        held = planned.lengths if planned.held is None else planned.held
        part = (planned.lengths / np.maximum(held, 1)).prod(axis=1)
        rows, there = self._rows(mine, codes)
        # an empty array is there; what each step of a file would repeat is not if it has none
        empty = (held == 0).any(axis=1)
        part[empty] = self._size[rows[empty]] == 0
        np.add.at(share, rows[there], part[there])
        if planned.held is not None:
            whole, kept = np.zeros_like(cut), np.zeros_like(cut)
            whole[mine] = held[:, 0]
            np.add.at(kept, mine, planned.lengths[:, 0])
            np.maximum(cut, whole - kept, out=cut)

    def _rows(
        self, files: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        key = files * len(self.own.values) + codes
        at = np.minimum(np.searchsorted(self._keys, key), max(0, len(self._keys) - 1))
        there = (codes >= 0) & (self._keys[at] == key) if len(self._keys) else codes < -1
        return self._order[at], there

    def _count(
        self,
        share: NDArray[np.float64],
        value: NDArray[np.int64],
        gone: NDArray[np.bool_],
        steps: int,
    ) -> DataLoss:
        """Count what is lost where a share of each row is there; equal values count once."""
        _, first, number = np.unique(value, return_index=True, return_inverse=True)
        best = np.zeros(len(first))
        np.maximum.at(best, number, share)
        lost = np.clip(1.0 - best, 0.0, 1.0)
        paths_there = np.zeros(len(self.own.values), np.bool_)
        paths_there[self._path[share > 0]] = True
        of_lost = np.zeros(len(self.own.values), np.bool_)
        of_lost[self._path[first[lost > 0]]] = True
        is_lost = lost[number] > 0
        has_lost = np.zeros(len(gone), np.bool_)
        has_lost[self._file[is_lost]] = True
        return DataLoss(
            variables=int((of_lost & ~paths_there).sum()),
            files=int((gone & has_lost).sum()),
            steps=steps if is_lost.any() else 0,
            bytes=round(float((lost * self._size[first]).sum())),
        )

    def _length_along(self, dimension: str) -> NDArray[np.int64]:
        """Return how many steps each file has along a dimension; one along a new one."""
        arrays = self._facts.arrays
        pairs = number_rows([*map(_wide, (arrays.schema, arrays.shape))], len(self._path))
        found = np.zeros(len(self._facts.files), np.int64)
        for pair in np.unique(pairs):
            rows = np.flatnonzero(pairs == pair)
            names = ArraySchema.loads(arrays.schema[int(rows[0])]).dimension_names
            if dimension in names:
                length = json.loads(arrays.shape[int(rows[0])])[names.index(dimension)]
                np.maximum.at(found, self._file[rows], length)
        return found if found.any() else np.ones_like(found)


def _files_of_eras(plan: BuildPlan) -> dict[str, NDArray[np.int64]]:
    """Return the plan's files of each era, by the name of its group; none where there are none."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for each in plan.arrays if plan.eras is not None else ():
        found.setdefault(_era_of(plan, each), []).append(each.files)
    return {era: np.unique(np.concatenate(files)) for era, files in found.items()}


def _era_of(plan: BuildPlan, planned: PlannedArray) -> str:
    return planned.path.removeprefix(plan.group.rstrip("/")).split("/")[1]


def _is_label(path: str, dimensions: Sequence[str]) -> bool:
    """Say whether a variable is named like one of some dimensions: its labels."""
    return paths.name(path) in dimensions


def _wide(column: Coded) -> NDArray[np.int64]:
    return np.asarray(column.codes[np.arange(len(column))], np.int64)


def _find(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else -1


def _find_files(files: FileColumns, some: FileColumns) -> NDArray[np.int64]:
    """Return the rows of some files, which a plan has in another order."""
    size = int(max(files.row.max(initial=0), some.row.max(initial=0))) + 1
    number = {name: at for at, name in enumerate(files.parts)}
    key = files.part.astype(np.int64) * size + files.row
    own = np.array([number[name] for name in some.parts], np.int64)
    order = np.argsort(key)
    found: NDArray[np.int64] = order[np.searchsorted(key[order], own[some.part] * size + some.row)]
    return found
