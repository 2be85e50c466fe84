"""Name and size dimensions, by the conventions of dimension scales and netCDF-4.

A dimension is identified by the address of its scale and named like the scale's link. Axes without
one get the phony names of netCDF-C: ``phony_dim_N``, one for each length (and whether it is
unlimited) within a group, and another one if a variable has two axes of one length, counted from
the innermost groups outwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5i, h5o, h5r, h5s

from icevirt.model import paths
from icevirt_scanners.context import check_dimensions
from icevirt_scanners.hdf5.files import HeldFile
from icevirt_scanners.hdf5.hierarchy.links import variable_name
from icevirt_scanners.hdf5.hierarchy.walk import FoundDataset
from icevirt_scanners.hdf5.types.attributes import FoundAttributes

_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_UNREADABLE = (OSError, RuntimeError, ValueError, TypeError, KeyError)
_REFERENCES = h5py.vlen_dtype(h5py.ref_dtype)


def is_scale(attributes: FoundAttributes) -> bool:
    """Say whether a dataset is a dimension scale."""
    return attributes.hidden.get("CLASS") == "DIMENSION_SCALE"


def is_bare_dimension(attributes: FoundAttributes) -> bool:
    """Say whether a dataset only names a dimension; netCDF has no variable for it."""
    return is_scale(attributes) and str(attributes.hidden.get("NAME", "")).startswith(_NO_VARIABLE)


@dataclass(frozen=True, slots=True)
class VariableAxis:
    """One axis of a variable: the dimension's name, and its scale's address (0: phony)."""

    name: str
    address: int = 0


@dataclass(slots=True)
class Dimensions:
    """The dimensions of one file."""

    file: HeldFile
    _by_address: dict[int, VariableAxis] = field(default_factory=dict)
    _paths: list[str] = field(default_factory=list)  # of the dimensions that have a scale
    _by_number: dict[int, VariableAxis] = field(default_factory=dict)
    _lengths: dict[int, int] = field(default_factory=dict)
    _phony: dict[str, dict[VariableAxis, tuple[int, bool]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add_scale(self, found: FoundDataset, attributes: FoundAttributes) -> None:
        """Take note of a dimension scale; its first name stays."""
        axis = VariableAxis(
            variable_name(found.link.encode("utf-8", "surrogateescape"))[0], found.address
        )
        if self._by_address.setdefault(found.address, axis) is axis:
            self._paths.append(paths.join(paths.parent(found.path), axis.name))
        number = attributes.hidden.get("_Netcdf4Dimid")
        if isinstance(number, np.integer):
            self._by_number.setdefault(int(number), axis)

    def check_distinct(self, url: str) -> None:
        """Refuse dimensions of one group whose names become one. Raises ``UnsupportedError``."""
        check_dimensions(self._paths, url)

    def axes_of(
        self, found: FoundDataset, attributes: FoundAttributes, shape: Sequence[int]
    ) -> tuple[tuple[VariableAxis, ...], str]:
        """Return the axes of a dataset, and what was odd about finding them.

        ``shape`` may have more axes than the dataset has: those of an array type are phony.
        """
        given, odd = self._given(found, attributes, len(shape))
        axes: list[VariableAxis] = []
        for length, axis in zip(shape, given, strict=True):
            unlimited = (*found.limits, 0)[min(len(axes), len(found.limits))] == h5s.UNLIMITED
            chosen = axis or self._make_phony(found.path, (length, unlimited), axes)
            axes.append(chosen)
            if chosen.address:
                known = self._lengths.get(chosen.address, 0)
                self._lengths[chosen.address] = max(known, length)
        return tuple(axes), odd

    def length(self, axis: VariableAxis, own: int) -> int:
        """Return how long netCDF takes the dimension to be: as its longest variable."""
        return self._lengths.get(axis.address, own) if axis.address else own

    def _given(
        self, found: FoundDataset, attributes: FoundAttributes, ndim: int
    ) -> tuple[list[VariableAxis | None], str]:
        axes: list[VariableAxis | None] = [None] * ndim
        odd = ""
        if attributes.has_dimension_list:
            try:
                for at, scales in enumerate(self._scales(found, attributes)[:ndim]):
                    if len(scales) > 1:
                        odd = "an axis has several scales; the first counts"
                    axes[at] = scales[0] if scales else None
            except _UNREADABLE as error:
                odd = f"its list of dimension scales cannot be read: {error}"
        elif (numbers := attributes.hidden.get("_Netcdf4Coordinates")) is not None:
            for at, number in enumerate(np.atleast_1d(numbers).tolist()[:ndim]):
                axes[at] = self._by_number.get(number)
        elif is_scale(attributes) and ndim:
            axes[0] = self._by_address.get(found.address)
        return axes, odd

    def _scales(
        self, found: FoundDataset, attributes: FoundAttributes
    ) -> Sequence[Sequence[VariableAxis | None]]:
        """Return the scales of each axis, as the file lists them."""
        known = attributes.scales
        if known is not None and all(one in self._by_address for some in known for one in some):
            return [[self._by_address[one] for one in some] for some in known]
        return [[self._referenced(one) for one in some] for some in _dimension_list(found.dsid)]

    def _referenced(self, reference: Any) -> VariableAxis | None:
        if not reference:
            return None
        oid = h5r.dereference(reference, self.file.fid)
        address = h5o.get_info(oid).addr
        axis = self._by_address.get(address)
        if axis is None:  # a scale outside of the scanned group
            raw = h5i.get_name(oid) or b""
            axis = VariableAxis(variable_name(raw.rsplit(b"/", 1)[-1])[0], address)
            self._by_address[address] = axis
        return axis

    def _make_phony(
        self, path: str, kind: tuple[int, bool], taken: Sequence[VariableAxis]
    ) -> VariableAxis:
        here = self._phony[paths.parent(path)]
        for axis, known in here.items():
            if known == kind and axis not in taken:
                return axis
        real = len(self._by_number or self._by_address)
        axis = VariableAxis(f"phony_dim_{real + sum(map(len, self._phony.values()))}")
        here[axis] = kind
        return axis


def innermost_first(group_paths: Sequence[str]) -> dict[str, int]:
    """Rank groups, given in the order of the file, such that those inside come first."""
    inside: dict[str, list[str]] = defaultdict(list)
    for path in group_paths:
        if path != paths.ROOT:
            inside[paths.parent(path)].append(path)
    outermost: list[str] = []  # the last group first, each before those inside
    pending = [paths.ROOT]
    while pending:
        path = pending.pop()
        outermost.append(path)
        pending += inside[path]
    return {path: rank for rank, path in enumerate(reversed(outermost))}


def _dimension_list(dsid: Any) -> list[Any]:
    attribute = h5a.open(dsid, b"DIMENSION_LIST")
    references = np.empty(attribute.shape, _REFERENCES)
    attribute.read(references)
    return list(references)
