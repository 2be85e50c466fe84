"""Change the names and attributes of one file before any other decision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.edits import FileChanges, FileFacts, VariableFacts
from icevirt.archive.facts import CatalogFacts
from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import FILL, MISSING, Attributes
from icevirt.model.paths import problem


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """Changes of one file, as a value that can be compared."""

    rename: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    attrs: tuple[tuple[str, str, str], ...] = ()  # variable, name, JSON of the value

    @classmethod
    def of(cls, changes: FileChanges | None) -> FileEdit:
        """Take what a person or a function said.

        Raises:
            InvalidInputError: It is no change of names and attributes.
        """
        if changes is None:
            return cls()
        if not isinstance(changes, FileChanges):
            raise InvalidInputError(
                "preprocess must return FileChanges or None",
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

    def new_path(self, path: str) -> str:
        """Return what a variable is called then."""
        renamed = dict(self.rename)
        new = renamed.get(path, renamed.get(paths.name(path)))
        return path if new is None else paths.join(paths.parent(path), new)

    def drops(self, path: str) -> bool:
        """Say whether a variable is left out."""
        return path in self.drop or paths.name(path) in self.drop

    def wanted(self, path: str) -> dict[str, str]:
        """Return the attributes that a variable of a new path gets; a path counts before a name."""
        name = paths.name(path)
        by_name = {key: text for variable, key, text in self.attrs if variable == name}
        return by_name | {key: text for variable, key, text in self.attrs if variable == path}


def recorded(stored: object) -> tuple[FileEdit, str]:
    """Return what a snapshot says was set in all files, and the function that set more."""
    found = stored if isinstance(stored, dict) else {}
    attrs = tuple((str(a), str(b), str(c)) for a, b, c in found.get("attrs") or ())
    return FileEdit(attrs=attrs), str(found.get("preprocess") or "")


def _check_names(rename: Mapping[str, str]) -> None:
    for old, new in rename.items():
        given: tuple[object, ...] = (old, new)
        is_text = all(isinstance(each, str) for each in given)
        if not is_text or (why := problem(new)):
            raise InvalidInputError(
                f"not a valid new name: {why}" if is_text else "names must be strings",
                do="Correct rename (--rename OLD=NEW).",
                old=old,
                new=new,
            )
    new_names = list(rename.values())
    if twice := [name for name in new_names if new_names.count(name) > 1]:
        raise InvalidInputError(
            "rename would give several variables or dimensions the same name",
            do="To give dimensions of different files one name, use preprocess.",
            new=twice[0],
        )


def _json(variable: str, name: str, value: Any) -> str:
    # what means "missing" gets the type of its variable, unless numpy gave it one
    is_plain = name in (FILL, MISSING) and not isinstance(value, np.generic | np.ndarray)
    key = "" if is_plain else name
    plain = Attributes.of({key: value})
    dtype = None if is_plain else plain.dtypes.get(key)
    try:
        return json.dumps([plain.values[key], dtype], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "not a valid value for an attribute",
            do="Correct the value.",
            variable=variable,
            attribute=name,
        ) from error


def facts_of_file(facts: CatalogFacts, file: int, rows: NDArray[np.integer]) -> FileFacts:
    """Return what a function for ``preprocess`` gets of a file; ``rows`` are its arrays."""
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
