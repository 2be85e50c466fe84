"""Propose labels for files that have no dimension to follow one another along.

Names, global attributes and variables with one value are looked at; every proposal has been tried
on all files: each tells a label, and no two files of a label hold the same variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, variables_of
from icevirt.archive.roles import coordinates_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import Fix, IcevirtError
from icevirt.model import paths
from icevirt.planning.axes.axis import NewDimension
from icevirt.planning.axes.coordinates import coordinate_of
from icevirt.planning.axes.dates import Dates, iso_dates, show_labels
from icevirt.planning.axes.dimension_scopes import DimensionScopes, lengths_along
from icevirt.planning.axes.file_labels import NamePattern, readable_paths
from icevirt.planning.axes.name_proposals import date_patterns, field_patterns, relative
from icevirt.planning.axes.new_dimensions import new_dimension, relabel
from icevirt.planning.axes.placement import along, files_along
from icevirt.planning.remedies import EVERY, fix, list_names
from icevirt.planning.times.units import parse, units_of

_SAMPLE = 32  # names that are compared before all are
_TRIED = 40  # patterns
_NAMED = 3  # dimensions in a price
_MOSTLY = 0.75  # of the names
_ABOVE = 3  # folders above those that differ, which may hold a year
_NUMBER = re.compile(r"\{\w+:d\}")
_WHOLE_DATES = ("%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%m%d")  # that are a part of a name
_READ = 10_000  # files whose attributes are read for a proposal
_TIMES = ("time", "date", "file_time")
_NAMES_OF_TIME = ("t", "time", "times", "date", "datetime", "valid_time", "day", "month", "year")
_OF_MAKING = ("creat", "modif", "process", "produc", "issue", "history", "metadata", "publi", "end")
_OF_MEMBERS = ("realization", "realisation", "member", "ensemble", "variant")


def differing_dimensions(facts: CatalogFacts, tolerance: Mapping[str, float]) -> list[str]:
    """Return the dimensions whose coordinates differ between files, in the order of their names.

    They order files where nothing was inferred: a tolerance for all coordinates, or new names.
    """
    found = []
    for name in sorted(_names_of_dimensions(facts)):
        there = files_along(facts, name)
        held = coordinate_of(facts, name, there)
        if held is None or len(there) < 2:
            continue
        ends = held.values.take(np.array([0, len(there) - 1]))
        first, last = ends.flat[: ends.starts[1]], ends.flat[ends.starts[1] :]
        near = tolerance.get(name, tolerance.get(EVERY, 0.0))
        alike = len(first) == len(last) and (
            bool((first == last).all())
            if held.is_text
            else np.allclose(first, last, rtol=0, atol=near, equal_nan=True)
        )
        if not (alike and held.counts_alike):
            found.append(name)
    return found


def _names_of_dimensions(facts: CatalogFacts) -> set[str]:
    schemas = map(ArraySchema.loads, facts.arrays.schema.values)
    return {each for schema in schemas for each in schema.dimension_names if each}


def label_fixes(
    facts: CatalogFacts, name: str | None = None, tolerance: Mapping[str, float] | None = None
) -> list[Fix]:
    """Return ways to stack files along a new dimension, the best first.

    Args:
        facts: Of the files.
        name: Of the dimension, where the user said one.
        tolerance: By which coordinates may differ.
    """
    if len(facts.files) < 2:
        return []
    known = [] if name else differing_dimensions(facts, tolerance or {})
    along_known = [
        fix(f"files follow one another along {', '.join(known)}", concat_dim=known)
    ] * bool(known)
    is_enough = bool(known) and all(_lie_apart(facts, each) for each in known)
    return [*along_known, *([] if is_enough else _label_fixes(facts, name))]


def _lie_apart(facts: CatalogFacts, name: str) -> bool:
    """Say whether the labels of the last file all lie on one side of the first."""
    there = files_along(facts, name)
    held = coordinate_of(facts, name, there)
    if held is None or held.is_text:
        return True
    ends = held.values.take(np.array([0, len(there) - 1]))
    first, last = ends.flat[: ends.starts[1]], ends.flat[ends.starts[1] :]
    return bool(first.max() < last.min() or last.max() < first.min())


def _label_fixes(facts: CatalogFacts, name: str | None) -> list[Fix]:
    look = _Look(facts, name)
    if look.ragged:  # files of other lengths cannot be stacked
        return [] if name else [*look.following()]
    if not name and (merged := [*islice(look.merging(), 1)]):
        return merged
    found = [*islice(look.variables(), 1), *look.dates(), *islice(look.attributes(), 1)]
    found = found or [*islice(look.members(), 1)] or [*islice(look.telling(), 1)]
    return found if name else [*found, *look.keep_order()]


def odd_names(facts: CatalogFacts) -> str:
    """Return a sentence about files whose names lack the date of most others, else nothing."""
    return _Look(facts, None).odd() if len(facts.files) > 2 else ""


def labels_beside(
    facts: CatalogFacts, files: NDArray[np.int64], step: NDArray[np.int64]
) -> tuple[str, str, str] | None:
    """Return a new dimension along which files of equal steps lie beside each other, by names.

    Args:
        facts: Of all files.
        files: Rows of those that hold equal steps.
        step: (files,) Which.

    Returns:
        Its name, the pattern that tells dates of which each step has all, and these in words.
    """
    return next(_Look(facts, None).beside(files, step), None)


class _Look:
    """Files, and what is known of all of them."""

    def __init__(self, facts: CatalogFacts, name: str | None) -> None:
        self._facts, self._wanted = facts, name
        dimensions = _names_of_dimensions(facts)
        self._variables = [*variables_of(facts)]
        self._coordinates = {paths.name(path) for path in facts.arrays.path.values}
        self._taken = dimensions | self._coordinates
        self._one_step = {
            each for each in dimensions if int(lengths_along(facts.arrays, each).of_kind.max()) == 1
        }
        known = [each for each in sorted(self._one_step) if self._is_time(each)]
        free = [each for each in (*_TIMES, "times") if each not in self._taken]
        self._time = name or next(iter((*known, *free)))
        self._data = self._data_rows()
        often = np.bincount(facts.arrays.path.codes[self._data])
        self.ragged = sorted(each for each in dimensions if self._is_ragged(each))
        # files that hold other variables belong beside each other, and lack what others have
        self._is_alike = bool(np.isin(often, (0, len(facts.files))).all())
        self._rows = np.unique(np.linspace(0, len(facts.files) - 1, _SAMPLE).astype(np.int64))

    # -- what tells labels -------------------------------------------------------------------

    def variables(self) -> Iterator[Fix]:
        """Yield variables with one time in each file, those of the root before those of groups."""
        first = dict(reversed(self._variables))
        long = {path for path, schema in self._variables if schema.dimension_names}
        single = [path for path in self._facts.arrays.path.values if path not in long]
        in_root = [path for path in single if paths.parent(path) == paths.ROOT]
        for path in in_root or single:
            attributes, own = first[path].attributes.values, paths.name(path)
            dimension = self._wanted or own
            if parse(attributes.get("units"), attributes.get("calendar")) is None:
                continue
            if dimension == own or dimension not in self._taken:
                said = path if path not in in_root else own
                yield from self._try(dimension, f"variable:{said}", f"the variable {said}")

    def dates(self) -> Iterator[Fix]:
        """Yield patterns of names with a date, alone or beside something else."""
        if not self._is_free(self._time):
            return
        names, above = self._names(), self._names(_ABOVE)
        first = ""
        for ways, form in islice(date_patterns(above, self._time), _TRIED):
            pattern = next((each for each in ways if self._fits(self._time, each, above)), "")
            if not pattern or (first and not _is_rival(first, pattern, form)):
                continue
            more = field_patterns(names, form, self._time, self._taken)
            for way in (pattern, *islice(more, 0 if first or "/" in form else _TRIED)):
                if made := [*self._stack(way)]:
                    first = first or pattern
                    yield from made
                    break

    def beside(
        self, files: NDArray[np.int64], step: NDArray[np.int64]
    ) -> Iterator[tuple[str, str, str]]:
        """Yield patterns of dates, of which each step has all that there are."""
        if not self._is_free(self._time):
            return
        names, steps = self._names(), len(np.unique(step))
        fields = islice(field_patterns(names, None, "", self._taken), _TRIED)
        dates = (
            _NUMBER.sub(f"{{{self._time}:{form}}}", f)
            for f in fields
            if _NUMBER.search(f)
            for form in _WHOLE_DATES
        )
        for pattern in dates:
            if not self._fits(self._time, pattern, names):
                continue
            if (made := self._make(self._time, pattern)) is not None:
                pairs = np.unique(np.stack([step, made.cell[files]]), axis=1).shape[1]
                if made.count > 1 and pairs == len(files) == steps * made.count:
                    yield self._time, pattern, _span(made)

    def attributes(self) -> Iterator[Fix]:
        """Yield global attributes that are ISO dates."""
        if not self._is_free(self._time):
            return
        for name, texts in self._differing():
            is_made = any(word in name.lower() for word in _OF_MAKING)
            is_text = all(isinstance(each, str) for each in texts)
            if is_text and not is_made and iso_dates(texts).there.all():
                yield from self._try(self._time, f"attribute:{name}", f"the attribute {name}")

    def members(self) -> Iterator[Fix]:
        """Yield patterns of names with a part that differs."""
        if self._is_alike and (self._wanted is None or self._is_free(self._wanted)):
            for pattern in islice(field_patterns(self._names(), None, "", self._taken), _TRIED):
                found = NamePattern.of(pattern).names
                if self._wanted is None:
                    yield from self._stack(pattern)
                elif len(found) == 1:
                    again = pattern.replace(f"{{{found[0]}", f"{{{self._wanted}")
                    yield from self._stack(again)

    def telling(self) -> Iterator[Fix]:
        """Yield other global attributes that differ."""
        for name, texts in self._differing():
            is_member = any(word in name.lower() for word in _OF_MEMBERS)
            if len({*map(str, texts)}) == len(texts) and is_member:
                dimension = self._wanted or "member"
                if self._is_free(dimension):
                    yield from self._try(dimension, f"attribute:{name}", f"the attribute {name}")

    def merging(self) -> Iterator[Fix]:
        """Yield a dimension along which files hold different variables of the same steps."""
        arrays = self._facts.arrays
        held = arrays.path.counts()
        everywhere = {
            paths.name(path)
            for path, count in zip(arrays.path.values, held.tolist(), strict=True)
            if count == len(self._facts.files)
        }
        for each in sorted(everywhere, key=lambda each: (not self._is_time(each), each)):
            rows = self._data[along(self._facts, each)[self._data]]
            if len(rows) and np.bincount(arrays.path.codes[rows]).max() == 1:
                price = "files hold different variables of the same steps, which are merged"
                yield fix(price, concat_dim=[each])

    def keep_order(self) -> Iterator[Fix]:
        """Yield what keeps files in their order along a time that they have, whatever it says."""
        arrays = self._facts.arrays
        for each in sorted(self._taken):
            rows = along(self._facts, each)
            if not self._is_time(each) or not rows.any():
                continue
            held = np.bincount(arrays.path.codes[rows])
            if (held[held > 0] < len(self._facts.files)).any():  # files lack variables
                continue
            has_labels = each in self._coordinates
            says = f"whatever {each} says" if has_labels else f"without a coordinate {each}"
            price = f"files follow one another in the order given, {says}"
            yield fix(price, concat_dim=[each], combine="nested")

    def odd(self) -> str:
        """Return what keeps names from telling a date, where most of them do."""
        names = self._names(_ABOVE)
        for first in (names[0], names[len(names) // 2], names[-1]):
            for ways, _ in islice(date_patterns([first, *names], self._time), _TRIED):
                for pattern in ways:
                    if (proposed := self._odd(pattern, names)) is not None:
                        return proposed
        return ""

    def _odd(self, pattern: str, names: Sequence[str]) -> str | None:
        made = NamePattern.of(pattern)
        there = made.read(names, self._time, calendar="standard").there
        if not _MOSTLY * len(names) <= there.sum():
            return None
        found = made.labels(self._facts.files.url, self._time, calendar="standard")
        lacking = np.flatnonzero(~found.there)
        if not len(lacking) or found.two_ways.any() or len(lacking) > len(found.there) // 4:
            return None
        more = f" and {len(lacking) - 1} others" if len(lacking) > 1 else ""
        file = self._facts.files.url[int(lacking[0])]
        return (
            f"Most names tell a date with --labels {quote(pattern)}, but not {file}{more}: leave"
            " them out or rename them."
        )

    def following(self) -> Iterator[Fix]:
        """Yield the dimensions along which files have other lengths, and no coordinate.

        They grow together: one alone would repeat what lies along the others.
        """
        names = self._grow_together()
        if names and self._is_alike and not self._are_crossed(names):
            along = list_names(names, _NAMED)
            yield fix(
                f"files follow one another along {along}, in the order given", concat_dim=names
            )

    def _grow_together(self) -> list[str]:
        """Return these dimensions, and those that variables of the same names have in their place.

        Groups of one kind may have equal lengths in all files by chance.
        """
        places = {
            (paths.name(path), axis)
            for path, schema in self._variables
            for axis, name in enumerate(schema.dimension_names)
            if name in self.ragged
        }
        found = {
            name
            for path, schema in self._variables
            for axis, name in enumerate(schema.dimension_names)
            if name and name not in self._coordinates and (paths.name(path), axis) in places
        }
        return sorted(found)

    def _are_crossed(self, names: Sequence[str]) -> bool:
        """Say whether a variable has several of some dimensions, so that these make a grid."""
        return any(len({*names} & {*schema.dimension_names}) > 1 for _, schema in self._variables)

    # -- whether it works --------------------------------------------------------------------

    def _try(self, dimension: str, labels: str, source: str) -> Iterator[Fix]:
        made = self._make(dimension, labels)
        if made is not None and made.count > 1 and self._settles([made]):
            named = [] if self._wanted else [dimension]
            yield fix(f"{_span(made)}, from {source}", concat_dim=named, labels={dimension: labels})

    def _stack(self, pattern: str) -> Iterator[Fix]:
        names = NamePattern.of(pattern).names
        is_wanted = self._wanted is None or names == (self._wanted,)
        if not is_wanted or not all(map(self._is_free, names)):
            return
        found = [made for each in names if (made := self._make(each, pattern)) is not None]
        settles = len(found) == len(names) and self._settles(found)
        if settles and all(each.count > 1 for each in found):
            yield fix(f"{' and '.join(map(_span, found))}, from the names", labels=pattern)

    def _make(self, dimension: str, labels: str) -> NewDimension | None:
        try:
            if dimension in self._one_step:
                return relabel(self._facts, dimension, labels, {})[1]
            return new_dimension(self._facts, dimension, labels)
        except IcevirtError:
            return None

    def _settles(self, found: Sequence[NewDimension]) -> bool:
        """Say whether each file has a place of its own, and each place a file."""
        cell = np.zeros(len(self._facts.files), np.int64)
        for each in found:
            cell = cell * each.count + each.cell
        arrays, rows = self._facts.arrays, self._data
        told = {path for each in found for path in (each.variable, each.label_variable)}
        is_label = np.array([path in told for path in arrays.path.values], np.bool_)
        rows = rows[~is_label[arrays.path.codes[rows]]]
        for each in found:
            if not each.is_new:  # what lacks the dimension must be equal in the files
                rows = rows[along(self._facts, each.name)[rows]]
        held = cell[arrays.file[rows]] * len(arrays.path.values) + arrays.path.codes[rows]
        alone = len(np.unique(held)) == len(held)
        return alone and len(np.unique(cell)) == np.prod([each.count for each in found])

    # -- facts -------------------------------------------------------------------------------

    def _is_free(self, name: str) -> bool:
        return name not in self._taken or name in self._one_step

    def _is_ragged(self, name: str) -> bool:
        lengths = DimensionScopes.of(self._facts, name).lengths.values()
        return name not in self._coordinates and any(
            len(np.unique(each[each > 0])) > 1 for each in lengths
        )

    def _is_time(self, name: str) -> bool:
        """Say whether a dimension is one of time, by its name or the units of its coordinate."""
        named = (
            each.attributes.values for path, each in self._variables if paths.name(path) == name
        )
        return name.lower() in _NAMES_OF_TIME or any(
            each.get("axis") == "T" or units_of(each) for each in named
        )

    def _names(self, above: int = 0) -> list[str]:
        urls = [self._facts.files.url[at] for at in self._rows.tolist()]
        return relative([*readable_paths(urls)], above)

    def _fits(self, dimension: str, pattern: str, names: Sequence[str]) -> bool:
        """Say whether a pattern fits some names in one way, and tells several labels."""
        found = NamePattern.of(pattern).read(names, dimension, calendar="standard")
        values = found.values.values if isinstance(found.values, Dates) else found.values
        fits = bool(found.there.all() and not found.two_ways.any())
        return fits and len(np.unique(values)) > 1

    def _data_rows(self) -> NDArray[np.int64]:
        """Return the rows of arrays that hold data, which get the dimension."""
        arrays = self._facts.arrays
        coordinates = coordinates_of(
            [(path, each.dimension_names, each.attributes.values) for path, each in self._variables]
        )
        is_data = np.array([path not in coordinates for path in arrays.path.values], np.bool_)
        return np.flatnonzero(is_data[arrays.path.codes])

    def _differing(self) -> list[tuple[str, list[Any]]]:
        """Return global attributes that differ between some files, and their values there.

        What says when a file begins comes before what says anything else of it.
        """
        if len(self._facts.files) > _READ:
            return []
        held: list[Mapping[str, Any]] = [
            self._facts.groups_of(at)[0].attributes.values for at in self._rows.tolist()
        ]
        found = [(name, [each.get(name) for each in held]) for name in held[0]]
        proposed = [
            (name, values)
            for name, values in found
            if all(isinstance(each, str | int | float) for each in values)
            and any(each != values[0] for each in values)
        ]

        def rank(each: tuple[str, Any]) -> tuple[bool, bool]:
            name = each[0].lower()
            begins, is_time = "start" in name or "begin" in name, "time" in name or "date" in name
            return not begins, not is_time

        return sorted(proposed, key=rank)


def _is_rival(first: str, pattern: str, form: str) -> bool:
    """Say whether two patterns read the same part of a name in two ways that may be meant.

    Days of the year stand behind a letter: ``A2024001``, ``s20240011200206``.
    """
    before, behind = pattern.partition("{")[0], pattern.rpartition("}")[2]
    same = (before, behind) == (first.partition("{")[0], first.rpartition("}")[2])
    is_day = "%j" in form
    return same and is_day != ("%j" in first) and (not is_day or before[-1:].isalpha())


def _span(made: NewDimension) -> str:
    """Return the labels of a dimension in a few words."""
    assert made.values is not None
    shown = show_labels(made.values, made.attributes)
    first, last = (str(each) for each in (shown[0], shown[-1]))
    return f"{made.count} labels along {made.name}, {first} to {last}"
