"""Place files along dimensions that no file has, such as scenario or member.

Labels come from the user, or from the files: their names, a global attribute, or a variable with
one value. With ``combine="nested"`` the user's nested lists place the files, outermost list first,
and new dimensions need no labels. Files with one step along a dimension that they have can get
other labels too: archives hold files that all say ``time = 0``, and their names know better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.axis import NOWHERE, NewDimension
from icevirt.planning.axes.coordinates import decode
from icevirt.planning.axes.dates import (
    Dates,
    calendar_of,
    count_labels,
    dates_of_list,
    is_date,
    plain_date,
)
from icevirt.planning.axes.dimension_scopes import lengths_along
from icevirt.planning.axes.file_labels import Labels, labels_of_files, refuse_unlabelled
from icevirt.planning.axes.placement import files_along
from icevirt.planning.remedies import choose, scan_fix
from icevirt.planning.times.instants import InexactError
from icevirt.planning.times.targets import declare, labels_in_one, storage_of
from icevirt.planning.times.units import bounds_of, missing_of, units_to_count, why_unread
from icevirt.remedy_notation import write_option, write_remedy

"""Of each file in the order given, dates too; or a pattern of names, like
``{member}_{time:%Y%m}.nc``; or ``regex:PATTERN`` with one group, matched in the file's URL; or
``attribute:NAME`` of the file's root group; or ``variable:NAME`` with one value."""
_VARIABLE = "variable:"
_KINDS = {"i": np.int64, "f": np.float64, "U": str}
_NOT_OF_LABELS = ("_FillValue", "missing_value", "coordinates", "bounds", "climatology")


def new_dimension(
    facts: CatalogFacts, name: str, labels: Labels, said: Mapping[str, Any] | None = None
) -> NewDimension:
    """Return a dimension with the labels of the files.

    Labels that are listed keep their order; those that files tell are sorted.

    Args:
        facts: Of the files.
        name: Of the dimension.
        labels: As given.
        said: Attributes that the user sets; the calendar is that of dates in texts, and times are
            counted in the units.

    Raises:
        InvalidInputError: There are too few or too many, or the pattern is not valid.
        CombineError: A file does not tell its label, or the files have the dimension already.
    """
    variable = variable_of(labels)
    refuse_known(facts, name, variable)
    if variable is not None:
        return _by_variable(facts, name, variable)
    return label_files(facts, name, labels, said or {})


def label_files(
    facts: CatalogFacts, name: str, labels: Labels, said: Mapping[str, Any]
) -> NewDimension:
    """Return a dimension with labels that are listed, or that names or attributes of files tell.

    Raises:
        InvalidInputError: There are too few or too many, or the pattern is not valid.
        CombineError: A file does not tell its label.
    """
    calendar = calendar_of(said)
    if isinstance(labels, str):
        found = labels_of_files(facts, labels, name, calendar=calendar)
    elif len(labels) != len(facts.files):
        raise InvalidInputError(
            f"{len(labels)} labels for {len(facts.files)} files",
            do="Pass one label per file, in the order of the files, without the bad files that "
            "are left out.",
            labels=list(labels)[:10],
        )
    else:
        found = array_of_labels(list(labels))
    values, attributes = count_labels(found, said)
    distinct, first, cell = np.unique(
        values, return_index=True, return_inverse=True, equal_nan=False
    )
    if not isinstance(labels, str):  # labels that are listed keep their order
        order = np.argsort(first)
        distinct, cell = distinct[order], np.argsort(order)[cell]
    return NewDimension(
        name=name,
        values=distinct,
        count=len(distinct),
        cell=cell.astype(np.int64),
        attributes=attributes,
    )


def variable_of(labels: Labels) -> str | None:
    """Return the name of the variable of the files whose values are the labels, if there is one."""
    if isinstance(labels, str) and labels.startswith(_VARIABLE):
        return labels.removeprefix(_VARIABLE)
    return None


def array_of_labels(values: Sequence[Any]) -> NDArray[Any] | Dates:
    """Return labels as texts, whole numbers, numbers or dates.

    Raises:
        InvalidInputError: They are of several kinds.
    """
    if values and all(map(is_date, values)):
        return dates_of_list([plain_date(each) for each in values])
    made = np.array(values)
    if made.dtype.kind not in _KINDS or made.ndim != 1:
        raise InvalidInputError(
            "labels must be all strings, all integers, all numbers or all dates",
            do="Correct them.",
            labels=list(values)[:10],
        )
    return made.astype(_KINDS[made.dtype.kind])


def refuse_known(facts: CatalogFacts, name: str, variable: str | None) -> None:
    """Refuse a name that dimensions or variables have, but for the variable of the labels."""
    schemas = (ArraySchema.loads(text) for text in facts.arrays.schema.values)
    if any(name in schema.dimension_names for schema in schemas):
        raise CombineError(
            "labels need a new dimension, but the files already have this one",
            do=write_remedy(
                "Name a new dimension with ", write_option("concat_dim"), ", or omit its labels."
            ),
            concat_dim=name,
        )
    taken = [
        path
        for path in facts.arrays.path.values
        if paths.name(path) == name and variable not in (path, name)
    ]
    if taken:
        raise CombineError(
            "labels make a new coordinate, but the files already have a variable of its name",
            fixes=[scan_fix(f"{taken[0]} is left out", drop_variables=taken)],
            do="You can also name another dimension, or rename the variable.",
            concat_dim=name,
            variable=taken[0],
        )


