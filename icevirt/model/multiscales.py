"""Say in a group which of its arrays are coarser copies of which: the convention *multiscales*.

Version 1 (uuid below), which GeoZarr uses. Assets are paths of arrays below the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from icevirt.model.json import JSON

SAID = ("zarr_conventions", "multiscales")
"""Attributes of a group that say which levels there are."""
CONVENTION: dict[str, JSON] = {
    "schema_url": "https://raw.githubusercontent.com/zarr-conventions/multiscales/refs/tags/v1/schema.json",
    "spec_url": "https://github.com/zarr-conventions/multiscales/blob/v1/README.md",
    "uuid": "d35379db-88df-4056-af3a-620245f8e347",
    "name": "multiscales",
    "description": "Multiscale layout of zarr datasets",
}


def describe_level(
    asset: str, of: str, factors: Sequence[float], *, method: str = ""
) -> dict[str, JSON]:
    """Return the entry of an array whose blocks of so many elements became one; 1s: the finest."""
    if asset == of:
        return {"asset": asset, "transform": {"scale": [1.0] * len(factors)}}
    return {
        "asset": asset,
        "derived_from": of,
        "transform": {
            "scale": [float(factor) for factor in factors],
            "translation": [(factor - 1) / 2 for factor in factors],
        },
        **({"resampling_method": method} if method else {}),
    }


def say(layout: Iterable[JSON]) -> dict[str, Any]:
    """Return the attributes of a group that say which levels there are."""
    return {SAID[0]: [CONVENTION], SAID[1]: {"layout": [*layout]}}


def find_finest(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield coarser copies and the array that each was made of, as paths below the group.

    Others may say that a copy was made of another copy: the last of such a chain is meant.
    """
    layout = _layout_of(attributes) or ()
    said = ((e.get("asset"), e.get("derived_from")) for e in layout if isinstance(e, Mapping))
    derived = {name: of for name, of in said if isinstance(name, str) and isinstance(of, str)}
    for asset in derived:
        met = [asset]
        while (of := derived.get(met[-1])) is not None and of not in met:
            met.append(of)
        yield asset, met[-1]


def fit(attributes: Mapping[str, Any], axes: Mapping[str, int]) -> Mapping[str, Any]:
    """Return attributes of a group whose arrays may have got further axes, in front of theirs.

    Args:
        attributes: As they are in a file; others than those of `say` stay as they are.
        axes: How many each array below the group has got, by its path there.
    """
    layout = _layout_of(attributes)
    if layout is None:
        return attributes
    fitted = [_fit(entry, axes) for entry in layout]
    return {**attributes, SAID[1]: {**attributes[SAID[1]], "layout": fitted}}


def _layout_of(attributes: Mapping[str, Any]) -> list[JSON] | None:
    """Return what a group says of its levels; None where it says nothing by this convention."""
    said = attributes.get(SAID[1])
    layout = said.get("layout") if isinstance(said, Mapping) else None
    conventions = attributes.get(SAID[0])
    is_said = isinstance(conventions, list) and CONVENTION in conventions
    return layout if is_said and isinstance(layout, list) else None


def _fit(entry: JSON, axes: Mapping[str, int]) -> JSON:
    transform = entry.get("transform") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(transform, Mapping):
        return entry
    more = axes.get(str(entry.get("asset")), 0)
    neutral = {"scale": [1.0] * more, "translation": [0.0] * more}
    fitted = {
        name: [*neutral[name], *held] if name in neutral and isinstance(held, list) else held
        for name, held in transform.items()
    }
    return {**entry, "transform": fitted}
