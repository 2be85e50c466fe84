"""Refuse to join variables that number elements of their own file, and propose what can be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from icevirt.archive.facts import CatalogFacts, variables_of
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.planning.axes.axis import Placement
from icevirt.planning.axes.candidates import groups_in_order
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.meaning.likely_indices import (
    LikelyIndex,
    likely_indices,
    names_of,
    options_for,
)
from icevirt.planning.meaning.local_indices import (
    LocalIndex,
    Variable,
    differs,
    dimensions_of_elements,
    indices_among,
    local_indices,
    variables_with_indices,
)
from icevirt.planning.remedies import fix, list_names, scan_fix, together
from icevirt.planning.times.units import units_of
from icevirt.remedy_notation import write_code, write_remedy

_NAMED = 3  # variables in a price


def indices_to_shift(
    facts: CatalogFacts,
    cells: Placement,
    given: Mapping[str, Sequence[str]],
    spec: CombineSpec,
) -> dict[str, LocalIndex]:
    """Return the variables whose numbers are to count elements of the dataset, by path.

    Args:
        facts: Of the files.
        cells: Where they lie.
        given: The dimensions that variables do not have in the files, by path.
        spec: Whether indices may be stored, and what a person says that they number.

    Raises:
        CombineError: A variable numbers what lies along a dimension of its own file, and files hold
            different elements, one after the other; nobody asked for it, or it cannot be done.
    """
    placed = frozenset(a.dimension for a in cells.axes if a.count > 1 and not a.is_new)
    declared = spec.options.index_of or {}
    variables = [*variables_with_indices(facts, given, declared)] if placed else []
    found: dict[str, LocalIndex] = {}
    indices = indices_among(variables, declared)
    for path, index in indices.items():
        dims = [name for each in variables if each.path == path for name in each.dimensions]
        own = {*dims}
        if along := sorted(index.numbers & placed):
            is_possible = len(index.numbers) == 1 and facts.cuts is None
            is_shared = own.isdisjoint(placed)  # by files whose numbers mean other elements
            if spec.options.rebase_indices and is_possible and not is_shared:
                found[path] = index
                continue
            what = f"the steps along {along[0]!r} within its own file"
            joined = [*dims[:1], *along] if is_shared else ()
            raise _refusal(facts, path, what, "", is_possible=is_possible, joined=joined)
        split = (n for n in sorted(own & placed) if _is_split(n, index, variables, given))
        if (name := next(split, None)) is not None:
            what, where = "elements of its own file", f" along {name!r}"
            raise _refusal(facts, path, what, where, is_possible=False)
    if placed and (likely := likely_indices(facts, placed, {*declared, *indices})):
        raise _refuse_likely(facts, likely)
    return found


def _refuse_likely(facts: CatalogFacts, found: Sequence[LikelyIndex]) -> CombineError:
    """Return the error on what seems to number elements, and what a person can say of it."""
    is_one = len(found) == 1
    listed = list_names([each.path for each in found], _NAMED)
    first = found[0].numbers[0]
    where = "" if first.group == paths.ROOT else f" of {first.group}"
    counted = f"{listed} {'is stored, and counts' if is_one else 'are stored, and count'} elements"
    choices = range(max(len(each.numbers) for each in found)) if facts.cuts is None else ()
    none = dict.fromkeys(names_of(found).values(), "")
    return CombineError(
        f"{listed} {'seems to number' if is_one else 'seem to number'} elements along"
        f" {first.dimension!r}{where} within {'its own file' if is_one else 'their own files'}: by"
        f" {'its' if is_one else 'their'} name or description, and by the values, which would mean"
        " something else where several files follow one another",
        do="You can also build each file into a group of its own.",
        fixes=[
            *(fix(f"{counted} of the dataset", **options_for(found, each)) for each in choices),
            fix(
                f"{listed} {'numbers' if is_one else 'number'} nothing of the"
                f" {'file' if is_one else 'files'}; values are joined as they are",
                index_of=none,
            ),
        ],
        variable=found[0].path,
        file=facts.url_of(
            int(np.argmax(facts.arrays.path.codes == facts.arrays.path.values.index(found[0].path)))
        ),
    )


def _refusal(
    facts: CatalogFacts,
    path: str,
    what: str,
    where: str,
    *,
    is_possible: bool,
    joined: Sequence[str] = (),
) -> CombineError:
    name = paths.name(path)
    price = f"{name} is stored, and counts elements of the dataset"
    rebased = (
        fix(price, concat_dim=[*joined], combine="by_coords", rebase_indices=True)
        if joined
        else fix(price, rebase_indices=True)
    )
    told = write_remedy(
        " If it numbers what lies along another dimension, say which, and let it be stored: ",
        write_code(
            f'index_of={{"{name}": "DIMENSION"}}, rebase_indices=True',
            f"--index-of {name}=DIMENSION --rebase-indices",
        ),
        ".",
    )
    code = facts.arrays.path.values.index(path)
    return CombineError(
        f"{path} numbers {what}, so its values mean something else where several files follow"
        f" one another{where}",
        do=write_remedy(
            "You can also build each file into a group of its own.", "" if is_possible else told
        ),
        fixes=[
            *([rebased] if is_possible else []),
            scan_fix(f"{name} is left out", drop_variables=[path]),
        ],
        variable=path,
        file=facts.url_of(int(np.argmax(facts.arrays.path.codes == code))),
    )


def _is_split(
    dimension: str,
    index: LocalIndex,
    variables: Sequence[Variable],
    given: Mapping[str, Sequence[str]],
) -> bool:
    """Say whether files hold other elements of what is numbered, one for each step.

    Elements of which nothing is known are taken for others, unless steps are times.
    """
    if not index.numbers:
        return not any(
            paths.name(each.path) == dimension and units_of(each.attributes) for each in variables
        )
    return any(
        dimension in given.get(each.path, ()) and not index.numbers.isdisjoint(each.dimensions)
        for each in variables
    )


def _list_unlike(facts: CatalogFacts, indices: Mapping[str, LocalIndex]) -> list[str]:
    return [path for path in indices if len(facts.files) > 1 and differs(facts, path)]


def _each_has_its_times(facts: CatalogFacts) -> bool:
    """Say whether no two files hold the same times: then a mesh changes from step to step."""
    arrays = facts.arrays
    for path, schema in variables_of(facts):
        if schema.dimension_names != (paths.name(path),) or not units_of(schema.attributes.values):
            continue
        rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(path)).tolist()
        held = [arrays.labels.get(row) for row in rows]
        found = {
            arrays.digest[row] if each is None else each.tobytes()
            for row, each in zip(rows, held, strict=True)
        }
        if len(found) == len(facts.files):
            return True
    return False


def with_mesh_fixes(facts: CatalogFacts, spec: CombineSpec, fixes: Sequence[Fix]) -> list[Fix]:
    """Return what keeps files of several meshes, and of some fixes those that fit partitions.

    A group for each mesh, or indices that count all elements.

    Args:
        facts: Of the files.
        spec: What a person says that variables number.
        fixes: Other ones.
    """
    declared = spec.options.index_of or {}
    indices = local_indices(facts, declared=declared)
    if not (unlike := _list_unlike(facts, indices)):
        return [*fixes]
    number = "numbers" if len(unlike) == 1 else "number"
    price = (
        f"{list_names(unlike, _NAMED)} {number} elements of each file: files of the same elements"
        " get a group, in the order given"
    )
    along = dimensions_of_elements(variables_with_indices(facts, {}, declared), indices)
    if not spec.labels and not _each_has_its_times(facts):
        fixes = [each for each in fixes if not _takes_for_steps(each, along, indices)]
    found = groups_in_order(facts, price)
    is_known = all(len(each.numbers) == 1 for each in indices.values())
    if is_known and not {*along} <= {*spec.concat_dim}:
        found += _join_elements(facts, spec, along, [*map(paths.name, indices)])
    return [*found, *fixes]


def _takes_for_steps(fix: Fix, along: Sequence[str], indices: Collection[str]) -> bool:
    """Say whether a fix lets partitions follow one another, or pads them, as if they were steps."""
    combining = fix.arguments.get("combine_options", {})
    dropped = fix.arguments.get("scan_options", {}).get("drop_variables", ())
    is_nested = combining.get("combine") == "nested" and combining.get("on_mismatch") != "eras"
    is_padded = not {*along}.isdisjoint(combining.get("pad", ()))
    return is_nested or is_padded or not {*dropped} <= {*indices}


def _join_elements(
    facts: CatalogFacts, spec: CombineSpec, along: Sequence[str], indices: Sequence[str]
) -> list[Fix]:
    """Return the fixes that let elements of all files follow one another.

    Chunks whose shapes differ from file to file are stored by the second one.
    """
    is_one = len(indices) == 1
    made = fix(
        f"elements follow one another along {', '.join(along)}, in the order given, and those that"
        f" several files hold are there again; {list_names(indices, _NAMED)}"
        f" {'is' if is_one else 'are'} stored, and {'counts' if is_one else 'count'} elements of"
        " the dataset",
        concat_dim=[*(n for n in spec.concat_dim if n not in (*along, *spec.labels)), *along],
        rebase_indices=True,
    )
    cut = _list_cut_otherwise(facts, along)
    stored = f"chunks of {list_names(cut, _NAMED)} that have other shapes than most are stored"
    return [made, together(made, fix(stored, on_mismatch="native"))] if cut else [made]


def _list_cut_otherwise(facts: CatalogFacts, along: Sequence[str]) -> list[str]:
    """Return the names of referenced variables along dimensions whose chunks differ in shape."""
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for path, schema in variables_of(facts):
        if schema.chunk_shape is not None and not {*along}.isdisjoint(schema.dimension_names):
            shapes.setdefault(paths.name(path), set()).add(schema.chunk_shape)
    return [name for name, found in shapes.items() if len(found) > 1]
