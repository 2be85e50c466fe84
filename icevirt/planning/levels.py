"""Say of which arrays a coarser copy consists, and which copies a group has: overviews for maps.

A level is a group below the group of the variable. It holds means of blocks, coordinates that fit
them, and the grid mapping. What is shorter than in the dataset is a dimension of another name
there, so that readers show both in one tree. The group of the variable says which levels there are,
in the words of the convention *multiscales*, version 1 (uuid below), which GeoZarr uses.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.roles import resolve
from icevirt.errors import AlreadyExistsError
from icevirt.model import paths
from icevirt.model.json import JSON
from icevirt.model.multiscales import CONVENTION, SAID, describe_level
from icevirt.model.snapshot import ArrayNode, Node, Snapshot, document_of
from icevirt.planning.coarsening import Coarsening, are_east, mappings_of, name_shorter

FOLDER = "coarsened"
"""The group of the levels, below the group of the variables."""

_NORTH = re.compile(r"degrees?(_north|_N|N)")
_TILE = 256  # elements of a chunk along each dimension that is made coarser
_CHUNK = 4 << 20  # bytes of it at most
_GROUP: dict[str, JSON] = {"zarr_format": 3, "node_type": "group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A coarser copy that is to be made: the array, and coordinates that fit it."""

    group: str  # path
    variable: ArrayNode
    arrays: Mapping[str, tuple[ArrayNode, Coarsening, tuple[int, ...]]]  # of what, how, in chunks

    @property
    def path(self) -> str:
        """Of the array."""
        return paths.join(self.group, paths.name(self.variable.path))


def plan_level(
    snapshot: Snapshot, node: ArrayNode, blocks: Mapping[str, int], chunks: Mapping[str, int]
) -> Level:
    """Say what a level consists of.

    Args:
        snapshot: Of the variable.
        node: The variable.
        blocks: How many elements become one, by dimension.
        chunks: Lengths of chunks that a person named, by dimension.

    Raises:
        AlreadyExistsError: A dimension above has the name that one of the level would have.
    """
    top, names = paths.parent(node.path), node.dimension_names or (None,) * len(node.shape)
    label = "_".join(name_shorter(name, factor) for name, factor in blocks.items())
    group = paths.join(paths.join(top, FOLDER), label)
    _refuse_taken(snapshot, top, blocks)
    axes: dict[str, ArrayNode] = {}
    for name in names:
        found = snapshot.find(paths.join(top, name)) if name is not None else None
        if isinstance(found, ArrayNode) and found.dimension_names == (name,):
            axes[str(name)] = found
    factors = tuple(blocks.get(str(name), 1) for name in names)
    north = next((n for n in axes if _are_north(axes[n])), None)
    is_regular = any(are_east(_attributes_of(each)) for each in axes.values())
    area = axes[north].path if north in blocks and north is not None and is_regular else None
    own = Coarsening(factors=factors, area=area, axis=0 if area is None else names.index(north))
    arrays: dict[str, tuple[ArrayNode, Coarsening, tuple[int, ...]]] = {}
    for name, axis in axes.items():
        factor = blocks.get(name, 1)
        how = Coarsening(factors=(factor,))
        if find_fixed_dtype(document_of(axis)["data_type"]) is None or how.misfit(
            document_of(axis)
        ):
            continue  # texts
        length = (max(1, *how.shape(axis.shape), 8192),)
        arrays[paths.join(group, name_shorter(name, factor))] = (axis, how, length)
    for mapping in _mappings_of(snapshot, node):
        arrays[paths.join(group, paths.name(mapping.path))] = mapping, Coarsening(factors=()), ()
    edges = _chunks_of(node, own, names, chunks)
    arrays[paths.join(group, paths.name(node.path))] = (node, own, edges)
    return Level(group=group, variable=node, arrays=arrays)


def _mappings_of(snapshot: Snapshot, node: ArrayNode) -> Iterator[ArrayNode]:
    """Yield the grid mapping of a variable, which has no dimension."""
    scalars = {each.path: each for each in snapshot.arrays() if not each.shape}
    there = defaultdict[str, list[str]](list)
    for path in scalars:
        there[paths.name(path)].append(path)
    for word in mappings_of(document_of(node)):
        found = resolve(paths.parent(node.path), word, there)
        if found is None or find_fixed_dtype(document_of(scalars[found])["data_type"]) is None:
            continue  # a text
        yield scalars[found]


