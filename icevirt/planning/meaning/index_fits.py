"""Say which dimension values of an index lie within, where nothing else tells what it numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.axes.dimension_scopes import DimensionScopes
from icevirt.planning.meaning.index_shifts import numbers_of_none
from icevirt.planning.meaning.local_indices import first_said

_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A dimension that an index may number."""

    dimension: str
    group: str  # that it belongs to
    from_one: bool  # as the values say


type _Key = tuple[str, str]  # a dimension, and the group that it belongs to


class IndexFits:
    """The dimensions that all values seen lie within."""

    def __init__(
        self, schema: ArraySchema, scopes: Mapping[str, DimensionScopes], group: str
    ) -> None:
        self._lengths: dict[_Key, NDArray[np.int64]] = {
            (name, owner): lengths
            for name, scope in scopes.items()
            for owner, lengths in scope.lengths.items()
        }
        self._own: list[_Key] = [
            (name or "", scopes[name].owner.get(group, group) if name else group)
            for name in schema.dimension_names
        ]
        self._group = group
        self._missing = numbers_of_none(schema)
        self._first = first_said(schema.attributes.values)
        self.slack = dict.fromkeys(self._lengths, 0)  # elements that no value reaches
        self._from_one: set[_Key] = set()
        self._counting = {*self._own}  # along which values count steps
        self._are_growing = True  # as where each row begins
        self._seen = 0  # files that hold numbers
        self._steps = set[_Key]()  # that it does not number, however well they fit

    def leave_out_own(self, are_steps: Callable[[str, str], bool]) -> None:
        """Leave out what the variable itself lies along, where that is steps of a time.

        An index of vegetation or of danger is a measure, whose numbers mostly are as small.

        Args:
            are_steps: Says so of a dimension and the group that it belongs to.
        """
        self._steps = {key for key in self._own if key in self.slack and are_steps(*key)}

    def see(self, values: NDArray[Any], file: int) -> None:
        """Keep the dimensions that values of a file lie within, and reach the second half of."""
        if values.ndim != len(self._own):
            self.slack.clear()
            return
        is_none = np.isin(values, [n for n in self._missing if float(n).is_integer()])
        held = values[~is_none & (values >= 0) & (values != np.iinfo(values.dtype).max)]
        if not held.size:
            return
        self._seen += 1
        least, most = int(held.min()), int(held.max())
        for axis, key in enumerate(self._own):
            wide = values.astype(np.int64)
            if values.shape[axis] > 1 and (np.diff(wide, axis=axis) != 1).any():
                self._counting.discard(key)
        is_growing = _are_growing(held)
        self._are_growing &= is_growing
        is_zero_none = self._first is None and is_growing and _has_gaps(held)
        for key in [*self.slack]:
            length = int(self._lengths[key][file])
            is_from_one = self._first == 1 or is_zero_none or most == length
            room = length - most - (not is_from_one)
            if length < 2 or room < 0 or 2 * most < length:
                del self.slack[key]
                continue
            self.slack[key] += room + (is_from_one and self._first is None and least == 0)
            if is_from_one:
                self._from_one.add(key)

    def count_steps(self) -> bool:
        """Say whether values of several files just count the steps that they lie along."""
        return self._seen > 1 and any(key in self.slack for key in self._counting)

    def closest(self, path: str, placed: Collection[str]) -> list[Numbered]:
        """Return the dimensions that fit best, the most likely first.

        Where the last row begins says little of how long a dimension is.
        """
        if not self._seen:
            return []
        fitting = [
            key
            for key, slack in self.slack.items()
            if key[0] in placed or not (self._are_growing and slack)
        ]
        near = [key for key in fitting if self._is_near(key[1])] or fitting
        least = min((self.slack[key] for key in near), default=0)
        parts = {*parts_of(paths.name(path))}
        best = sorted(
            (key for key in near if self.slack[key] == least),
            key=lambda key: (parts.isdisjoint(parts_of(key[0])), key in self._own, key),
        )
        return [
            Numbered(
                dimension=name,
                group=owner,
                from_one=self._first is None and (name, owner) in self._from_one,
            )
            for name, owner in best
            if (name, owner) not in self._steps
        ]

    def _is_near(self, group: str) -> bool:
        """Say whether a group lies in the same branch of the file, or is the root."""
        tops = [each.strip("/").partition("/")[0] for each in (self._group, group)]
        return not tops[1] or tops[0] == tops[1]


def _are_growing(values: NDArray[Any]) -> bool:
    """Say whether no number is below the one before, but for some 0."""
    above = values[values > 0].astype(np.int64)
    return len(above) > 1 and bool((np.diff(above) >= 0).all())


def _has_gaps(values: NDArray[Any]) -> bool:
    """Say whether 0 stands behind greater numbers, and so means "no element"."""
    return bool((values[int(np.argmax(values > 0)) :] == 0).any())


def parts_of(name: str) -> list[str]:
    """Return the words of a name, in lower case."""
    return [each.lower() for each in _PARTS.findall(name)]
