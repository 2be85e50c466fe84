"""Read a variable as its coarser copy has it: means of blocks, of values as xarray decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import FormatError
from icevirt.planning.coarsening import Coarsening, are_east, decode_as, mean_longitudes


class ValuesOfBoxes(Protocol):
    """Gives the values of an array that lie in a box."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""

    def __getitem__(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return those of a box, given along each axis."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoarseValues:
    """Values of a coarser copy, made of those of the variable when they are asked for."""

    fine: ValuesOfBoxes
    shape: tuple[int, ...]  # of these
    document: Mapping[str, Any]  # zarr.json of the variable
    how: Coarsening
    weights: NDArray[np.float64] | None  # along the axis of the latitudes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.fine.dtype if self.how.is_identity else self.how.dtype(self.document)

    def __getitem__(self, region: tuple[slice, ...]) -> NDArray[Any]:
        if self.how.is_identity:
            return np.asarray(self.fine[region])
        fine = tuple(
            slice(each.start * factor, min(each.stop * factor, size))
            for each, factor, size in zip(region, self.how.factors, self.shape, strict=True)
        )
        values = decode_as(self.document, np.asarray(self.fine[fine]))
        if are_east(self.document.get("attributes") or {}):
            return mean_longitudes(values, self.how.factors[0]).astype(self.dtype)
        weights = None if self.weights is None else self.weights[fine[self.how.axis]]
        return self.how.reduce(values, weights).astype(self.dtype)


def as_coarse(
    fine: ValuesOfBoxes,
    document: Mapping[str, Any],
    how: Coarsening | None,
    weights: NDArray[np.float64] | None,
) -> ValuesOfBoxes:
    """Return values as a copy has them: means, where it is coarser."""
    if how is None:
        return fine
    shape = tuple(document["shape"])
    if weights is not None and weights.shape != shape[how.axis : how.axis + 1]:
        raise FormatError(
            "the latitudes of a coarser copy do not fit its variable",
            do="Make the copy anew with icevirt.materialize.",
            latitudes=how.area,
            shape=shape,
        )
    return CoarseValues(fine=fine, shape=shape, document=document, how=how, weights=weights)
