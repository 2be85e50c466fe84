"""Convert times of files with different units, reference dates or data types to one of each.

Archives often write "days since" the beginning of each file, in a type that each file chooses. Such
times become one variable when xarray decodes every value to the same instant as from its file.

Afterwards the schemas of all files name the same units and type, and the labels that order files
use them. Each affected array has a `Recoding` that the write stage applies. Only stored arrays take
part: arrays with a concatenated dimension whose values the scan read. Bounds follow their
coordinate (CF 7.1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Coded
from icevirt.archive.joining import SMALL, itemsize_of
from icevirt.archive.schema import DURATION, MEASURES, ArraySchema, Recoding
from icevirt.errors import CombineError, Fix
from icevirt.model.attributes import Attributes
from icevirt.model.json import JSON
from icevirt.planning.remedies import fix, scan_fix
from icevirt.planning.times.instants import InexactError, recode
from icevirt.planning.times.targets import (
    Declarations,
    DeclaredTimes,
    LabelGroup,
    TimeTarget,
    bounds_target,
    group_labels,
    is_coordinate,
    spread,
    target_of,
    without_units,
)
from icevirt.planning.times.units import units_of_file

_BYTES: tuple[JSON, ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)
_MISSING = ("_FillValue", "missing_value")


def recode_times(
    facts: CatalogFacts, dimensions: Sequence[str]
) -> tuple[CatalogFacts, dict[str, Recoding]]:
    """Return the facts with equal units, and what the write stage does for each array, by path.

    Arrays that cannot be brought to one count stay as they are; the plan refuses them.

    Raises:
        CombineError: A time has no exact value in the dataset, or the bounds of a coordinate would
            have to be recoded and cannot be.
    """
    if not dimensions or len(facts.files) < 2:
        return facts, {}
    return _Pass(facts, dimensions).run()


class _Pass:
    """One look at all arrays."""

    def __init__(self, facts: CatalogFacts, dimensions: Sequence[str]) -> None:
        self._facts = facts
        self._declarations = Declarations(facts, dimensions)
        self._texts = {text: at for at, text in enumerate(facts.arrays.schema.values)}
        self._codes: NDArray[np.int32] | None = None  # of schemas, where some are others
        self._labels = facts.arrays.labels
        self._done: dict[str, Recoding] = {}

    def run(self) -> tuple[CatalogFacts, dict[str, Recoding]]:
        found = self._declarations
        for path in found.paths:
            if path not in found.owners:
                self._recode(path)
        for path, owner in found.owners.items():
            self._recode_bounds(path, owner)
        if not self._done or self._codes is None:
            return self._facts, {}
        arrays = replace(
            self._facts.arrays,
            schema=Coded(self._codes, tuple(self._texts)).take(np.arange(len(self._codes))),
            labels=self._labels,
        )
        return replace(self._facts, arrays=arrays), self._done

    def _recode(self, path: str) -> None:
        declared = self._declarations.of(path) if self._declarations.differs(path) else None
        if declared is None:
            return
        groups = self._label_groups(path, declared)
        target = target_of(declared, None if groups is None else [e.times for e in groups])
        if target is not None:
            self._keep(path, declared, target, names_units=True)
            self._relabel(path, groups or [], target)

    def _recode_bounds(self, path: str, owner: str) -> None:
        """Recode bounds in the units of their coordinate, unless they count for themselves."""
        coordinate, differs = self._done.get(owner), self._declarations.differs(path)
        if coordinate is None and not differs:
            return
        declared, has_units = self._declarations.of(path), self._declarations.has_units(path)
        target: TimeTarget | None = None
        if declared is None:
            if coordinate is not None and not has_units:
                self._refuse_referenced(path, owner, coordinate)
            return
        if (
            coordinate is not None
            and declared.counts.equal(
                coordinate.counts.apply(lambda column: column[declared.files])
            ).all()
        ):  # they count in each file what their coordinate counts there
            target = bounds_target(coordinate, declared)
        elif differs or not has_units:
            target = target_of(declared, None)
        if target is not None:
            self._keep(path, declared, target, names_units=has_units)

    def _refuse_referenced(self, path: str, owner: str, coordinate: Recoding) -> None:
        """Refuse bounds that are references and would count something else."""
        files = self._facts.arrays.file[self._declarations.rows(path)]
        counts = coordinate.counts.apply(lambda column: column[files])
        other = ~counts.equal(coordinate.target)
        if not other.any():
            return
        one = int(files[int(np.argmax(other))])
        lacks = [
            name
            for name in self._declarations.concatenated(owner)
            if name not in self._declarations.concatenated(path)
        ]
        why = f"do not have the dimension {lacks[0]!r}" if lacks else "are referenced, not stored"
        raise CombineError(
            f"the times of {owner} have different reference dates, and its bounds {path} "
            f"cannot be recoded because they {why}",
            fixes=[
                *(self._store_bounds(path, lacks) if self._is_small(path) else []),
                scan_fix("the dataset has no bounds", drop_variables=[path]),
            ],
            variable=path,
            file=self._facts.files.url[one],
            units=units_of_file(coordinate, one).text,
        )

    def _store_bounds(self, path: str, lacks: Sequence[str]) -> list[Fix]:
        """Return what lets bounds be stored, with the dimensions that they lack."""
        if not lacks:
            price = "stores the bounds in the repository"
            return [scan_fix(price, variable_policy={path: "inline"})]
        price = f"{path} gets the dimension {lacks[0]!r}: a value for each step"
        given = {name: ["all", path] for name in lacks}
        is_one = len(self._declarations.dimensions) == 1
        return [fix(price, data_vars=given[lacks[0]] if is_one else given)]

    def _is_small(self, path: str) -> bool:
        """Say whether every file's values can be read as one chunk."""
        arrays = self._facts.arrays
        rows = self._declarations.rows(path)
        size = itemsize_of(ArraySchema.loads(arrays.schema[int(rows[0])]).data_type)
        shapes = {arrays.shape.values[code] for code in np.unique(arrays.shape.codes[rows])}
        return all(math.prod(json.loads(text)) * size <= SMALL for text in shapes)

    def _keep(
        self, path: str, declared: DeclaredTimes, target: TimeTarget, *, names_units: bool
    ) -> None:
        files, size = declared.files, len(self._facts.files)
        self._done[path] = Recoding(
            target=target.units,
            data_type=target.data_type,
            fill=target.fill,
            counts=declared.counts.apply(lambda column: spread(column, files, size)),
            kind=spread(declared.kind, files, size),
            kinds=declared.kinds,
        )
        self._rename(path, declared, target, names_units=names_units)

    # -- made alike --------------------------------------------------------------------------

    def _rename(
        self, path: str, declared: DeclaredTimes, target: TimeTarget, *, names_units: bool
    ) -> None:
        rows = self._declarations.rows(path)
        codes = self._facts.arrays.schema.codes[rows]
        values = self._facts.arrays.schema.values
        first = ArraySchema.loads(values[int(codes[0])]).attributes
        used, number = np.unique(codes, return_inverse=True)
        new: list[int] = []
        known: dict[str, int] = {}  # by text without units
        for code in used.tolist():
            rest, units = without_units(values[code])
            if units is not None and rest in known:
                new.append(known[rest])
                continue
            schema = ArraySchema.loads(values[code])
            attributes = _counting_as(schema.attributes, target, first, names_units=names_units)
            if not declared.is_alike:
                attributes = _with_missing(attributes, target)
                schema = replace(
                    schema,
                    data_type=target.data_type,
                    codecs=_BYTES,
                    fill_value="NaN" if target.fill != target.fill else target.fill or 0,
                )
            text = replace(schema, attributes=attributes).dumps()
            new.append(self._texts.setdefault(text, len(self._texts)))
            if "units" in schema.attributes.values and names_units:
                known[rest] = new[-1]
        if self._codes is None:
            self._codes = self._facts.arrays.schema.codes.astype(np.int32)
        self._codes[rows] = np.array(new, np.int32)[number.reshape(-1)]

    def _label_groups(self, path: str, declared: DeclaredTimes) -> list[LabelGroup] | None:
        """Return the labels of a coordinate; None where a plan does not know all of them."""
        rows, arrays = self._declarations.rows(path), self._facts.arrays
        places = arrays.labels.places(rows)
        schema = ArraySchema.loads(arrays.schema[int(rows[0])])
        if not is_coordinate(schema, path) or (places < 0).any():
            return None
        try:
            return group_labels(declared, arrays.labels, places)
        except InexactError as error:
            raise _inexact(path, self._facts.url_of(rows[error.at]), error) from error

    def _relabel(self, path: str, groups: Sequence[LabelGroup], target: TimeTarget) -> None:
        rows = self._declarations.rows(path)
        places = self._facts.arrays.labels.places(rows)
        for each in groups:
            new, lost = each.convert(target)
            if lost.any():
                at = int(np.argmax(lost))
                file = int(self._facts.arrays.file[rows[each.file_at(at)]])
                source = units_of_file(self._done[path], file).text
                error = InexactError(
                    f"{each.raw[at]} {source} has no exact value in {target.units.text}"
                )
                raise _inexact(path, self._facts.files.url[file], error)
            self._labels = self._labels.with_values(places[each.mine], new, each.starts)


