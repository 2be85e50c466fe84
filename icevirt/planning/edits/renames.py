"""Rename variables and change attributes in a catalog's facts, before any other decision.

Renaming follows xarray: a name stands for variables and dimensions alike. CF attributes that name
variables (``coordinates``, ``bounds``, ``grid_mapping`` ...) follow. The original name stays known,
so that the write stage finds an array's references in the catalog. Coordinates that are made from
labels, which no file holds, get their attributes here too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, GroupsOf, by_first_appearance
from icevirt.archive.roles import KEYED, LISTS, resolve
from icevirt.archive.schema import DECODING, ArraySchema, ScannedGroup
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.json import JSON
from icevirt.planning.axes.axis import NewDimension
from icevirt.planning.combine.combine_attrs import CombineAttrs, combine_attributes
from icevirt.planning.edits.file_edits import (
    COUNTING,
    Corrections,
    FileEdit,
    LabelEdits,
    convert,
    statement,
)
from icevirt.planning.meaning.places import NAMING
from icevirt.planning.remedies import drop_fix
from icevirt.planning.times.units import bounds_of
from icevirt.remedy_notation import write_code, write_remedy

_NAMING = (*LISTS, *KEYED, "ancillary_variables")
"""Attributes that name variables (attributes of coordinates, and CF 3.4)."""
_WORDS = re.compile(r"\S+?(?=:?(?:\s|$))")


def apply_edits(
    facts: CatalogFacts,
    edits: Sequence[FileEdit],
    of_file: NDArray[np.integer],
    *,
    option: str = "attrs",
) -> CatalogFacts:
    """Return the facts as the edits have them.

    Args:
        facts: Of all files.
        edits: Those that there are.
        of_file: Which of them each file gets, shape (files,).
        option: What they were said by: "attrs" of all files alike, "preprocess" of each.

    Raises:
        CombineError: Two variables of a file, or two dimensions of a variable, would get one name;
            or values that mean different things would get one meaning.
        InvalidInputError: A value does not fit its attribute.
    """
    if not any(edits):
        return facts
    for number, edit in enumerate(edits):
        _refuse_joined(facts, edit, np.flatnonzero(of_file == number))
    arrays = facts.arrays
    columns = np.stack([arrays.path.codes, arrays.schema.codes, of_file[arrays.file]], axis=1)
    distinct, first, which = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    edits = _add_bounds(arrays, edits, distinct)
    corrections = Corrections(option, of_each=option == "preprocess")
    there: dict[str, set[str]] = defaultdict(set)  # paths by name
    for path in arrays.path.values:
        there[paths.name(path)].add(path)
    new_paths, new_schemas, kept = [], [], np.ones(len(distinct), np.bool_)
    for at, (path, schema, number) in enumerate(distinct.tolist()):
        edit, old = edits[number], arrays.path.values[path]
        url = facts.url_of(first[at])
        kept[at] = not edit.drops(old)
        new_paths.append(edit.new_path(old))
        own = ArraySchema.loads(arrays.schema.values[schema])
        if kept[at]:
            corrections.add(
                new_paths[-1], own.attributes, edit.choose_attributes(new_paths[-1]), url
            )
        made_of = _rename_schema(own, old, edit, url, there)
        if option == "attrs":
            made_of = _accept_place(made_of, edit, new_paths[-1])
        new_schemas.append(made_of.dumps())
    made = replace(
        arrays,
        path=Coded.of(new_paths).take(which),
        schema=Coded.of(new_schemas).take(which),
        own_path=arrays.in_files,
    )
    made = made if kept.all() else made.take(np.flatnonzero(kept[which]))
    _refuse_twice(facts, made)
    return replace(facts, arrays=made, groups_of=_rename_groups(facts, edits, of_file, there))


def files_with(facts: CatalogFacts, name: str) -> NDArray[np.int64]:
    """Return the rows of files that have a variable or a dimension of a name, or of a path."""
    arrays = facts.arrays
    has = np.array(
        [path == name or paths.name(path) == name for path in arrays.path.values], np.bool_
    )
    own = [name in ArraySchema.loads(each).dimension_names for each in arrays.schema.values]
    rows = has[arrays.path.codes] | np.array(own, np.bool_)[arrays.schema.codes]
    return np.unique(arrays.file[np.flatnonzero(rows)]).astype(np.int64)


def _refuse_joined(facts: CatalogFacts, edit: FileEdit, files: NDArray[np.int64]) -> None:
    """Refuse one new name for several names of one file, of which absolute ones count in a group.

    Raises:
        InvalidInputError: A file has two of them.
    """
    olds: dict[str, list[str]] = {}
    for old, new in edit.rename:
        called = paths.join(paths.parent(old), new) if old.startswith("/") else new
        olds.setdefault(called, []).append(old)
    for new, names in olds.items():
        if len(names) < 2:
            continue
        held = np.concatenate([np.intersect1d(files_with(facts, each), files) for each in names])
        found, count = np.unique(held, return_counts=True)
        if (count > 1).any():
            raise InvalidInputError(
                "rename would give several variables or dimensions of a file the same name",
                do="Give them names of their own.",
                new=new,
                file=facts.files.url[int(found[np.argmax(count > 1)])],
            )


def _add_bounds(
    arrays: ArrayColumns, edits: Sequence[FileEdit], distinct: NDArray[np.integer]
) -> list[FileEdit]:
    """Let bounds that repeat the units of their coordinate get the new ones too (CF 7.1).

    Raises:
        InvalidInputError: They have units of their own, and were not named.
    """
    made = list(edits)
    for number, edit in enumerate(edits):
        if not any(name in COUNTING for _, name, _ in edit.attrs):
            continue
        held: dict[str, list[Attributes]] = {}
        for path, schema, _ in distinct[distinct[:, 2] == number].tolist():
            attributes = ArraySchema.loads(arrays.schema.values[schema]).attributes
            held.setdefault(arrays.path.values[path], []).append(attributes)
        more: dict[tuple[str, str, str], None] = {}
        for path, found in held.items():
            for name, text in edit.choose_attributes(edit.new_path(path)).items():
                for bounds in {each for own in found for each in bounds_of(path, own.values)}:
                    says = any(name in each.values for each in held.get(bounds, ()))
                    if name in COUNTING and says:
                        called = edit.new_path(bounds)
                        if name in edit.choose_attributes(called):
                            continue
                        _refuse_other_bounds(path, bounds, name, found, held[bounds])
                        more[called, name, text] = None
        made[number] = replace(edit, attrs=(*edit.attrs, *more))
    return made


def _refuse_other_bounds(
    path: str, bounds: str, name: str, one: Sequence[Attributes], other: Sequence[Attributes]
) -> None:
    said = {statement(each, name) for each in one}
    if not {statement(each, name) for each in other if name in each.values} <= said:
        raise InvalidInputError(
            f"{name} of {path} is set, but its bounds {bounds} have different {name} of their own",
            do=write_remedy(
                f"Set {name} of the bounds too: ",
                write_code(
                    f'attrs={{"{paths.name(bounds)}": {{"{name}": ...}}}}',
                    f"--attr {paths.name(bounds)}:{name}=...",
                ),
                ".",
            ),
            variable=bounds,
        )


def _rename_schema(
    schema: ArraySchema, path: str, edit: FileEdit, url: str, there: Mapping[str, Collection[str]]
) -> ArraySchema:
    renamed = dict(edit.rename)
    names = tuple(
        None if name is None else renamed.get(name, name) for name in schema.dimension_names
    )
    for name in names:
        if name is not None and names.count(name) > 1 and names != schema.dimension_names:
            raise CombineError(
                f"variable {path} would have the dimension {name!r} twice",
                do="Rename the other one too.",
                variable=path,
                file=url,
            )
    attributes = _rename_within(paths.parent(path), schema.attributes, edit, there)
    called = edit.new_path(path)
    attributes = with_attributes(
        called, attributes, edit.choose_attributes(called), schema.data_type
    )
    return replace(schema, dimension_names=names, attributes=attributes)


def _accept_place(schema: ArraySchema, edit: FileEdit, path: str) -> ArraySchema:
    """Return a schema of which was said for all files by which mapping it is placed, if it was."""
    said = edit.choose_attributes(path).get(NAMING)
    return schema if said is None else replace(schema, placed_by={NAMING: json.loads(said)[0]})


def _rename_within(
    group: str,
    attributes: Attributes,
    edit: FileEdit,
    there: Mapping[str, Collection[str]],
    names: Sequence[str] = _NAMING,
) -> Attributes:
    if not edit.rename:
        return attributes
    values = dict(attributes.values)
    for name in names:
        if isinstance(text := values.get(name), str):
            values[name] = _WORDS.sub(partial(_rename_word, group, edit, there, name), text)
    return replace(attributes, values=values)


def _rename_word(
    group: str,
    edit: FileEdit,
    there: Mapping[str, Collection[str]],
    name: str,
    found: re.Match[str],
) -> str:
    word = found[0]
    is_key = found.string[found.end() :].lstrip(" ").startswith(":")
    if is_key and name in KEYED and name != "grid_mapping":  # whose keys are variables
        return word
    path = resolve(group, word, there)
    if path is None:  # a dimension without a variable
        return dict(edit.rename).get(word, word)
    above, slash, _ = word.rpartition("/")
    return above + slash + paths.name(edit.new_path(path))


def with_attributes(
    path: str, attributes: Attributes, wanted: Mapping[str, str], data_type: JSON
) -> Attributes:
    """Return attributes with others set; a number keeps the type that its predecessor had."""
    for name, text in wanted.items():
        value, dtype = json.loads(text)
        known = attributes.dtypes.get(name)
        attributes = attributes.without(name)
        if value is None:
            continue
        if dtype is None:
            value, dtype = convert(path, name, value, known, data_type)
        dtypes = {} if dtype is None else {name: dtype}
        attributes |= Attributes(values={name: value}, dtypes=dtypes)
    return attributes


def _refuse_twice(facts: CatalogFacts, arrays: ArrayColumns) -> None:
    key = arrays.file.astype(np.int64) * len(arrays.path.values) + arrays.path.codes
    order = np.argsort(key, kind="stable")
    twice = np.flatnonzero(np.diff(key[order]) == 0)
    if len(twice):
        assert arrays.own_path is not None
        one, other = order[twice[0]], order[twice[0] + 1]
        raise CombineError(
            f"two variables of a file would get one name: {arrays.path[one]}",
            fixes=[
                drop_fix(arrays, [row], f"the dataset lacks {arrays.own_path[row]}")
                for row in (other, one)
            ],
            do="You can also choose another name.",
            file=facts.url_of(one),
            variables=[arrays.own_path[one], arrays.own_path[other]],
        )


def _rename_groups(
    facts: CatalogFacts,
    edits: Sequence[FileEdit],
    of_file: NDArray[np.integer],
    there: Mapping[str, Collection[str]],
) -> GroupsOf:
    groups_of = facts.groups_of

    def change(row: int, *, saying: str = "") -> tuple[ScannedGroup, ...]:
        edit = edits[int(of_file[row])]
        is_set = any(name == saying for _, name, _ in edit.attrs)
        return tuple(
            replace(
                group,
                attributes=with_attributes(
                    group.path,
                    _rename_within(group.path, group.attributes, edit, there, ("coordinates",)),
                    {name: text for path, name, text in edit.attrs if path == group.path},
                    None,
                ),
            )
            for group in groups_of(row, saying="" if is_set else saying)
        )

    return change


def with_label_edits(
    dimension: NewDimension, said: LabelEdits, rows: NDArray[np.integer], policy: CombineAttrs
) -> NewDimension:
    """Return a dimension with its attributes; ``rows`` are the files in their order.

    Raises:
        CombineError: Files say different things of what the labels mean.
        InvalidInputError: The labels come from a variable that says something else of them.
    """
    path = f"/{dimension.name}"
    kind = "" if dimension.values is None else dimension.values.dtype.name
    used = by_first_appearance(said.of_file[rows], len(said.edits)).tolist()
    found = [
        _of_edits(path, dimension.attributes, (said.edits[number], said.everywhere), kind)
        for number in used
    ]
    unlike = [
        name
        for name in DECODING
        if any(statement(each, name) != statement(found[0], name) for each in found)
    ]
    if unlike:
        raise CombineError(
            f"preprocess sets different attributes for the labels of {dimension.name!r}",
            do=f"Set the same {', '.join(unlike)} for all files.",
            dimension=dimension.name,
        )
    attributes = combine_attributes(found, policy, path=path)
    return replace(dimension, attributes=attributes)


def _of_edits(
    path: str, attributes: Attributes, edits: Sequence[FileEdit], kind: JSON
) -> Attributes:
    made = attributes
    for edit in edits:
        made = with_attributes(path, made, edit.choose_attributes(path), kind)
    for name in DECODING:
        if name in attributes.values and statement(made, name) != statement(attributes, name):
            raise InvalidInputError(
                f"the labels {path} have the {name} of the variable that they come from",
                do="Correct that variable in attrs instead.",
                variable=path,
                attribute=name,
            )
    return made
