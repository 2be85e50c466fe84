"""Check that every variable an option names exists; none is ignored silently."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, variables_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import Fix, InvalidInputError
from icevirt.model import paths
from icevirt.planning.combine.options import COORDINATES, CombineSpec
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.planning.meaning.local_indices import local_indices
from icevirt.planning.remedies import build_fix, instead, together
from icevirt.remedy_notation import write_code, write_remedy

_NAMED = 3  # dimensions that are proposed


def refuse_unknown_edits(
    facts: CatalogFacts,
    edits: Sequence[FileEdit],
    of_file: NDArray[np.integer],
    labels: Iterable[str] = (),
    *,
    of_each: bool,
) -> None:
    """Make sure that what is changed is there in some of the files that it is changed in.

    Args:
        facts: Of all files.
        edits: Those that there are.
        of_file: Which of them each file gets, shape (files,).
        labels: Coordinates that are made of labels, which no file holds.
        of_each: Whether they were said of each file by a function, or of all alike.

    Raises:
        InvalidInputError: None of these files has a variable or dimension of a name.
    """
    if not any(edits):
        return
    arrays = facts.arrays
    pairs = np.stack([of_file[arrays.file], arrays.path.codes, arrays.schema.codes], axis=1)
    held: dict[int, list[tuple[int, int]]] = {}
    for number, path, schema in np.unique(pairs, axis=0).tolist():
        held.setdefault(number, []).append((path, schema))
    made = {name for label in labels for name in (label, f"/{label}")}
    lacking: dict[tuple[str, str], tuple[int, set[str]]] = {}
    known: set[tuple[str, str]] = set()
    for number, edit in enumerate(edits):
        if not edit:
            continue
        there = _list_names(arrays, held.get(number, []), edit)
        said: tuple[tuple[str, Iterable[str]], ...] = (
            ("rename", [name for name, _ in edit.rename]),
            ("drop", edit.drop),
            ("attrs", [name for name, _, _ in edit.attrs]),
        )
        for what, names in said:
            for name in names:
                if name in there[what] or (what == "attrs" and name in made):
                    known.add((what, name))
                else:
                    lacking.setdefault((what, name), (number, there[what]))
    unknown = {each: where for each, where in lacking.items() if each not in known}
    for (what, name), (number, names) in unknown.items():
        file = int(np.argmax(of_file == number))
        all_names = names | made if what == "attrs" else names
        url = facts.files.url[file] if of_each else None
        fixes = [] if of_each else _rename_otherwise(unknown, edits)
        raise _error_unknown(name, what, all_names, url, fixes)


def _rename_otherwise(
    unknown: Mapping[tuple[str, str], tuple[int, set[str]]], edits: Sequence[FileEdit]
) -> list[Fix]:
    """Return fixes for all names of ``rename`` that nothing has; none where others lack, too."""
    if any(what != "rename" for what, _ in unknown):
        return []
    ways = [
        instead("rename", name, names, says=dict(edits[number].rename)[name])
        for (_, name), (number, names) in unknown.items()
    ]
    ends = (0, -1) if any(len(way) > 1 for way in ways) else (0,)
    return [reduce(together, (way[end] for way in ways)) for end in ends]


def _list_names(
    arrays: ArrayColumns, held: Iterable[tuple[int, int]], edit: FileEdit
) -> dict[str, set[str]]:
    pairs = list(held)
    variables = {arrays.path.values[path] for path, _ in pairs}
    schemas = {schema for _, schema in pairs}
    dimensions = {
        name
        for schema in schemas
        for name in ArraySchema.loads(arrays.schema.values[schema]).dimension_names
        if name
    }
    called = {edit.new_path(path) for path in variables if not edit.drops(path)}
    groups = {paths.ROOT}
    for path in variables:
        while (path := paths.parent(path)) not in groups:
            groups.add(path)
    own = {*variables, *map(paths.name, variables)}
    return {
        "rename": own | dimensions,
        "drop": own,
        "attrs": {*groups, *called, *map(paths.name, called)},
    }


def _error_unknown(
    name: str, what: str, names: set[str], url: str | None, fixes: Sequence[Fix]
) -> InvalidInputError:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    kind = "variable or dimension" if what == "rename" else "variable"
    called = "" if what != "attrs" else ", after renaming and dropping"
    return InvalidInputError(
        f"no file has a {kind} {name!r}{called}"
        if url is None
        else f"preprocess changes {name!r} in files that have no such {kind}{called}",
        do=f"Did you mean {near[0]!r}?" if near else "Name one that exists.",
        fixes=fixes,
        there=sorted(names)[:50],
        **({} if url is None else {"file": url}),
    )


def refuse_void_options(facts: CatalogFacts, spec: CombineSpec, new: Iterable[str]) -> None:
    """Make sure that options name what they concern; ``new`` are dimensions that no file has.

    Raises:
        InvalidInputError: One names what is not there, or what it does nothing to.
    """
    _refuse_void_indices(facts, spec)
    if {*spec.pad, *spec.spacing, *spec.tolerance, *spec.options.float_variables} <= {COORDINATES}:
        return
    held = [(path, schema.dimension_names) for path, schema in variables_of(facts)]
    dimensions = {name for _, names in held for name in names if name}
    for name in spec.pad:
        if name not in dimensions or name in spec.concat_dim:
            raise InvalidInputError(
                f"pad names {name!r}, which is not a dimension that pad can fill",
                fixes=instead("pad", name, dimensions - {*spec.concat_dim}),
                there=sorted(dimensions - {*spec.concat_dim}),
            )
    if void := sorted({*spec.spacing} & {*new}):
        raise InvalidInputError(
            "spacing does not apply to dimensions whose positions come from labels",
            fixes=[
                build_fix(f"labels place the files along {void[0]}", without={"spacing": void[0]})
            ],
            dimensions=void,
        )
    tolerated = [name for name in spec.tolerance if name != COORDINATES]
    for option, given, along in (
        ("tolerance", tolerated, False),
        ("float_variables", spec.options.float_variables, True),
    ):
        for name in given:
            fitting = [names for path, names in held if name in (path, paths.name(path))]
            if not fitting:
                raise InvalidInputError(
                    f"{option} names {name!r}, but no file has this variable",
                    fixes=instead(
                        option,
                        name,
                        # names of variables with, or without, a concatenated dimension
                        {paths.name(p) for p, d in held if spec.concatenates(d) == along},
                        says=spec.tolerance[name] if option == "tolerance" else None,
                    ),
                    there=sorted({path for path, _ in held}),
                )
            joined = [spec.concatenates(names) for names in fitting]
            if along not in joined and (spec.concat_dim or along):
                raise InvalidInputError(
                    f"{option} is for variables {'with' if along else 'without'} a concatenated"
                    f" dimension, and {name!r} has {'none' if along else 'one'}",
                    fixes=[build_fix("it does nothing there", without={option: name})],
                    variable=name,
                    concat_dim=list(spec.concat_dim),
                )


def _refuse_void_indices(facts: CatalogFacts, spec: CombineSpec) -> None:
    """Make sure that there is an index, and that what a person says of indices names something."""
    declared, asked = spec.options.index_of or {}, spec.options.rebase_indices
    if not (declared or asked):
        return
    held = [(path, schema.dimension_names) for path, schema in variables_of(facts)]
    named = {name for path, _ in held for name in (path, paths.name(path))}
    dimensions = {name for _, names in held for name in names if name}
    for name, numbered in declared.items():
        if name not in named:
            raise InvalidInputError(
                f"index_of names {name!r}, but no file has this variable",
                fixes=instead("index_of", name, named, says=numbered),
                there=sorted({path for path, _ in held}),
            )
        is_there = any(
            numbered.rpartition("/")[2] in names
            for path, names in held
            if not numbered.startswith("/") or paths.parent(path) == paths.parent(numbered)
        )
        if numbered and not is_there:
            raise InvalidInputError(
                f"index_of names {numbered!r}, which is not a dimension",
                fixes=list(_fix_numbered(name, numbered, held, spec)),
                do="Name the dimension whose elements the variable numbers.",
                variable=name,
                there=sorted(dimensions),
            )
    known = local_indices(facts, declared=declared)
    if asked and not any(spec.concatenates(each.numbers) for each in known.values()):
        raise InvalidInputError(
            "rebase_indices does nothing: no variable numbers elements along a concatenated"
            " dimension",
            fixes=[build_fix("no variable is such an index", without={"rebase_indices": ""})],
            do=write_remedy(
                "If one does, say which and what: ",
                write_code('index_of={"VARIABLE": "DIMENSION"}', "--index-of VARIABLE=DIMENSION"),
                ".",
            ),
            concat_dim=list(spec.concat_dim),
            indices=sorted(known),
        )


def _fix_numbered(
    name: str, numbered: str, held: Sequence[tuple[str, Sequence[str | None]]], spec: CombineSpec
) -> Iterator[Fix]:
    """Yield what an index may number: a dimension called like the one that is not there, or any."""
    dimensions = {each for _, names in held for each in names if each}
    own = {each for path, names in held if name in (path, paths.name(path)) for each in names}
    alike = difflib.get_close_matches(numbered, sorted(dimensions), n=1)
    for each in (alike or sorted(dimensions - own))[:_NAMED]:
        stored = spec.concatenates((each,)) and not spec.options.rebase_indices
        yield build_fix(
            f"{name} numbers elements along {each}",
            without={"index_of": name},
            combine_options={"index_of": {name: each}}
            | ({"rebase_indices": True} if stored else {}),
        )
