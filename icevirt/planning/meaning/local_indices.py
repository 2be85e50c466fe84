"""Find variables that number what lies along dimensions of their own file.

Such are the connectivities of meshes (UGRID, and those that FVCOM, MPAS and ICON write without it),
the instances of ragged arrays (CF 9.3.4), points of gathered grids (CF 8.2), and the first and last
rays of radar sweeps (CfRadial). Where several files
follow one another along what is numbered, a number means something else than in its file.
Partitions of a mesh are the usual case.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts, variables_of
from icevirt.archive.roles import resolve
from icevirt.model import paths
from icevirt.planning.times.units import units_of

_CONNECTIVITY = "_connectivity"
_SURROUNDING = " surrounding "
_NUMBERING = (  # as JSON
    *(f'{_CONNECTIVITY}"', '"instance_dimension"', '"compress"', '"start_index"', _SURROUNDING),
)
_OF_FVCOM = re.compile(r"(node|elem)\w* surrounding ", re.IGNORECASE)
_FVCOM = {"node": "node", "elem": "nele"}
_OF_MODELS = {  # of MPAS and ICON, for which 1 is the first
    **dict.fromkeys(("cellsOnCell", "cellsOnEdge", "cellsOnVertex"), "nCells"),
    **dict.fromkeys(("edgesOnCell", "edgesOnEdge", "edgesOnVertex"), "nEdges"),
    **dict.fromkeys(("verticesOnCell", "verticesOnEdge"), "nVertices"),
    **dict.fromkeys(("neighbor_cell_index", "cells_of_vertex", "adjacent_cell_of_edge"), "cell"),
    **dict.fromkeys(("edge_of_cell", "edges_of_vertex"), "edge"),
    **dict.fromkeys(("vertex_of_cell", "vertices_of_vertex", "edge_vertices"), "vertex"),
}
_OF_RADARS = {  # of CfRadial, for which 0 is the first
    **dict.fromkeys(("sweep_start_ray_index", "sweep_end_ray_index"), "time"),
    "ray_start_index": "n_points",
}
_FROM_ONE = re.compile(
    r"\b(1|one)[ -]based\b|\b(start|begin|count|number)(s|ing|ning|ed)? (at|from|with) (1|one)\b",
    re.IGNORECASE,
)
_TEXTS = ("long_name", "description", "comment")
START = "start_index"
"""Attribute: the number of the first element (UGRID)."""

type _Names = Mapping[str, Collection[str]]  # paths by name


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIndex:
    """A variable whose values number what lies along dimensions of its own file."""

    numbers: frozenset[str]  # dimensions; none where nothing says which
    first: int = 0  # the number of the first element, where a file does not say
    group: str = ""  # of the dimensions; empty: as the group of the variable sees them

    def __or__(self, other: LocalIndex) -> LocalIndex:
        return LocalIndex(numbers=self.numbers | other.numbers, first=max(self.first, other.first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable as files have it."""

    path: str
    dimensions: tuple[str, ...]
    attributes: Mapping[str, Any]


def local_indices(
    facts: CatalogFacts,
    given: Mapping[str, Sequence[str]] = MappingProxyType({}),
    declared: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, LocalIndex]:
    """Return the variables that number elements, by path.

    Of a connectivity whose mesh does not say where its elements lie, no dimensions are known.

    Args:
        facts: Of the files.
        given: The dimensions that variables do not have in the files, by path.
        declared: What a person says that variables number, by name or path: a dimension, a path of
            one of another group, or nothing.
    """
    return indices_among([*variables_with_indices(facts, given, declared)], declared)


def variables_with_indices(
    facts: CatalogFacts, given: Mapping[str, Sequence[str]], declared: Mapping[str, str]
) -> Iterator[Variable]:
    """Yield the variables of files; none where nothing in them says that one is an index."""
    texts = facts.arrays.schema.values
    is_told = any(name in text for text in texts for name in _NUMBERING)
    known = {*map(paths.name, facts.arrays.path.values)}
    if not (is_told or declared or known & {*_OF_MODELS, *_OF_RADARS}):
        return  # nearly always, and schemas of many files take time to read
    for path, schema in variables_of(facts):
        gone = {None, *given.get(path, ())}
        own = tuple(str(each) for each in schema.dimension_names if each not in gone)
        yield Variable(path=path, dimensions=own, attributes=schema.attributes.values)


