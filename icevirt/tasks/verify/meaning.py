"""Compare what values mean: as the dataset packs them and counts times, within its tolerance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from icevirt.access.store.arrays import open_array
from icevirt.access.xarray.attributes import shown
from icevirt.archive.scanned import ScannedArray
from icevirt.model import paths
from icevirt.model.attributes import Attributes, recorded_replacements
from icevirt.model.enumerations import members_of
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode
from icevirt.planning.combine.cf_packing import decoded, packing_in, packing_of, same_packing
from icevirt.planning.combine.hints import covered_by
from icevirt.planning.combine.renumbering import NoMemberError, renumbered
from icevirt.planning.combine.tolerance import difference_of
from icevirt.planning.edits.corrections import COUNTING
from icevirt.planning.edits.renames import with_attributes
from icevirt.planning.equality import same_values
from icevirt.planning.times.instants import InexactError, recoded
from icevirt.planning.times.units import bounds_of, counted_units, counting_array, missing_of
from icevirt.repo.session import Session
from icevirt.tasks.verify.matching import SourceVariables
from icevirt.tasks.verify.references import VerifyTask


class Meaning:
    """What the values of one file mean in the dataset."""

    def __init__(self, session: Session, variables: SourceVariables, task: VerifyTask) -> None:
        self._session = session
        self._variables = variables
        self._tolerance = task.tolerance
        self._edit = task.edit

    def is_same(
        self, mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], path: str, variable: str
    ) -> bool | None:
        """Compare what values mean, where the dataset packs them in another way than the file."""
        node = self._session.find(path)
        own = next((each for each in self._variables.arrays if each.path == variable), None)
        if not isinstance(node, ArrayNode) or own is None:
            return None
        packing = self._packing(path, mine.dtype)
        other = packing_of(self._meant(own))
        if mine.dtype == theirs.dtype and same_packing(packing, other):
            return same_values(mine, theirs)
        return same_values(decoded(mine, packing), decoded(theirs, other))

    def is_near(
        self, mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], variable: str, held: Any
    ) -> bool:
        """Say whether no value of an array differs by more than the tolerance of the build."""
        limits = covered_by(
            self._tolerance,
            (
                (self._variables.called(each.path), each.dimension_names, each.attributes.values)
                for each in self._variables.arrays
            ),
        )
        limit = limits.get(self._variables.called(variable))
        if limit is None or not mine.shape == theirs.shape == held.shape:
            return False
        own = next(each for each in self._variables.arrays if each.path == variable)
        one = decoded(mine, self._packing(paths.canonical(held.path), mine.dtype))
        other = decoded(theirs, packing_of(self._meant(own)))
        numbers = one.dtype.kind in "iuf" and one.dtype == other.dtype
        return numbers and difference_of(one, other) <= limit

    def recoded(
        self, theirs: np.ndarray[Any, Any], variable: str, own_path: str
    ) -> np.ndarray[Any, Any]:
        """Count times and name members as the dataset does, where the file does it otherwise."""
        theirs = self._by_name(theirs, variable, own_path)
        arrays, root = (
            self._variables.arrays,
            own_path.removesuffix(self._variables.called(variable)),
        )
        coordinate = counting_array(arrays, variable)
        path = "" if coordinate is None else root + self._variables.called(coordinate.path)
        if coordinate is None or self._session.find(path) is None:
            return theirs
        held = open_array(self._session, path)
        meant = self._meant(coordinate).values
        calendar = {name: meant[name] for name in ("calendar",) if name in meant}
        source, target = counted_units(meant), counted_units({**calendar, **dict(held.attrs)})
        if source is None or target is None:
            return theirs
        own = next(each for each in arrays if each.path == variable)
        dtype = np.dtype(open_array(self._session, own_path).dtype)
        fill = self._packing(own_path, dtype).get("_FillValue")
        missing = missing_of(own.attributes)
        try:
            return recoded(theirs, source, target, dtype=dtype, missing=missing, fill=fill)
        except InexactError:
            return theirs  # and so they differ

    def _by_name(
        self, theirs: np.ndarray[Any, Any], variable: str, own_path: str
    ) -> np.ndarray[Any, Any]:
        own = next((each for each in self._variables.arrays if each.path == variable), None)
        if own is None or members_of(own.attributes) is None:
            return theirs
        document = document_of(self._session.array(own_path))
        held = Attributes(replaced=recorded_replacements(document))
        try:
            return renumbered(theirs, own.attributes, held)
        except NoMemberError:
            return theirs  # and so they differ

    def _meant(self, array: ScannedArray) -> Attributes:
        """Return what the file says of a variable, as the build corrected it."""
        given, wanted = array.attributes, self._edit.wanted(self._variables.called(array.path))
        for other in self._variables.arrays:
            if array.path in bounds_of(other.path, other.attributes.values):  # which inherit
                inherited = self._edit.wanted(self._variables.called(other.path))
                own = (name for name in COUNTING if name in given.values)
                wanted = {name: inherited[name] for name in own if name in inherited} | wanted
                kept = with_attributes(other.path, other.attributes, inherited, other.data_type)
                if "calendar" in kept.values:
                    calendar = kept.values["calendar"]
                    given = replace(given, values={"calendar": calendar, **given.values})
        return with_attributes(array.path, given, wanted, array.data_type)

    def _packing(self, path: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return the attributes by which an array of the repository is packed."""
        return packing_in(shown(document_of(self._session.array(path)), dtype))
