"""Decide which variables are coordinates, by their names and by CF attributes.

They are the variables that xarray makes coordinates with ``decode_coords="all"``: variables named
like a dimension, and variables that the attributes below name. Variables that only
``ancillary_variables`` names (quality flags, error estimates) are data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Any

from icevirt.model import paths

LISTS = (
    *("coordinates", "bounds", "climatology", "geometry"),
    *("node_coordinates", "node_count", "part_node_count", "interior_ring"),
)
"""Attributes that list variables (CF 5, 7.1, 7.4, 7.5)."""

KEYED = ("grid_mapping", "cell_measures", "formula_terms")
"""Attributes of pairs like ``area: areacella`` (CF 5.6, 7.2, 4.3.3); a grid mapping may be one."""


def coordinates_of(
    variables: Iterable[tuple[str, Sequence[str | None], Mapping[str, Any]]],
    groups: Iterable[tuple[str, Mapping[str, Any]]] = (),
) -> frozenset[str]:
    """Return the paths of variables that are coordinates.

    Args:
        variables: Path, dimensions and attributes; a path may come once for each of several files.
        groups: Path and attributes; xarray lists coordinates there that no variable names.
    """
    known = list(variables)
    there: dict[str, set[str]] = defaultdict(set)  # paths by name
    dimensions: dict[str, set[str | None]] = defaultdict(set)
    for path, names, _ in known:
        there[paths.name(path)].add(path)
        dimensions[paths.parent(path)].update(names)
    found = {path for path, _, _ in known if paths.name(path) in dimensions[paths.parent(path)]}
    for path, _, attributes in known:
        found.update(_list_named(paths.parent(path), attributes, (*LISTS, *KEYED), there))
    for path, attributes in groups:
        found.update(_list_named(path, attributes, ("coordinates",), there))
    return frozenset(found)


def _list_named(
    group: str,
    attributes: Mapping[str, Any],
    names: Sequence[str],
    there: Mapping[str, Collection[str]],
) -> Iterator[str]:
    for name in names:
        if isinstance(text := attributes.get(name), str):
            for word in dict.fromkeys(words_of(name, text)):
                if (path := resolve(group, word, there)) is not None:
                    yield path


def words_of(name: str, text: str) -> list[str]:
    """Return the variables that the text of an attribute names."""
    words = text.replace(" :", ":").split()
    if name not in KEYED or not any(word.endswith(":") for word in words):
        return words
    if name == "grid_mapping":  # its keys are the variables, which map the coordinates behind them
        return [word.removesuffix(":") for word in words if word.endswith(":")]
    return [word for word in words if not word.endswith(":")]


def resolve(group: str, word: str, there: Mapping[str, Collection[str]]) -> str | None:
    """Find a variable by CF's rules: a path, or the nearest one of the name towards the root.

    ``there`` are the paths of all variables by name.
    """
    fitting = there.get(word.rpartition("/")[2], ())
    if "/" in word:  # the text of an attribute need not be a path
        path = normpath(word if word.startswith("/") else f"{group}/{word}")
        path = "/" + path.lstrip("/")
        return path if path in fitting else None
    inside = group.rstrip("/") + "/"
    above = (path for path in fitting if inside.startswith(path[: -len(word)]))
    return max(above, key=len, default=None)