def indices_among(
    variables: Sequence[Variable], declared: Mapping[str, str] = MappingProxyType({})
) -> dict[str, LocalIndex]:
    """Return which of some variables number elements, by path."""
    known = _Variables(variables)
    found: dict[str, LocalIndex] = {}
    for each in variables:
        for path, index in _indices_by(each, known):
            found[path] = found[path] | index if path in found else index
    for each in variables:  # what a person says counts, wherever the mesh stands
        for name in (paths.name(each.path), each.path):
            if name in declared:
                before = found.pop(each.path, LocalIndex(numbers=frozenset()))
                first = before.first or _first_described(each.attributes) or 0
                if numbered := declared[name]:
                    found[each.path] = _as_declared(numbered, first)
    return found


def _as_declared(numbered: str, first: int) -> LocalIndex:
    """Return an index of a dimension, which may be a path of one of another group."""
    group = paths.parent(numbered) if numbered.startswith("/") else ""
    return LocalIndex(numbers=frozenset({numbered.rpartition("/")[2]}), first=first, group=group)


def first_said(attributes: Mapping[str, Any]) -> int | None:
    """Return the number of the first element, as attributes say it; None where they do not."""
    if isinstance(said := attributes.get(START), int | float):
        return int(said)
    return _first_described(attributes)


def _first_described(attributes: Mapping[str, Any]) -> int | None:
    """Return what texts say; `START` is of one file, and where another one lacks it, it is 0."""
    texts = (str(attributes.get(each, "")) for each in _TEXTS)
    return 1 if any(map(_FROM_ONE.search, texts)) else None