def places_of_nest(
    facts: CatalogFacts, dimensions: Sequence[str], nest: Mapping[str, tuple[int, ...]] | None
) -> NDArray[np.int64]:
    """Return the place of each file along each dimension, shape (files, dimensions).

    Without a nest, which one dimension does not need, files lie in the order given.
    """
    files = len(facts.files)
    places = range(files) if nest is None else [nest[url] for url in facts.files.url]
    return np.array(places, np.int64).reshape(files, 1 if nest is None else len(dimensions))


def dimension_of_nest(
    facts: CatalogFacts,
    name: str,
    place: NDArray[np.int64],
    labels: Labels | None,
    said: Mapping[str, Any] | None = None,
) -> NewDimension:
    """Return a new dimension along which files lie where a person put them.

    Raises:
        InvalidInputError: The labels are not listed, one for each place.
        CombineError: The files have the dimension already.
    """
    count = int(place.max(initial=-1)) + 1
    values, attributes = None, Attributes()
    refuse_known(facts, name, None)
    if labels is not None:
        if isinstance(labels, str) or len(labels) != count:
            raise InvalidInputError(
                f"labels of nested files must be a list with one label for each of the {count} "
                f"positions along {name!r}",
                do=write_remedy(
                    "Correct them, or place files by their own labels with ",
                    choose(combine="by_coords"),
                    ".",
                ),
                labels=labels if isinstance(labels, str) else list(labels)[:10],
            )
        values, attributes = count_labels(array_of_labels(list(labels)), said or {})
    made = NewDimension(name=name, cell=place, count=count, values=values, attributes=attributes)
    return made.take(np.arange(len(facts.files)))


# -- by variable ---------------------------------------------------------------------------------


def _by_variable(facts: CatalogFacts, dimension: str, name: str) -> NewDimension:
    """Read labels from a variable with one value; times are brought to one count."""
    path, rows = _rows_of(facts, dimension, name)
    arrays = facts.arrays
    held = [arrays.labels.at(place) for place in arrays.labels.places(rows).tolist()]
    for row, each in enumerate(held):
        if len(each) != 1:
            raise refuse_unlabelled(facts, row, dimension, f"{path} has {len(each)} values")
    schemas = {
        code: ArraySchema.loads(arrays.schema.values[code])
        for code in dict.fromkeys(arrays.schema.codes[rows].tolist())
    }
    try:
        raw, attributes = _count_alike(held, arrays.schema.codes[rows], schemas, path, dimension)
    except InexactError as error:
        raise CombineError(
            f"a time of {path} cannot be converted to the units of the other files: {error}",
            do="Pass a list of labels.",
            variable=path,
            file=facts.url_of(rows[error.at]),
        ) from error
    labels = decode(raw, attributes.values)
    _refuse_missing(facts, raw, attributes, path, dimension)
    _, first, cell = np.unique(labels, return_index=True, return_inverse=True)
    own = path == f"/{dimension}" and all(not each.dimension_names for each in schemas.values())
    return NewDimension(
        name=dimension,
        values=raw[first],
        count=len(first),
        cell=cell.astype(np.int64),
        attributes=attributes.without(*_NOT_OF_LABELS),
        variable=path if own else None,
        label_variable=path,
    )


def _rows_of(facts: CatalogFacts, dimension: str, name: str) -> tuple[str, NDArray[np.int64]]:
    """Return the path of a variable by its name, and its row for each file."""
    arrays = facts.arrays
    fitting = [path for path in arrays.path.values if name in (path, paths.name(path))]
    if not fitting:
        raise refuse_unlabelled(facts, 0, dimension, f"it has no variable {name!r}")
    path = min(fitting, key=lambda each: (each.count("/"), each))
    rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(path))
    row_of = np.full(len(facts.files), -1, np.int64)
    row_of[arrays.file[rows]] = rows
    for file in np.flatnonzero(arrays.labels.places(row_of) < 0)[:1].tolist():
        lacks = row_of[file] < 0
        why = f"it has no variable {name!r}" if lacks else f"{path} has more than one value"
        raise refuse_unlabelled(facts, file, dimension, why)
    return path, row_of


