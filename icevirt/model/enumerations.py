"""Keep the names that an enumeration gives to integers.

The engine shows them where xarray keeps them for netCDF, in ``encoding["dtype"].metadata``; other
readers see CF's ``flag_values`` and ``flag_meanings``. They travel with the attributes that readers
see other than the file has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.model.attributes import Attributes, recorded_replacements
from icevirt.model.json import JSON

ENUMERATION = "/enumeration"
"""No name of an attribute of netCDF, so that none is meant by it."""

FLAGS = ("flag_values", "flag_meanings", "flag_masks")


def with_enumeration(
    attributes: Attributes, named: Mapping[str, JSON] | None, dtype: np.dtype[Any]
) -> Attributes:
    """Return attributes that say what the numbers of a variable are called.

    Args:
        attributes: Of the variable.
        named: ``{"enum": {name: number}, "enum_name": name of the type}``, as xarray has it; of a
            compound ``{"fields": {field: ...}}``; None where numbers are numbers.
        dtype: Of the numbers.
    """
    if named is None:
        return attributes
    shown = _flags(named, dtype) if attributes.values.keys().isdisjoint(FLAGS) else Attributes()
    pairs: dict[str, tuple[JSON, JSON]] = {ENUMERATION: (named, None)}
    pairs |= {name: (None, value) for name, value in shown.values.items()}
    made = attributes | shown
    return replace(made, replaced={**attributes.replaced, **pairs})


def _flags(named: Mapping[str, JSON], dtype: np.dtype[Any]) -> Attributes:
    """Return the members as CF has them, where no name has a blank inside."""
    members = named.get("enum")
    if not isinstance(members, Mapping) or any(len(name.split()) != 1 for name in members):
        return Attributes()
    rising = sorted(members.items(), key=lambda member: member[1])  # type: ignore[arg-type,return-value]
    numbers = np.array([number for _, number in rising], dtype)
    names = " ".join(name for name, _ in rising)
    return Attributes.of({"flag_values": numbers, "flag_meanings": names})


def enumeration_of(attributes: Attributes) -> Mapping[str, JSON] | None:
    """Return what `with_enumeration` was given, None where that was nothing."""
    if ENUMERATION not in attributes.replaced:
        return None
    named, _ = attributes.replaced[ENUMERATION]
    return named if isinstance(named, Mapping) else None


def members_of(attributes: Attributes) -> JSON:
    """Return what numbers are called, equal for equal meanings; None where they have no names."""
    named = enumeration_of(attributes)
    return None if named is None else {k: v for k, v in named.items() if k != "enum_name"}


def dtype_metadata(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what xarray's backends of netCDF keep with the dtype of an array's values."""
    named, _ = recorded_replacements(document).get(ENUMERATION, (None, None))
    members = named.get("enum") if isinstance(named, Mapping) else None
    return dict(named) if isinstance(named, Mapping) and isinstance(members, Mapping) else None


def is_derived(attributes: Attributes, name: str) -> bool:
    """Say whether an attribute is not the file's, but shows the members to other readers."""
    if name not in FLAGS or ENUMERATION not in attributes.replaced:
        return False
    was, _ = attributes.replaced.get(name, ("", None))
    return was is None