def indices_along(
    variables: Iterable[Variable],
    dimension: str,
    declared: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the paths of variables that number what lies along a dimension."""
    found = indices_among([*variables], declared)
    return [path for path, index in found.items() if dimension in index.numbers]


class _Variables:
    """All variables, and what they say of meshes."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.by_path = {each.path: each for each in variables}
        there: dict[str, set[str]] = defaultdict(set)
        for path in self.by_path:
            there[paths.name(path)].add(path)
        self.there: _Names = there

    @cached_property
    def dimensions(self) -> frozenset[str]:
        """The dimensions of all variables."""
        return frozenset(name for each in self.by_path.values() for name in each.dimensions)

    def elements(self, kind: str, index: str) -> frozenset[str]:
        """Return the only dimension that is called like a kind of elements.

        Args:
            kind: Like ``node``.
            index: Path of what numbers them.
        """
        own = self.by_path[index].dimensions if index in self.by_path else ()
        named = {name for name in self.dimensions if kind in name.lower() and name not in own[1:]}
        others = named - {*own}
        found = others or named
        return frozenset(found) if len(found) == 1 else frozenset()

    def located(self, kind: str, mesh: str) -> frozenset[str]:
        """Return the only dimension that all variables of a location of a mesh have, and no others.

        Args:
            kind: Of elements, like ``node``.
            mesh: Path of the mesh.
        """
        mine: list[set[str]] = []
        others: set[str] = set()
        for each in self.by_path.values():
            word, where = each.attributes.get("mesh"), each.attributes.get("location")
            if isinstance(word, str) and resolve(paths.parent(each.path), word, self.there) == mesh:
                mine += [{*each.dimensions}] if where == kind else []
                others |= {*each.dimensions} if where != kind else set()
        found = set.intersection(*mine) - others if mine else set()
        return frozenset(found) if len(found) == 1 else frozenset()


def _indices_by(variable: Variable, known: _Variables) -> Iterator[tuple[str, LocalIndex]]:
    """Yield paths of variables of which one says that they number something, and what."""
    path, attributes = variable.path, variable.attributes
    for name, text in attributes.items():
        if not isinstance(text, str):
            continue
        if name.endswith(_CONNECTIVITY):
            for word in text.split():
                if (index := resolve(paths.parent(path), word, known.there)) is not None:
                    yield index, LocalIndex(numbers=_elements(name, variable, index, known))
        elif name in {"instance_dimension", "compress"}:
            yield path, LocalIndex(numbers=frozenset(text.split()))
        elif name == "cf_role" and text.endswith(_CONNECTIVITY):
            named = [e for e in known.by_path.values() if _names(e, text, path, known)]
            kind = _kind_of(text)
            yield path, LocalIndex(numbers=frozenset() if named else known.elements(kind, path))
    if START in attributes:
        yield path, LocalIndex(numbers=frozenset())
    yield from _of_models(variable, known)


def _of_models(variable: Variable, known: _Variables) -> Iterator[tuple[str, LocalIndex]]:
    """Yield an index of a model or radar that no attribute tells, if its dimension is there."""
    own = paths.name(variable.path)
    fvcom = _OF_FVCOM.match(str(variable.attributes.get("long_name", "")))
    name = _OF_MODELS.get(own, "") if fvcom is None else _FVCOM[fvcom[1].lower()]
    first = 1 if name else 0
    name = name or _OF_RADARS.get(own, "")
    if name in known.dimensions and variable.dimensions:
        yield variable.path, LocalIndex(numbers=frozenset({name}), first=first)


def _names(mesh: Variable, role: str, index: str, known: _Variables) -> bool:
    """Say whether a mesh names a connectivity."""
    text = mesh.attributes.get(role)
    group = paths.parent(mesh.path)
    return isinstance(text, str) and any(
        resolve(group, word, known.there) == index for word in text.split()
    )


def _kind_of(connectivity: str) -> str:
    """Return what a connectivity like ``face_node_connectivity`` numbers."""
    return connectivity.removesuffix(_CONNECTIVITY).rpartition("_")[2]


def _elements(name: str, mesh: Variable, index: str, known: _Variables) -> frozenset[str]:
    """Return the dimension of what a connectivity like ``face_node_connectivity`` numbers."""
    kind = _kind_of(name)
    if isinstance(named := mesh.attributes.get(f"{kind}_dimension"), str):
        return frozenset(named.split())
    for said in (f"{kind}_coordinates", f"{kind}_node{_CONNECTIVITY}"):
        for word in str(mesh.attributes.get(said, "")).split():
            other = resolve(paths.parent(mesh.path), word, known.there)
            if other is not None and (names := known.by_path[other].dimensions):
                return frozenset(names[:1])
    return known.located(kind, mesh.path) or known.elements(kind, index)


def dimensions_of_elements(
    variables: Iterable[Variable], indices: Mapping[str, LocalIndex]
) -> tuple[str, ...]:
    """Return the dimensions along which elements lie, which are numbered or have numbers.

    Along other dimensions of an index lie the corners of one element: no other variable has these.
    """
    known = {each.path: each for each in variables}
    others = {
        name for path, each in known.items() if path not in indices for name in each.dimensions
    }
    found = {name for each in indices.values() for name in each.numbers}
    for path in indices:
        own = [name for name in known[path].dimensions if units_of_dimension(known, name) is None]
        named = [name for name in own if name in others]
        found.update(named or own[:1])
    return tuple(sorted(found))


def units_of_dimension(known: Mapping[str, Variable], dimension: str) -> Any:
    """Return the units of times along a dimension; None where it has none."""
    coordinate = known.get(f"/{dimension}")
    return None if coordinate is None else units_of(coordinate.attributes)


def differs(facts: CatalogFacts, path: str) -> bool:
    """Say whether files hold other values of an array; where none are known, two files say so."""
    arrays = facts.arrays
    rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(path))
    shapes, digests = (np.unique(each.codes[rows]) for each in (arrays.shape, arrays.digest))
    if len(shapes) > 1:
        return True
    if all(arrays.digest.values[code] for code in digests.tolist()):
        return len(digests) > 1
    own = path if arrays.own_path is None else arrays.own_path[int(rows[0])]
    ends = [(facts.url_of(row), own) for row in (rows[0], rows[-1])]
    return facts.compare is not None and facts.compare(ends[0], ends[1]) is not None