def _count_alike(
    held: Sequence[NDArray[Any]],
    codes: NDArray[np.integer],
    schemas: Mapping[int, ArraySchema],
    path: str,
    dimension: str,
) -> tuple[NDArray[Any], Attributes]:
    """Bring times of files that count from different dates, or in several types, to one count.

    Raises:
        InexactError: A time has no exact value in it; the row of its file.
    """
    first = next(iter(schemas.values())).attributes
    kinds = {each.dtype for each in held}
    is_typed = len(kinds) == 1 or all(each.kind == "U" for each in kinds)
    if is_typed and len({_meaning(each.attributes) for each in schemas.values()}) == 1:
        return np.concatenate(held), first
    counts = [units_to_count(each.attributes.values) for each in schemas.values()]
    known = [each for each in counts if each is not None]
    if len(known) < len(counts):
        raise _unlike_labels(path, dimension, kinds, schemas)
    storage = [(storage_of(each), missing_of(each.attributes)) for each in schemas.values()]
    order = np.argsort([*schemas])
    number = order[np.searchsorted(np.array([*schemas]), codes, sorter=order)]
    said = declare(known, storage, number, np.arange(len(codes)))
    raw, target = labels_in_one(said, held)
    if target is None:
        raise _unlike_labels(path, dimension, kinds, schemas)
    return raw, replace(first, values={**first.values, **target.units.attributes})


def _unlike_labels(
    path: str, dimension: str, kinds: Iterable[Any], schemas: Mapping[int, ArraySchema]
) -> CombineError:
    unread = (why_unread(each.attributes.values) for each in schemas.values())
    why = next((f": {each}" for each in unread if each), "")
    return CombineError(
        f"labels of {path} along {dimension!r} have different units, calendars or data types{why}",
        do="Leave files out, or pass a list of labels.",
        variable=path,
        units=sorted({str(each.attributes.values.get("units")) for each in schemas.values()}),
        data_types=sorted(map(str, kinds)),
    )


def _meaning(attributes: Attributes) -> tuple[Any, ...]:
    """Return what decides about the meaning of a label."""
    names = ("units", "calendar", "scale_factor", "add_offset", "_Unsigned")
    counting = tuple(repr(attributes.values.get(name)) for name in names)
    return (*counting, missing_of(attributes))


def _refuse_missing(
    facts: CatalogFacts, raw: NDArray[Any], attributes: Attributes, path: str, dimension: str
) -> None:
    gone = np.zeros(len(raw), np.bool_)
    if raw.dtype.kind in "iuf":
        gone = np.isin(raw, np.array(missing_of(attributes), np.float64)) | np.isnan(raw)
    if gone.any():
        raise refuse_unlabelled(facts, int(np.argmax(gone)), dimension, f"{path} is missing there")


def relabel(
    facts: CatalogFacts, name: str, labels: Labels, said: Mapping[str, Any]
) -> tuple[CatalogFacts, NewDimension]:
    """Return the facts without the coordinate of a dimension, and the labels in its place.

    Raises:
        CombineError: A file has more steps than its one label, its coordinate has bounds, or it
            does not tell its label.
        InvalidInputError: There are too few or too many labels, or a pattern is not valid.
    """
    if variable_of(labels) is not None:
        raise CombineError(
            "labels of a variable need a new dimension, but the files already have this one",
            do=write_remedy(
                "Name a new dimension with ",
                write_option("concat_dim"),
                ", or take the labels from the names of the files.",
            ),
            concat_dim=name,
        )
    steps = lengths_along(facts.arrays, name)
    several = np.flatnonzero(steps.astype(np.int64) > 1)
    if len(several):
        row = int(several[0])
        raise CombineError(
            f"a label stands for one step, but a file has {steps[row]} steps along {name!r}",
            do=write_remedy(
                "Name a new dimension with ", write_option("concat_dim"), ", or omit its labels."
            ),
            file=facts.url_of(row),
            concat_dim=name,
        )
    without = _without_coordinate(facts, name)
    made = label_files(facts, name, labels, said)
    there = files_along(without, name)
    used, cell = np.unique(made.cell[there], return_inverse=True)
    cells = np.full(len(facts.files), NOWHERE, np.int64)
    cells[there] = cell
    values = None if made.values is None else made.values[used]
    return without, replace(made, cell=cells, count=len(used), values=values, is_new=False)


def _without_coordinate(facts: CatalogFacts, name: str) -> CatalogFacts:
    """Leave out the coordinate that labels replace.

    Raises:
        CombineError: It has bounds, which labels have not.
    """
    arrays = facts.arrays
    gone = {
        code: path
        for code, path in enumerate(arrays.path.values)
        if paths.name(path) == name and paths.parent(path) == paths.ROOT
    }
    for code, path in gone.items():
        for schema in arrays.schema.find_used(
            arrays.schema.codes[arrays.path.codes == code]
        ).tolist():
            attributes = ArraySchema.loads(arrays.schema.values[schema]).attributes.values
            for bounds in bounds_of(path, attributes):
                if bounds in arrays.path.values:
                    raise CombineError(
                        f"labels would replace {path}, which has the bounds {bounds}",
                        fixes=[scan_fix(f"{bounds} is left out", drop_variables=[bounds])],
                        concat_dim=name,
                        variable=path,
                    )
    kept = ~np.isin(arrays.path.codes, [*gone])
    return replace(facts, arrays=arrays.take(np.flatnonzero(kept)))