def _refuse_taken(snapshot: Snapshot, top: str, blocks: Mapping[str, int]) -> None:
    above = {top, *paths.ancestors(top)}
    arrays = (node for node in snapshot.nodes if isinstance(node, ArrayNode))
    taken = {
        name
        for node in arrays
        if paths.parent(node.path) in above
        for name in node.dimension_names or ()
    }
    for name, factor in blocks.items():
        if name_shorter(name, factor) in taken:
            raise AlreadyExistsError(
                "the coarser copy would have the name of another dimension",
                do="Make blocks of another number of elements.",
                dimension=name_shorter(name, factor),
                blocks=f"{name}={factor}",
            )


def _attributes_of(node: Node) -> Mapping[str, Any]:
    return document_of(node).get("attributes") or {}


def _are_north(node: ArrayNode) -> bool:
    return _NORTH.fullmatch(str(_attributes_of(node).get("units"))) is not None


def _chunks_of(
    node: ArrayNode,
    how: Coarsening,
    names: Sequence[str | None],
    chunks: Mapping[str, int],
) -> tuple[int, ...]:
    """Return chunks for maps: tiles, and as many steps as the variable has, within limits."""
    document = document_of(node)
    regular = document["chunk_grid"]["configuration"].get("chunk_shape")
    fine, width = how.shape(node.shape), 8  # bytes of a mean, at most
    edges = [
        min(n, _TILE) if factor > 1 else 1 if regular is None else regular[axis]
        for axis, (n, factor) in enumerate(zip(fine, how.factors, strict=True))
    ]
    free = [axis for axis, factor in enumerate(how.factors) if factor == 1]
    while width * math.prod(edges) > _CHUNK and any(edges[axis] > 1 for axis in free):
        axis = max(free, key=edges.__getitem__)
        edges[axis] = -(-edges[axis] // 2)
    for axis, name in enumerate(names):
        length = chunks.get(str(name))
        if length is not None:
            edges[axis] = max(1, fine[axis]) if length == -1 else length
    return tuple(max(1, edge) for edge in edges)


def say_levels(
    attributes: Mapping[str, Any], group: str, levels: Iterable[tuple[str, str, Coarsening]]
) -> dict[str, Any]:
    """Return attributes of a group that say which coarser copies its variables have.

    What others said of other arrays stays. Without levels nothing is said of any.

    Args:
        attributes: As they are.
        group: Path of the group.
        levels: Paths of the variable and of the copy, and how it was made.
    """
    own: dict[str, list[tuple[str, Coarsening]]] = {}
    for of, path, how in levels:
        own.setdefault(of, []).append((path, how))
    layout = _layout_of_others(attributes, {_relative(of, group) for of in own})
    are_others = bool(layout)
    for of, copies in sorted(own.items()):
        name, ones = _relative(of, group), [1.0] * len(copies[0][1].factors)
        layout.append(describe_level(name, name, ones))
        layout += [
            describe_level(_relative(path, group), name, how.factors, method="average")
            for path, how in sorted(copies, key=lambda each: each[1].size)
        ]
    left = {name: value for name, value in attributes.items() if name not in SAID}
    conventions = [
        each
        for each in _list(attributes.get("zarr_conventions"))
        if not (isinstance(each, dict) and each.get("uuid") == CONVENTION["uuid"])
    ]
    if layout:
        before = attributes.get("multiscales") if are_others else None
        more = before if isinstance(before, dict) else {"resampling_method": "average"}
        left["multiscales"] = {**more, "layout": layout}
        conventions.append(CONVENTION)
    return {**left, "zarr_conventions": conventions} if conventions else left


def _layout_of_others(attributes: Mapping[str, Any], own: Collection[str]) -> list[Any]:
    """Return what a group says of arrays that are no coarser copies of ours, or have none."""
    said = attributes.get("multiscales")
    layout = [
        each
        for each in _list(said.get("layout") if isinstance(said, dict) else None)
        if isinstance(each, dict)
    ]
    is_ours = {id(each): str(each.get("asset")).startswith(f"{FOLDER}/") for each in layout}
    fine = {*own, *(str(each.get("derived_from")) for each in layout if is_ours[id(each)])}
    return [
        each
        for each in layout
        if not is_ours[id(each)] and ("derived_from" in each or each.get("asset") not in fine)
    ]


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _relative(path: str, group: str) -> str:
    return path.removeprefix(group.rstrip("/") + "/")


def group_json(zarr_json: bytes | None, attributes: Mapping[str, Any]) -> bytes:
    """Return the zarr.json of a group with other attributes."""
    document = _GROUP if zarr_json is None else json.loads(zarr_json)
    return json.dumps({**document, "attributes": attributes}, ensure_ascii=False).encode()
