"""Set attributes of coordinates that are made from labels and that no file holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import by_first_appearance
from icevirt.archive.schema import DECODING
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model.attributes import Attributes
from icevirt.model.json import JSON
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.combine.combine_attrs import CombineAttrs, combine_attributes
from icevirt.planning.edits.corrections import statement
from icevirt.planning.edits.file_edits import FileEdit
from icevirt.planning.edits.renames import with_attributes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelEdits:
    """What was said of the attributes of labels: by a function of each file, then of all alike."""

    edits: tuple[FileEdit, ...]
    of_file: NDArray[np.int64]  # (files,) which of the edits each file has
    everywhere: FileEdit

    def take(self, rows: NDArray[np.integer]) -> LabelEdits:
        """Return those of some files, in the order given."""
        return replace(self, of_file=self.of_file[rows])

    def applied(
        self, dimension: NewDimension, rows: NDArray[np.integer], policy: CombineAttrs
    ) -> NewDimension:
        """Return a dimension with its attributes; ``rows`` are the files in their order.

        Raises:
            CombineError: Files say different things of what the labels mean.
            InvalidInputError: The labels come from a variable that says something else of them.
        """
        path = f"/{dimension.name}"
        kind = "" if dimension.values is None else dimension.values.dtype.name
        used = by_first_appearance(self.of_file[rows], len(self.edits)).tolist()
        found = [
            self._of_edits(path, dimension.attributes, (self.edits[number], self.everywhere), kind)
            for number in used
        ]
        told = [{name: statement(each, name) for name in DECODING} for each in found]
        if any(each != told[0] for each in told):
            raise CombineError(
                f"preprocess sets different attributes for the labels of {dimension.name!r}",
                do=f"Set the same {', '.join(_unlike(told))} for all files.",
                dimension=dimension.name,
            )
        attributes = combine_attributes(found, policy, path=path)
        return replace(dimension, attributes=attributes)

    def _of_edits(
        self, path: str, attributes: Attributes, edits: Sequence[FileEdit], kind: JSON
    ) -> Attributes:
        made = attributes
        for edit in edits:
            made = with_attributes(path, made, edit.wanted(path), kind)
        for name in DECODING:
            if name in attributes.values and statement(made, name) != statement(attributes, name):
                raise InvalidInputError(
                    f"the labels {path} have the {name} of the variable that they come from",
                    do="Correct that variable in attrs instead.",
                    variable=path,
                    attribute=name,
                )
        return made


def _unlike(told: Sequence[dict[str, object]]) -> list[str]:
    return [name for name in told[0] if any(each[name] != told[0][name] for each in told)]
