"""Read the arguments that change files before combining: ``rename``, ``attrs``, ``preprocess``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model.json import JSON
from icevirt.planning.combine.options import CombineSpec, Preprocess
from icevirt.planning.edits.checked_names import refuse_unknown_edits
from icevirt.planning.edits.file_edits import (
    FileChanges,
    FileEdit,
    FileFacts,
    LabelEdits,
    facts_of_file,
)
from icevirt.planning.edits.renames import apply_edits
from icevirt.remedy_notation import write_code, write_remedy

BY_PREPROCESS = "preprocess"
"""Labels that the function gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Requested changes: a function for each file first, then the same for all files."""

    everywhere: FileEdit
    function: Callable[[FileFacts], FileChanges | None] | None
    name: str  # of the function

    @classmethod
    def of(
        cls,
        rename: Mapping[str, str] | None,
        attrs: Mapping[str, Mapping[str, Any]] | None,
        preprocess: Preprocess,
    ) -> Edits:
        """Read the options of these names.

        Raises:
            InvalidInputError: There is no such function.
        """
        function = _import(preprocess) if isinstance(preprocess, str) else preprocess
        return cls(
            everywhere=FileEdit.of(FileChanges(rename=rename or {}, attrs=attrs or {})),
            function=function,
            name=preprocess if isinstance(preprocess, str) else _name_of(function),
        )

    def choose_for_scan(self, dimensions: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return the renaming that a scan must know: of dimensions that files are placed along."""
        return tuple(pair for pair in self.everywhere.rename if pair[1] in dimensions)

    def add_names_before(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names of variables with those that they have in the files."""
        wanted = tuple(names)
        return (*wanted, *(old for old, new in self.everywhere.rename if new in wanted))

    def apply(self, facts: CatalogFacts, spec: CombineSpec) -> tuple[CatalogFacts, CombineSpec]:
        """Return the facts to combine, and the spec with the labels that the function gave.

        Raises:
            CombineError: Two variables of a file would get one name, or a file gives no label.
            InvalidInputError: No file has what is named, or the function returns something else.
        """
        labels: dict[str, list[str | int | float]] = {
            name: [] for name, given in spec.labels.items() if given == BY_PREPROCESS
        }
        edits, of_file = [FileEdit()], np.zeros(len(facts.files), np.int64)
        if self.function is not None:
            edits, of_file = _preprocess(facts, self.function, spec, labels)
            refuse_unknown_edits(facts, edits, of_file, spec.labels, of_each=True)
            facts = apply_edits(facts, edits, of_file, option=BY_PREPROCESS)
        elif labels:
            raise InvalidInputError(
                "labels='preprocess' needs a preprocess function",
                do=write_remedy(
                    "Pass ",
                    write_code('combine_options={"preprocess": function}', "--preprocess"),
                    " too.",
                ),
                dimensions=list(labels),
            )
        everywhere, all_alike = [self.everywhere], np.zeros(len(facts.files), np.int64)
        refuse_unknown_edits(facts, everywhere, all_alike, spec.labels, of_each=False)
        facts = apply_edits(facts, everywhere, all_alike)
        if not spec.labels:
            return facts, spec
        label_edits = LabelEdits(edits=tuple(edits), of_file=of_file, everywhere=self.everywhere)
        return facts, replace(spec, labels={**spec.labels, **labels}, label_edits=label_edits)

    @property
    def choice(self) -> JSON:
        """What a snapshot records of it; None where there is nothing to record."""
        chosen: dict[str, JSON] = {
            "rename": dict(self.everywhere.rename),
            "attrs": [list(each) for each in self.everywhere.attrs],
            "preprocess": self.name,
        }
        return {name: value for name, value in chosen.items() if value} or None


def _preprocess(
    facts: CatalogFacts,
    function: Callable[[FileFacts], FileChanges | None],
    spec: CombineSpec,
    labels: Mapping[str, list[str | int | float]],
) -> tuple[list[FileEdit], NDArray[np.int64]]:
    """Return the edits that a function says, and which of them each file gets."""
    arrays = facts.arrays
    order = np.argsort(arrays.file, kind="stable")
    ends = np.searchsorted(arrays.file[order], np.arange(len(facts.files)), side="right")
    number: dict[FileEdit, int] = {}
    of_file = np.zeros(len(facts.files), np.int64)
    for file, rows in enumerate(np.split(order, ends[:-1])):
        described = facts_of_file(facts, file, rows)
        try:
            changes = function(described)
        except Exception as error:
            raise InvalidInputError(
                "preprocess failed",
                do="Correct the function.",
                file=described.url,
                cause=f"{type(error).__name__}: {error}",
            ) from error
        edit = FileEdit.of(changes)
        _refuse_unscanned(edit, (*spec.concat_dim, *spec.pad), described.url)
        _add_labels({} if changes is None else changes.labels, labels, described.url)
        of_file[file] = number.setdefault(edit, len(number))
    return list(number), of_file


def _add_labels(
    given: Mapping[str, str | int | float],
    labels: Mapping[str, list[str | int | float]],
    url: str,
) -> None:
    """Note the labels of one more file."""
    for name in given:
        if name not in labels:
            raise InvalidInputError(
                f"preprocess returns labels along {name!r}, but its labels are not set to "
                "'preprocess'",
                do=write_remedy(
                    "Name the dimension in concat_dim, and pass ",
                    write_code(
                        f'combine_options={{"labels": {{"{name}": "{BY_PREPROCESS}"}}}}',
                        f"--labels {name}={BY_PREPROCESS}",
                    ),
                    ".",
                ),
                file=url,
            )
    for name, found in labels.items():
        if name not in given:
            raise CombineError(
                f"preprocess returns no label along {name!r} for a file",
                do="Correct the function, or leave the file out.",
                file=url,
            )
        found.append(given[name])


def _refuse_unscanned(edit: FileEdit, dimensions: Sequence[str], url: str) -> None:
    """Refuse names that a scan has to know, because it reads the coordinates that have them."""
    for old, new in edit.rename:
        if new in dimensions:
            raise InvalidInputError(
                f"preprocess gives a dimension the name {new!r}, along which files are placed or"
                " padded",
                do=write_remedy(
                    "Pass ",
                    write_code(
                        f'combine_options={{"rename": {{"{old}": "{new}"}}}}',
                        f"--rename {old}={new}",
                    ),
                    ", which scans know of; files that have no such name stay as they are.",
                ),
                file=url,
            )


def _import(name: str) -> Callable[[FileFacts], FileChanges | None]:
    module, _, path = name.partition(":")
    try:
        found: Callable[[FileFacts], FileChanges | None]
        found = attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            "the preprocess function cannot be imported",
            do="Install its module, or add its directory to PYTHONPATH.",
            function=name,
            cause=type(error).__name__,
        ) from error
    return found


def _name_of(function: object) -> str:
    if function is None:
        return ""
    home = getattr(function, "__module__", "?")
    return f"{home}:{getattr(function, '__qualname__', type(function).__name__)}"
