"""Spell what means "missing" so that readers of JSON mask what the file masks.

JSON has no NaN, no infinity and no complex number. As text they are worse than nothing in
``missing_value``: readers mask no value by them, not even by the plain numbers beside them, and
cannot append. So other readers see the plain numbers only, and ``_FillValue``, which has a spelling
for every number, takes the place of another one where it is free. NaN needs no mark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.attributes import FILL, Attributes, restore
from icevirt.model.json import JSON

MISSING = "missing_value"


def readable(attributes: Attributes, data_type: JSON) -> Attributes:
    """Return the attributes of an array as other readers see them; the engine undoes it.

    Args:
        attributes: As the file has them.
        data_type: Of the array, as zarr spells it.
    """
    found = _Marks.of(attributes, data_type)
    if found is None:
        return attributes
    values = {name: value for name, value in attributes.values.items() if name != MISSING}
    dtypes = dict(attributes.dtypes)
    if found.plain.size:
        listed = found.plain.tolist()
        values[MISSING] = listed if len(listed) > 1 else listed[0]
    if found.fill is not None:
        fill = Attributes.of({FILL: found.fill})
        values[FILL], dtypes[FILL] = fill.values[FILL], fill.dtypes[FILL]
    was = attributes.values
    pairs = {name: (was.get(name), values.get(name)) for name in (FILL, MISSING)}
    return Attributes(values=values, dtypes=dtypes, replaced={**attributes.replaced, **pairs})


def is_unseen(attributes: Attributes, data_type: JSON) -> bool:
    """Say whether values mean "missing" for the engine which other readers cannot be told."""
    found = _Marks.of(attributes, data_type)
    return found is not None and bool(found.unseen.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """The numbers of a ``missing_value``."""

    plain: NDArray[Any]  # JSON has them
    fill: np.generic | None  # what becomes the ``_FillValue``
    unseen: NDArray[Any]  # neither, and values of the array can be one of them

    @classmethod
    def of(cls, attributes: Attributes, data_type: JSON) -> _Marks | None:
        """Divide the numbers; None where JSON has all of them."""
        dtype, value = attributes.dtypes.get(MISSING, ""), attributes.values.get(MISSING)
        if value is None or isinstance(value, int | float) or dtype[:1] not in ("f", "c"):
            return None
        given = restore(attributes.only(MISSING).values, attributes.dtypes)[MISSING]
        numbers = np.asarray(given).reshape(-1)
        is_plain = np.isfinite(numbers) & (numbers.imag == 0)
        if dtype[:1] == "f" and is_plain.all():
            return None
        odd = _possible(numbers[~is_plain], data_type)
        made = cls(plain=numbers.real[is_plain], fill=None, unseen=odd)
        if FILL in attributes.values:
            if FILL not in attributes.dtypes:  # written by others
                return made
            fill = restore(attributes.only(FILL).values, attributes.dtypes)[FILL]
            return replace(made, unseen=odd[odd != fill])
        return replace(made, fill=odd[0], unseen=odd[:0]) if odd.size == 1 else made


def _possible(numbers: NDArray[Any], data_type: JSON) -> NDArray[Any]:
    """Return the different numbers that values of a type can equal, in that type."""
    kind = data_type if isinstance(data_type, str) else ""
    if not kind.startswith(("float", "complex")):
        return numbers[:0]
    with np.errstate(all="ignore"):
        odd = numbers[~np.isnan(numbers)]
        held = (odd if kind.startswith("complex") else odd.real).astype(kind)
        return np.unique(held[held == odd])
