"""Propose one name for what files name in two ways: in upper case, or with a number behind it.

Ferret numbers axes of one kind (``T1``, ``T2``), and writes names in upper case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, distinct, variables_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import Fix
from icevirt.model import paths
from icevirt.planning.edits.renames import files_with
from icevirt.planning.remedies import fix, list_names
from icevirt.planning.times.units import units_of

_NUMBER = re.compile(r"_?[0-9]+$")
_PHONY = "phony_dim_"
_NAMED = 3


def rename_fixes(facts: CatalogFacts, concat_dim: Sequence[str]) -> list[Fix]:
    """Return the fix that gives one name to variables and dimensions that files spell unlike."""
    known = _Names(facts)
    rename = dict(sorted(known.list_renames()))
    if not rename:
        return []
    times = [rename.get(name, name) for name in known.times if name in rename]
    along = dict.fromkeys((*(rename.get(name, name) for name in concat_dim), *times))
    texts = [f"{old} is {new}" for old, new in rename.items()]
    return [fix(f"{list_names(texts, _NAMED)} in all files", concat_dim=[*along], rename=rename)]


class _Names:
    """Names of variables and dimensions, and the files that have them."""

    def __init__(self, facts: CatalogFacts) -> None:
        self._facts, arrays = facts, facts.arrays
        self._own = [ArraySchema.loads(each).dimension_names for each in arrays.schema.values]
        self.times = dict.fromkeys(
            paths.name(path)
            for path, schema in variables_of(facts)
            if schema.dimension_names == (paths.name(path),)
            and units_of(schema.attributes.values) is not None
        )
        self._files: dict[str, NDArray[np.int64]] = {}

    def list_renames(self) -> Iterator[tuple[str, str]]:
        """Yield old names and new ones."""
        for names in self._places():
            if len(names) < 2 or not self._are_apart(names):
                continue
            best = self._choose(names)
            yield from ((each, best) for each in names if each != best)

    def _places(self) -> Iterator[list[str]]:
        """Yield the names of one thing: of a variable, and of each of its axes."""
        arrays = self._facts.arrays
        found: dict[str, dict[tuple[str, tuple[str | None, ...]], None]] = {}
        pairs = distinct((arrays.path, arrays.schema))
        for path, schema in zip(*(each.tolist() for each in pairs), strict=True):
            name = arrays.path.values[path]
            found.setdefault(name.lower(), {})[paths.name(name), self._own[schema]] = None
        for held in found.values():
            yield [*dict.fromkeys(name for name, _ in held)]
            for axis in range(max(len(names) for _, names in held)):
                own = [names[axis] for _, names in held if axis < len(names)]
                if None not in own and len({*map(_fold, own)}) == 1:
                    yield [*dict.fromkeys(map(str, own))]

    def _are_apart(self, names: Sequence[str]) -> bool:
        """Say whether no file has two of some names."""
        files = np.concatenate([self._files_of(each) for each in names])
        return len(np.unique(files)) == len(files) and not names[0].startswith(_PHONY)

    def _files_of(self, name: str) -> NDArray[np.int64]:
        if name not in self._files:
            self._files[name] = files_with(self._facts, name)
        return self._files[name]

    def _choose(self, names: Sequence[str]) -> str:
        """Return the name that most files have; of numbered ones the name without its number."""
        base = _NUMBER.sub("", names[0])
        if base and len({each.lower() for each in names}) > 1 and not len(self._files_of(base)):
            return base
        return max(names, key=lambda each: len(self._files_of(each)))


def _fold(name: str | None) -> str:
    return _NUMBER.sub("", name or "").lower() or str(name)