def recode_values(
    values: NDArray[Any], recoding: Recoding, file: int, *, path: str, url: str
) -> NDArray[Any]:
    """Return the times of one file in the units and the type of the dataset.

    Raises:
        CombineError: One has no exact value there.
    """
    try:
        return recode(
            values,
            units_of_file(recoding, file),
            recoding.target,
            dtype=np.dtype(recoding.data_type),
            missing=recoding.storage(file).missing,
            fill=recoding.fill,
        )
    except InexactError as error:
        raise _inexact(path, url, error) from error


def _inexact(path: str, url: str, error: InexactError) -> CombineError:
    return CombineError(
        f"a time of {path} cannot be converted to the units of the other files: {error}",
        fixes=[scan_fix(f"the dataset has no {path}", drop_variables=[path])],
        do="You can also build the files of each reference date into a group of its own.",
        variable=path,
        file=url,
    )


def counting_as(attributes: Attributes, target: TimeTarget, first: Attributes) -> Attributes:
    """Return the attributes of times that are converted.

    Args:
        attributes: As they were.
        target: What the times count, in which type.
        first: Of the first file, which spells the calendar.
    """
    made = _counting_as(attributes, target, first, names_units=True)
    return _with_missing(made, target)


def _counting_as(
    attributes: Attributes, target: TimeTarget, first: Attributes, *, names_units: bool
) -> Attributes:
    """Return attributes with other units, and with the calendar as the first file spells it."""
    said = ("calendar", "dtype") if target.units.calendar == DURATION else ("calendar",)
    values = {name: value for name, value in attributes.values.items() if name not in said}
    if names_units:
        values |= target.units.attributes
    if "calendar" in first.values:
        values["calendar"] = first.values["calendar"]
    return replace(attributes, values=values)


def _with_missing(attributes: Attributes, target: TimeTarget) -> Attributes:
    """Return attributes that say which number means "no time" in the dataset."""
    kept = attributes.without(*_MISSING)
    if target.fill is None:
        return kept
    return kept | Attributes.of({"_FillValue": np.dtype(target.data_type).type(target.fill)})


def describe_recodings(recodings: Mapping[str, Recoding]) -> Iterable[str]:
    """Yield a line for each array that is recoded."""
    for path, recoding in recodings.items():
        counts = recoding.counts
        columns = np.stack([counts.step, counts.origin, counts.nanosecond])
        found = np.unique(columns[:, counts.step > 0], axis=1).shape[1]
        target = recoding.target
        if found > 1 and target.calendar.startswith(MEASURES):
            yield f"{path}: {found} units converted to {target.text!r} ({recoding.data_type})"
        elif found > 1:
            yield (
                f"{path}: {found} time units converted to {target.text!r}"
                f" ({recoding.data_type}), every value exactly"
            )
