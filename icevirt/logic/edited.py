"""Facts of a catalog under other names and attributes, before anything else is decided.

Renaming follows xarray: a name stands for variables and dimensions alike. What attributes of CF say
of variables by name (``coordinates``, ``bounds``, ``grid_mapping`` ...) follows. Where the catalog
keeps an array's references is remembered, so that the write stage finds them.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.attributes import Attributes
from icevirt.archive.edits import FileChanges, FileFacts, VariableFacts
from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded
from icevirt.archive.scanned import ScannedGroup
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model import paths
from icevirt.model.names import problem

_NAMING = (
    *("coordinates", "bounds", "climatology", "ancillary_variables", "grid_mapping"),
    *("cell_measures", "formula_terms"),
)
"""Attributes that name variables (CF 5, 7.1, 7.2, 3.4, 5.6, Appendix D)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Changes of one file, as a value that can be compared."""

    rename: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    attrs: tuple[tuple[str, str, str], ...] = ()  # variable, name, JSON of the value

    @classmethod
    def of(cls, changes: FileChanges | None) -> Edit:
        """Take what a person or a function said.

        Raises:
            InvalidInputError: It is no change of names and attributes.
        """
        if changes is None:
            return cls()
        if not isinstance(changes, FileChanges):
            raise InvalidInputError(
                "preprocess returns neither FileChanges nor None",
                do="Return icevirt.FileChanges(...).",
                returned=type(changes).__name__,
            )
        _check_names(changes.rename)
        drop = changes.drop_variables
        return cls(
            rename=tuple(changes.rename.items()),
            drop=(drop,) if isinstance(drop, str) else tuple(drop),
            attrs=tuple(
                (variable, name, _json(variable, name, value))
                for variable, attrs in changes.attrs.items()
                for name, value in attrs.items()
            ),
        )

    def __bool__(self) -> bool:
        return bool(self.rename or self.drop or self.attrs)


def _check_names(rename: Mapping[str, str]) -> None:
    for old, new in rename.items():
        given: tuple[object, ...] = (old, new)
        is_text = all(isinstance(each, str) for each in given)
        if not is_text or (why := problem(new)):
            raise InvalidInputError(
                f"not a new name: {why}" if is_text else "names are texts",
                do="Correct rename (on the command line --rename OLD=NEW).",
                old=old,
                new=new,
            )
    new_names = list(rename.values())
    if twice := [name for name in new_names if new_names.count(name) > 1]:
        raise InvalidInputError(
            "several names would become one",
            do="To give dimensions of different files one name, use preprocess.",
            new=twice[0],
        )


def _json(variable: str, name: str, value: Any) -> str:
    plain = Attributes.of({name: value})
    try:
        return json.dumps([plain.values[name], plain.dtypes.get(name)], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "not a value for an attribute", do="Correct it.", variable=variable, attribute=name
        ) from error


def facts_of_file(facts: CatalogFacts, file: int, rows: NDArray[np.integer]) -> FileFacts:
    """Return what a function for ``preprocess`` is told of a file; ``rows`` are its arrays."""
    arrays = facts.arrays
    return FileFacts(
        url=facts.files.url[file],
        attrs=next(
            (dict(g.attributes.values) for g in facts.groups_of(file) if g.path == paths.ROOT), {}
        ),
        variables={
            arrays.path[row]: _variable(arrays.schema[row], arrays.shape[row])
            for row in rows.tolist()
        },
    )


@lru_cache(4096)
def _variable(schema: str, shape: str) -> VariableFacts:
    """Return what nearly all files say alike, so it cannot be written to."""
    raw = json.loads(schema)
    kind = raw["data_type"]
    return VariableFacts(
        dims=tuple(raw["dimension_names"]),
        shape=tuple(json.loads(shape)),
        dtype=kind if isinstance(kind, str) else kind["name"],
        attrs=MappingProxyType(raw["attributes"]),
    )


# -- applying ------------------------------------------------------------------------------------


def refuse_unknown(facts: CatalogFacts, edit: Edit) -> None:
    """Make sure that what is changed in all files is there in some.

    Raises:
        InvalidInputError: No file has a variable or dimension of a name.
    """
    variables = facts.arrays.path.values
    schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
    dimensions = {name for schema in schemas for name in schema.dimension_names if name}
    names = {*variables, *map(paths.name, variables), *dimensions}
    groups = {paths.ROOT, *(path for path in _parents(variables))}
    _refuse_others([name for name, _ in edit.rename], names)
    called = [_new_path(path, edit) for path in variables]
    _refuse_others(
        [name for name, _, _ in edit.attrs], {*groups, *called, *map(paths.name, called)}
    )


def _refuse_others(wanted: Sequence[str], names: set[str]) -> None:
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=1)
            raise InvalidInputError(
                f"no file has a variable or dimension {name!r}",
                do=f"Did you mean {near[0]!r}?" if near else "Name one that is there.",
                there=sorted(names)[:50],
            )


def _parents(variables: Iterable[str]) -> set[str]:
    return {paths.parent(path) for path in variables}


def edited(
    facts: CatalogFacts, edits: Sequence[Edit], of_file: NDArray[np.integer]
) -> CatalogFacts:
    """Return the facts as the edits have them.

    Args:
        facts: Of all files.
        edits: Those that there are.
        of_file: Which of them each file gets, shape (files,).

    Raises:
        CombineError: Two variables of a file, or two dimensions of a variable, would get one name.
    """
    if not any(edits):
        return facts
    arrays = facts.arrays
    columns = np.stack([arrays.path.codes, arrays.schema.codes, of_file[arrays.file]], axis=1)
    distinct, first, which = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    new_paths, new_schemas, kept = [], [], np.ones(len(distinct), np.bool_)
    for at, (path, schema, number) in enumerate(distinct.tolist()):
        edit, old = edits[number], arrays.path.values[path]
        url = facts.files.url[int(arrays.file[first[at]])]
        kept[at] = not _is_one_of(old, edit.drop)
        new_paths.append(_new_path(old, edit))
        new_schemas.append(_new_schema(arrays.schema.values[schema], old, edit, url))
    made = replace(
        arrays,
        path=_coded(new_paths, which),
        schema=_coded(new_schemas, which),
        own_path=arrays.path if arrays.own_path is None else arrays.own_path,
    )
    made = made if kept.all() else made.take(np.flatnonzero(kept[which]))
    _refuse_twice(facts, made)
    return replace(facts, arrays=made, groups_of=_groups_of(facts, edits, of_file))


def _is_one_of(path: str, names: Sequence[str]) -> bool:
    return path in names or paths.name(path) in names


def _new_path(path: str, edit: Edit) -> str:
    told = dict(edit.rename)
    new = told.get(path, told.get(paths.name(path)))
    return path if new is None else paths.join(paths.parent(path), new)


def _new_schema(text: str, path: str, edit: Edit, url: str) -> str:
    schema = ArraySchema.loads(text)
    told = dict(edit.rename)
    names = tuple(None if name is None else told.get(name, name) for name in schema.dimension_names)
    for name in names:
        if name is not None and names.count(name) > 1 and names != schema.dimension_names:
            raise CombineError(
                f"variable {path} would have the dimension {name!r} twice",
                do="Rename the other one too.",
                variable=path,
                file=url,
            )
    attributes = _renamed_within(schema.attributes, told)
    called = _new_path(path, edit)
    wanted = {n: v for variable, n, v in edit.attrs if variable in (called, paths.name(called))}
    return replace(
        schema, dimension_names=names, attributes=_with(attributes, wanted, schema.data_type)
    ).dumps()


def _renamed_within(attributes: Attributes, told: Mapping[str, str]) -> Attributes:
    """Let attributes that name variables name them as they are called now."""
    told = {paths.name(old) if old.startswith("/") else old: new for old, new in told.items()}
    values = dict(attributes.values)
    for name in _NAMING:
        if isinstance(value := values.get(name), str):
            words = value.split(" ")
            keys = name != "grid_mapping"  # whose keys are variables too
            values[name] = " ".join(_word(word, told, keys=keys) for word in words)
    return replace(attributes, values=values)


def _word(word: str, told: Mapping[str, str], *, keys: bool) -> str:
    if not word.endswith(":"):
        return told.get(word, word)
    return word if keys else told.get(word[:-1], word[:-1]) + ":"


def _with(attributes: Attributes, wanted: Mapping[str, str], data_type: Any) -> Attributes:
    """Return attributes with others set; a number keeps the type that its predecessor had."""
    for name, text in wanted.items():
        value, dtype = json.loads(text)
        known = attributes.dtypes.get(name)
        attributes = attributes.without(name)
        if value is None:
            continue
        if name in ("_FillValue", "missing_value") and known is None and dtype is None:
            known = data_type if isinstance(data_type, str) else None
        if dtype is None and known is not None and _is_number(value):
            made = Attributes.of({name: np.dtype(known).type(value)})
            value, dtype = made.values[name], made.dtypes.get(name)
        attributes = replace(
            attributes,
            values={**attributes.values, name: value},
            dtypes=attributes.dtypes if dtype is None else {**attributes.dtypes, name: dtype},
        )
    return attributes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _coded(texts: Sequence[str], which: NDArray[np.integer]) -> Coded:
    number: dict[str, int] = {}
    codes = np.array([number.setdefault(text, len(number)) for text in texts], np.int32)
    return Coded(codes[which].astype(np.int32), tuple(number))


def _refuse_twice(facts: CatalogFacts, arrays: ArrayColumns) -> None:
    key = arrays.file.astype(np.int64) * len(arrays.path.values) + arrays.path.codes
    order = np.argsort(key, kind="stable")
    twice = np.flatnonzero(np.diff(key[order]) == 0)
    if len(twice):
        assert arrays.own_path is not None
        one, other = order[twice[0]], order[twice[0] + 1]
        raise CombineError(
            f"two variables of a file would get one name: {arrays.path[one]}",
            do="Choose another name, or drop one of them with drop_variables.",
            file=facts.files.url[int(arrays.file[one])],
            variables=[arrays.own_path[one], arrays.own_path[other]],
        )


def _groups_of(facts: CatalogFacts, edits: Sequence[Edit], of_file: NDArray[np.integer]) -> Any:
    groups_of = facts.groups_of

    def changed(row: int) -> tuple[ScannedGroup, ...]:
        edit = edits[int(of_file[row])]
        return tuple(
            replace(
                group,
                attributes=_with(
                    group.attributes,
                    {name: text for path, name, text in edit.attrs if path == group.path},
                    None,
                ),
            )
            for group in groups_of(row)
        )

    return changed
