"""Find variables that number what lies along dimensions of their own file.

Such are the connectivities of meshes (UGRID), the instances of ragged arrays (CF 9.3.4) and points
of gathered grids (CF 8.2). Where several files follow one another along what is numbered, a number
means something else than in its file. Partitions of a mesh are the usual case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts, variables_of
from icevirt.archive.roles import resolve
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.planning.axes.axis import Placement
from icevirt.planning.axes.candidates import groups_in_order
from icevirt.planning.remedies import list_names, scan_fix
from icevirt.planning.times.units import units_of

_CONNECTIVITY = "_connectivity"
_NUMBERING = (f'{_CONNECTIVITY}"', '"instance_dimension"', '"compress"', '"start_index"')  # as JSON
_NAMED = 3  # variables in a price

type _Names = Mapping[str, Collection[str]]  # paths by name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    """A variable as files have it."""

    path: str
    dimensions: tuple[str, ...]
    attributes: Mapping[str, Any]


def local_indices(
    facts: CatalogFacts, given: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[str, frozenset[str]]:
    """Return the dimensions that variables number, by path of the variable.

    Of a connectivity whose mesh does not say where its elements lie, none are known.

    Args:
        facts: Of the files.
        given: The dimensions that variables do not have in the files, by path.
    """
    return _indices([*_variables(facts, given)])


def _variables(facts: CatalogFacts, given: Mapping[str, Sequence[str]]) -> Iterator[_Variable]:
    texts = facts.arrays.schema.values
    if not any(name in text for text in texts for name in _NUMBERING):
        return  # nearly always, and schemas of many files take time to read
    for path, schema in variables_of(facts):
        gone = {None, *given.get(path, ())}
        own = tuple(str(each) for each in schema.dimension_names if each not in gone)
        yield _Variable(path=path, dimensions=own, attributes=schema.attributes.values)


def _indices(variables: Sequence[_Variable]) -> dict[str, frozenset[str]]:
    known = {each.path: each for each in variables}
    there: dict[str, set[str]] = defaultdict(set)
    for path in known:
        there[paths.name(path)].add(path)
    found: dict[str, frozenset[str]] = {}
    for each in variables:
        for index, numbered in _indices_by(each, known, there):
            found[index] = found.get(index, frozenset()) | numbered
    return found


def _indices_by(
    variable: _Variable, known: Mapping[str, _Variable], there: _Names
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield paths of variables of which one says that they number something, and what."""
    path, attributes = variable.path, variable.attributes
    for name, text in attributes.items():
        if not isinstance(text, str):
            continue
        if name.endswith(_CONNECTIVITY):
            for word in text.split():
                if (index := resolve(paths.parent(path), word, there)) is not None:
                    yield index, _elements(name, variable, known, there)
        elif name in {"instance_dimension", "compress"}:
            yield path, frozenset(text.split())
        elif name == "cf_role" and text.endswith(_CONNECTIVITY):
            yield path, frozenset()
    if "start_index" in attributes:
        yield path, frozenset()


def _elements(
    name: str, mesh: _Variable, known: Mapping[str, _Variable], there: _Names
) -> frozenset[str]:
    """Return the dimension of what a connectivity like ``face_node_connectivity`` numbers."""
    kind = name.removesuffix(_CONNECTIVITY).rpartition("_")[2]
    if isinstance(named := mesh.attributes.get(f"{kind}_dimension"), str):
        return frozenset(named.split())
    for said in (f"{kind}_coordinates", f"{kind}_node{_CONNECTIVITY}"):
        for word in str(mesh.attributes.get(said, "")).split():
            other = resolve(paths.parent(mesh.path), word, there)
            if other is not None and (names := known[other].dimensions):
                return frozenset(names[:1])
    return frozenset()


# -- files that follow one another ---------------------------------------------------------------


def refuse_local_indices(
    facts: CatalogFacts, cells: Placement, given: Mapping[str, Sequence[str]]
) -> None:
    """Refuse variables that number what lies along a dimension of their own file.

    Args:
        facts: Of the files.
        cells: Where they lie.
        given: The dimensions that variables do not have in the files, by path.

    Raises:
        CombineError: There is one, and files hold different elements, one after the other.
    """
    placed = frozenset(a.dimension for a in cells.axes if a.count > 1 and not a.is_new)
    variables = [*_variables(facts, given)] if placed else []
    for path, numbered in _indices(variables).items():
        own = {name for each in variables if each.path == path for name in each.dimensions}
        if along := sorted(numbered & placed):
            what = f"the steps along {along[0]!r} within its own file"
            where = ""
        elif along := [
            each for each in sorted(own & placed) if _is_split(each, numbered, variables, given)
        ]:
            what, where = "elements of its own file", f" along {along[0]!r}"
        else:
            continue
        code = facts.arrays.path.values.index(path)
        raise CombineError(
            f"{path} numbers {what}, so its values mean something else where several files follow"
            f" one another{where}",
            do="You can also build each file into a group of its own.",
            fixes=[scan_fix(f"{paths.name(path)} is left out", drop_variables=[path])],
            variable=path,
            file=facts.url_of(int(np.argmax(facts.arrays.path.codes == code))),
        )


def _is_split(
    dimension: str,
    numbered: frozenset[str],
    variables: Sequence[_Variable],
    given: Mapping[str, Sequence[str]],
) -> bool:
    """Say whether files hold other elements of what is numbered, one for each step.

    Elements of which nothing is known are taken for others, unless steps are times.
    """
    if not numbered:
        return not any(
            paths.name(each.path) == dimension and units_of(each.attributes) for each in variables
        )
    return any(
        dimension in given.get(each.path, ()) and not numbered.isdisjoint(each.dimensions)
        for each in variables
    )


def mesh_fixes(facts: CatalogFacts) -> list[Fix]:
    """Return the fix that makes a group of the files of each mesh, where files hold several."""
    if len(facts.files) < 2:
        return []
    unlike = [path for path in local_indices(facts) if _differs(facts, path)]
    number = "numbers" if len(unlike) == 1 else "number"
    price = (
        f"{list_names(unlike, _NAMED)} {number} elements of each file: files of the same elements"
        " get a group, in the order given; no data is copied"
    )
    return groups_in_order(facts, price) if unlike else []


def _differs(facts: CatalogFacts, path: str) -> bool:
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
