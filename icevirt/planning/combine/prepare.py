"""Normalize facts: new dimensions, time units, duplicates.

A new dimension becomes a first axis of length one; after that, files are placed along it as along
any other. An array that gets a dimension of its file is repeated for each of the file's steps.

These decisions hold for all files, whether they become one dataset or several: a new axis, the
units of times, and which of several files with the same steps counts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import (
    ArrayColumns,
    CatalogFacts,
    Coded,
    Counts,
    describe_variables,
    listing_groups,
    variables_of,
)
from icevirt.archive.plan import ArrayMode, LeftOut, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.roles import coordinates_of
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema, Recoding
from icevirt.errors import CombineError, Fix, InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.model.strings import Strings
from icevirt.planning.axes import candidates, duplicates, overlaps
from icevirt.planning.axes.axis import NewDimension, Placement
from icevirt.planning.axes.dimension_scopes import ABSENT, DimensionScopes
from icevirt.planning.axes.group_order import with_groups
from icevirt.planning.axes.label_proposals import label_fixes, odd_names
from icevirt.planning.axes.new_dimensions import (
    dimension_of_nest,
    new_dimension,
    places_of_nest,
    relabel,
)
from icevirt.planning.axes.phony_dimensions import with_phony_alike
from icevirt.planning.axes.placement import place_by_order, place_files
from icevirt.planning.axes.positions import count_positions, with_longest
from icevirt.planning.combine.data_vars import (
    DimensionRules,
    find_rule,
    gets,
    is_named,
    refuse_unknown_dimensions,
    refuse_unknown_names,
)
from icevirt.planning.combine.dimension_lengths import with_texts_alike
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.edits.file_edits import LabelEdits
from icevirt.planning.edits.renames import with_label_edits
from icevirt.planning.meaning.partitions import place_partitions
from icevirt.planning.remedies import drop_fixes, fix, list_names, scan_fix, together
from icevirt.planning.times.recoding import recode_times
from icevirt.planning.times.units import units_of
from icevirt.remedy_notation import write_code, write_option, write_remedy

_NAMED = 5  # variables in a message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedFacts:
    """Facts that may be combined, and what was done to make them so."""

    facts: CatalogFacts
    new: tuple[NewDimension, ...]  # (files,) that no file has, in the order of the spec
    times: Mapping[str, Recoding]  # (files,) by path, where files count time differently
    left_out: tuple[LeftOut, ...]
    cuts: tuple[duplicates.StepsCut, ...] = ()
    nest: NDArray[np.int64] | None = None  # (files, dimensions) places that a person gave
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # first axes, by path
    label_edits: LabelEdits | None = None
    twice: CombineError | None = None  # what is wrong where files hold the same steps

    def only(self, rows: NDArray[np.int64]) -> PreparedFacts:
        """Return some of the files, in the order given."""
        return self.with_facts(self.facts.only(rows), rows)

    def with_facts(self, facts: CatalogFacts, rows: NDArray[np.int64]) -> PreparedFacts:
        """Return other facts, of files or pieces of files that are ``rows`` of these."""
        return replace(
            self,
            facts=facts,
            new=tuple(each.take(rows) for each in self.new),
            times={path: each.take(rows) for path, each in self.times.items()},
            nest=None if self.nest is None else self.nest[rows],
            label_edits=None if self.label_edits is None else self.label_edits.take(rows),
        )

    def count_again(self, spec: CombineSpec) -> PreparedFacts:
        """Return some of the files by themselves: their times may count alike, and tell more.

        Raises:
            CombineError: The bounds of a coordinate would have to be recoded and cannot be.
        """
        facts, times = recode_times(self.facts, spec.concat_dim)
        twice = self.twice
        if twice is None and self.nest is None:
            twice = duplicates.settle_duplicates(
                facts, self.existing(spec.concat_dim), "refuse", self.new
            ).refused
        return replace(self, facts=facts, times={**self.times, **times}, twice=twice)

    def existing(self, dimensions: Sequence[str]) -> list[str]:
        """Return the dimensions that files have."""
        new = {each.name for each in self.new}
        return [name for name in dimensions if name not in new]

    def describe(
        self, dimension: NewDimension, cells: Placement, spec: CombineSpec
    ) -> NewDimension:
        """Return a new dimension with the attributes that the user set."""
        if self.label_edits is None:
            return dimension
        return with_label_edits(dimension, self.label_edits, cells.rows, spec.options.combine_attrs)

    def cells(self, spec: CombineSpec) -> Placement:
        """Return where the files lie along the concatenated dimensions.

        Raises:
            CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
        """
        known = {each.name: each.axis for each in self.new}
        if self.nest is not None:
            for at, name in enumerate(spec.concat_dim):
                known.setdefault(name, place_by_order(self.facts, name, self.nest[:, at]))
        else:
            known |= place_partitions(self.facts, spec, self.existing(spec.concat_dim))
        cells = place_files(self.facts, spec.concat_dim, known, spec.spacing)
        return with_groups(self.facts, cells, known, spec.spacing)


def prepare(facts: CatalogFacts, spec: CombineSpec) -> PreparedFacts:
    """Make the facts of all files alike.

    Raises:
        CombineError: A dimension is unknown or not named, a file does not tell its label, a time
            has no exact value in the units of the others, or a variable of files that overlap is
            shorter or longer along a dimension than its coordinate.
        InvalidInputError: There are too few or too many labels, or of several kinds.
    """
    facts = with_longest(with_phony_alike(with_texts_alike(facts)), spec.pad)
    nest = (
        places_of_nest(facts, spec.concat_dim, spec.nest)
        if spec.options.combine == "nested"
        else None
    )
    facts, new = _find_new(facts, spec, nest)
    existing = tuple(name for name in spec.concat_dim if name not in {e.name for e in new})
    _check_dimensions(facts, spec, existing)
    facts, times = recode_times(facts, spec.concat_dim)
    found = PreparedFacts(
        facts=facts, new=new, times=times, left_out=(), nest=nest, label_edits=spec.label_edits
    )
    if nest is None:
        settled = duplicates.settle_duplicates(facts, existing, spec.options.duplicates, new)
        if settled.pieces is not None:
            cut = overlaps.cut(found.facts, settled.pieces, settled.labels)
            found = found.with_facts(cut, settled.pieces.file)
        elif settled.left_out:
            found = found.only(settled.kept)
        found = replace(found, left_out=settled.left_out, cuts=settled.cuts, twice=settled.refused)
        _refuse_losses(facts, found.facts)
    is_ruled = bool(new or spec.dimension_rules.lasting)
    return _stack(found, spec) if is_ruled else found


def _refuse_losses(before: CatalogFacts, after: CatalogFacts) -> None:
    if len(after.files) == len(before.files):
        return
    lost = sorted({*before.arrays.path.values} - {*after.arrays.path.values})
    if lost:
        gone = [before.arrays.path.values.index(each) for each in lost]
        rows = np.flatnonzero(np.isin(before.arrays.path.codes, gone))
        raise CombineError(
            f"no file that counts holds {list_names(lost, _NAMED)}: all their files are left out,"
            " because other files hold the same steps",
            fixes=drop_fixes(before.arrays, rows),
            variables=lost[:_NAMED],
            file=before.url_of(rows[0]),
        )


def _find_new(
    facts: CatalogFacts, spec: CombineSpec, nest: NDArray[np.int64] | None
) -> tuple[CatalogFacts, tuple[NewDimension, ...]]:
    there = _list_dimensions(facts.arrays)
    found: list[NewDimension] = []
    for at, name in enumerate(spec.concat_dim):
        labels, said = spec.labels.get(name), spec.find_attributes(name)
        if nest is not None:
            if labels is not None or name not in there:
                found.append(dimension_of_nest(facts, name, nest[:, at], labels, said))
        elif labels is not None and name in there:
            facts, made = relabel(facts, name, labels, said)
            found.append(made)
        elif labels is not None:
            found.append(new_dimension(facts, name, labels, said))
    return facts, tuple(found)


def _stack(found: PreparedFacts, spec: CombineSpec) -> PreparedFacts:
    """Give arrays the dimensions that they get, and bring times that get one to one count."""
    facts, given = stack(found.facts, Declared(found.facts, found.new, spec.dimension_rules))
    there = _list_dimensions(facts.arrays)
    for each in found.new:
        if each.name not in there:
            raise CombineError(
                f"no variable gets the dimension {each.name!r}",
                fixes=[
                    fix(
                        "every data variable gets it, those that are equal in all files, too",
                        data_vars="all" if len(spec.concat_dim) == 1 else {each.name: ["all"]},
                    )
                ],
                do=write_remedy(
                    "You can also name the variables that get it in ",
                    write_code("data_vars", "--data-vars NAME"),
                    ".",
                ),
                dimensions=there,
            )
    facts, times = recode_times(facts, spec.concat_dim)
    return replace(found, facts=facts, times={**found.times, **times}, given=given)


def _check_dimensions(facts: CatalogFacts, spec: CombineSpec, existing: Sequence[str]) -> None:
    there = _list_dimensions(facts.arrays)
    if len(facts.files) > 1 and not spec.concat_dim:
        labels = label_fixes(facts, tolerance=spec.tolerance)
        known = [
            *candidates.in_order_given(facts),
            *labels,
            *candidates.with_equal_labels(facts),
        ]
        fixes = [*{frozenset(each.flags): each for each in reversed(known)}.values()][::-1]
        if grids := [*candidates.other_grids(facts)]:
            raise _refuse_grids(facts, grids, labels)
        raise CombineError(
            f"{len(facts.files)} files but no dimension to concatenate along",
            fixes=fixes,
            do=odd_names(facts)
            or write_remedy(
                "Pass ",
                write_option("concat_dim"),
                "; labels say where files lie along a dimension that they do not have.",
            )
            if not fixes
            else "",
            first=facts.files.url[0],
            last=facts.files.url[len(facts.files) - 1],
            dimensions=there,
        )
    for name in existing:
        if name not in there:
            is_one = len(spec.concat_dim) == 1
            labels = label_fixes(facts, name) if is_one else []
            price = f"files are stacked along a new dimension {name}, in the order given"
            can_stack = is_one and spec.options.combine != "nested"
            stacked_as_given = [fix(price, combine="nested")] if can_stack else []
            raise CombineError(
                f"no variable has the dimension {name!r}",
                fixes=(*_propose_similar(name, there, spec), *labels, *stacked_as_given),
                do=write_remedy(
                    "You can also name another dimension that the files have. To stack"
                    " them along a new one, give its labels: ",
                    write_code('combine_options={"labels": ...}', "--labels"),
                    ".",
                ),
                dimensions=there,
            )


def _refuse_grids(
    facts: CatalogFacts, grids: Sequence[candidates.UnlikeGrids], labels: Sequence[Fix]
) -> CombineError:
    """Return the error about files of several grids, which follow one another nowhere."""
    price = "files of each grid get a group; no data is copied"
    stacked = [each for each in labels if "labels" in each.arguments.get("combine_options", {})]
    groups = [together(each, fix(price, on_mismatch="eras")) for each in stacked]
    joined = candidates.along_positions(facts)
    positions = [each for each in joined if _count_positions(facts, each)]
    more = [each for each in joined if each not in positions]
    return CombineError(
        f"{len(facts.files)} files of several grids: they have other lengths along"
        f" {', '.join(map(str, grids))}, and their other coordinates are equal",
        do=write_remedy(
            "Build the files of each grid into a group of its own: ",
            write_code('group="..."', "--group NAME"),
            ". If the grids are parts of one, name the dimension: ",
            write_code('concat_dim="..."', "--concat-dim NAME"),
            ".",
        ),
        fixes=[*positions, *stacked, *groups, *more, *candidates.groups_in_order(facts, price)],
        first=facts.url_of(grids[0].rows[0]),
        first_length=grids[0].lengths[0],
        other=facts.url_of(grids[0].rows[1]),
        other_length=grids[0].lengths[1],
    )


def _count_positions(facts: CatalogFacts, fix: Fix) -> bool:
    """Say whether labels along the dimensions of a fix begin anew in each file."""
    return all(count_positions(facts, name) for name in fix.arguments["concat_dim"])


def _propose_similar(name: str, there: Sequence[str], spec: CombineSpec) -> list[Fix]:
    others = [each for each in there if each not in spec.concat_dim]
    return [
        fix(
            f"files have the dimension {other}",
            concat_dim=[other if each == name else each for each in spec.concat_dim],
        )
        for other in difflib.get_close_matches(name, others, n=1)
    ]


def _list_dimensions(arrays: ArrayColumns) -> list[str]:
    schemas = map(ArraySchema.loads, arrays.schema.values)
    return sorted({name for each in schemas for name in each.dimension_names if name is not None})


def without_values(
    facts: CatalogFacts, spec: CombineSpec, absent: Collection[str], dimensions: Sequence[str]
) -> tuple[CatalogFacts, CombineSpec]:
    """Return facts in which absent files hold only labels, and a spec that reserves their steps."""
    if not absent:
        return facts, spec
    gone = np.isin(facts.files.url.hashes(), Strings.of(sorted(absent)).hashes())
    labels = np.array([paths.name(each) in dimensions for each in facts.arrays.path.values])
    kept = labels[facts.arrays.path.codes] | ~gone[facts.arrays.file]
    reserving = replace(spec, options=replace(spec.options, missing="reserve"))
    return replace(facts, arrays=facts.arrays.take(np.flatnonzero(kept))), reserving


_TEXT: tuple[JSON, ...] = ({"name": "vlen-utf8"},)
_NUMBERS: tuple[JSON, ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)


def stack(
    facts: CatalogFacts, declared: Declared
) -> tuple[CatalogFacts, dict[str, tuple[str, ...]]]:
    """Return the facts as if arrays had the dimensions that the rules give them, and these by path.

    Along a dimension that the files have, an array is there once for each step of its file.

    Raises:
        CombineError: An array is encoded in a way that takes no further axis, or is in a file that
            has nothing along a dimension which it should get.
    """
    arrays = facts.arrays
    schemas, shapes = list(arrays.schema.values), list(arrays.shape.values)
    schema_codes, shape_codes = (c.codes.astype(np.int32) for c in (arrays.schema, arrays.shape))
    times = np.ones(len(arrays.file), np.int64)
    lengths = _Lengths(facts)
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    given: dict[str, tuple[str, ...]] = {}
    for code, path in enumerate(arrays.path.values):
        rows = np.flatnonzero(arrays.path.codes == code)
        for old in np.unique(arrays.schema.codes[rows]).tolist():
            schema = declared.schemas[old]
            if not (names := declared.dimensions_of(path, schema)):
                continue
            given[path] = max(names, given.get(path, ()), key=len)
            if (old, names) not in known:
                known[old, names] = len(schemas)
                schemas.append(_add_axes(schema, names, path).dumps())
            mine = rows[arrays.schema.codes[rows] == old]
            schema_codes[mine] = known[old, names]
            more = lengths.of(mine, names, path)
            times[mine] = more.prod(axis=1)
            shape = arrays.shape.codes[mine].astype(np.int64)[:, None]
            kinds, kind = np.unique(np.hstack([more, shape]), axis=0, return_inverse=True)
            shape_codes[mine] = len(shapes) + kind.reshape(-1)
            shapes += [
                json.dumps([*own, *json.loads(arrays.shape.values[at])])
                for *own, at in kinds.tolist()
            ]
    everything = np.arange(len(schema_codes))
    made = replace(
        arrays,
        schema=Coded(schema_codes, tuple(schemas)).take(everything),
        shape=Coded(shape_codes, tuple(shapes)).take(everything),
    )
    if (times != 1).any():  # references stand several times in the dataset
        counted = ("virtual", "inline", "virtual_bytes", "inline_bytes")
        repeated: dict[str, Any] = {
            name: Counts(getattr(made, name)[everything] * times) for name in counted
        }
        made = replace(made, **repeated)
    return replace(facts, arrays=made), given


class _Lengths:
    """How many steps each file has along dimensions: one along those that no file has."""

    def __init__(self, facts: CatalogFacts) -> None:
        self._facts = facts
        self._known: dict[str, DimensionScopes] = {}

    def of(self, rows: NDArray[np.integer], names: Sequence[str], path: str) -> NDArray[np.int64]:
        """Return the lengths of the files of some rows, shape (rows, names)."""
        files = self._facts.arrays.file[rows]
        found = np.ones((len(rows), len(names)), np.int64)
        for at, name in enumerate(names):
            if name not in self._known:
                self._known[name] = DimensionScopes.of(self._facts, name)
            if (lengths := self._known[name].lengths_for(paths.parent(path))) is None:
                continue
            found[:, at] = lengths[files]
            if (found[:, at] < 0).any():
                raise self._unknown(path, name, int(files[int(np.argmin(found[:, at]))]))
        return found

    def _unknown(self, path: str, name: str, file: int) -> CombineError:
        of_groups = {
            group: int(lengths[file])
            for group, lengths in self._known[name].lengths.items()
            if lengths[file] != ABSENT
        }
        return CombineError(
            f"{path} cannot get the dimension {name!r}: groups of a file have one each, of other"
            " lengths, and none of them holds the variable"
            if of_groups
            else f"a file holds {path} but no variable along {name!r}, so its steps are unknown",
            do=f"Leave {path} out of data_vars along {name!r}, or leave the file out.",
            variable=path,
            file=self._facts.files.url[file],
            **({"lengths": of_groups} if of_groups else {}),
        )


_SHAPELESS = frozenset({"bytes", "vlen-utf8", "vlen-bytes", "gribberish"})
"""Codecs that give what they decode the shape of the chunk, whatever axes of length one that has.

Of gribberish a test holds that against ecCodes, in icevirt and in the official client.
"""


def _add_axes(schema: ArraySchema, names: tuple[str, ...], path: str) -> ArraySchema:
    first = schema.codecs[0] if schema.codecs else None
    name = first.get("name") if isinstance(first, dict) else first
    if name not in _SHAPELESS:
        raise CombineError(
            f"variable {path} uses the codec {name!r}, which cannot take another axis",
            fixes=[scan_fix(f"the dataset lacks {path}", drop_variables=[path])],
            variable=path,
        )
    edges = schema.chunk_shape
    return replace(
        schema,
        dimension_names=(*names, *schema.dimension_names),
        chunk_shape=None if edges is None else (*[1] * len(names), *edges),
    )


# -- coordinates that no file holds --------------------------------------------------------------


def coordinate(
    dimension: NewDimension, values: NDArray[Any], group: str, build_id: str
) -> PlannedArray:
    """Return the array of the labels, stored in one chunk."""
    text = values.dtype.kind == "U"
    scanned = ScannedArray(
        path="/",
        dimension_names=(dimension.name,),
        shape=values.shape,
        chunk_shape=values.shape,
        data_type="string" if text else values.dtype.name,
        codecs=_TEXT if text else _NUMBERS,
        fill_value="" if text else 0,
        attributes=dimension.attributes,
        references=ChunkTable.empty(1),
    )
    path = paths.join(group, dimension.name)
    nowhere = np.zeros((1, 0), np.int64)
    return PlannedArray(
        path=path,
        source_path=f"/{dimension.name}",
        node_id=ObjectId8.of_content(build_id.encode(), path.encode()),
        mode=ArrayMode.given,
        axes=(),
        shape=values.shape,
        chunk_shape=values.shape,
        zarr_json=scanned.zarr_json(),
        schema=scanned.schema,
        files=np.zeros(1, np.int64),
        starts=nowhere,
        lengths=nowhere,
        whole=np.zeros(1, np.bool_),
        whole_schema=None,
        window=(1,),
        references=ReferenceCounts(inline=1, bytes_stored=values.nbytes),
        expected=1,
        values=values,
    )


class Declared:
    """What the rules make of the arrays of some files."""

    def __init__(
        self, facts: CatalogFacts, new: Sequence[NewDimension], rules: DimensionRules
    ) -> None:
        self._facts = facts
        self._new = {each.name: each for each in new if each.is_new}
        self._rules = rules
        self._of_one_label: dict[str, frozenset[str]] = {}
        self.schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
        refuse_unknown_dimensions(rules.asked, rules.dimensions)
        refuse_unknown_names(rules.asked, facts.arrays.path.values)

    def dimensions_of(self, path: str, schema: ArraySchema) -> tuple[str, ...]:
        """Return the dimensions that an array gets, in the order of the dataset's.

        Raises:
            InvalidInputError: The coordinate of a dimension is to have another one.
        """
        own = schema.dimension_names
        return tuple(
            name
            for name in self._rules.dimensions
            if name not in own
            and self._gets(name, path, own)
            and not self._is_lone(name, path, own)
        )

    def _gets(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        axis, kept = self._new.get(dimension), self._rules.kept
        if any(each.variable == path for each in self._new.values()):
            return axis is not None and axis.variable == path
        words = find_rule(self._rules.asked, dimension)
        if words is not None and is_named(words, path):
            if tuple(own) == (paths.name(path),):
                raise InvalidInputError(
                    f"{path} is a dimension coordinate and cannot have another dimension",
                    do="Remove it from data_vars.",
                    data_vars=list(words),
                )
            return True
        if tuple(own) == (paths.name(path),):
            return False
        if words is None and axis is not None and kept.has(dimension) and path in kept.dimensions:
            return dimension in kept.dimensions[path]
        if any(each.label_variable == path for each in self._new.values()):
            return axis is not None and axis.label_variable == path
        return gets(
            kept.data_vars if words is None else self._rules.asked,
            dimension,
            path,
            is_new=axis is not None,
            is_coordinate=path in self._coordinates,
        )

    def _is_lone(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        """Say whether one label has a field alone that gets the dimension by default only."""
        axis, kept = self._new.get(dimension), self._rules.kept
        if axis is None or find_rule(self._rules.lasting, dimension) is not None:
            return False
        is_label = any(path in (e.variable, e.label_variable) for e in self._new.values())
        is_placed = not {*own}.isdisjoint((*self._rules.dimensions, *self._times))
        is_kept = dimension in kept.dimensions.get(path, ())
        return not (is_label or is_placed or is_kept) and path in self._alone(axis)

    def _alone(self, axis: NewDimension) -> frozenset[str]:
        """Return the paths of arrays that the files of one label hold, and no others.

        They say nothing of the new dimension, unless all arrays are of that kind.
        """
        if axis.name not in self._of_one_label:
            arrays = self._facts.arrays
            cell, paths_there = axis.cell[arrays.file], arrays.path.values
            one = np.zeros(len(paths_there), np.int64)
            one[arrays.path.codes] = cell
            others = np.bincount(arrays.path.codes[cell != one[arrays.path.codes]])
            is_shared = np.zeros(len(paths_there), np.bool_)
            is_shared[: len(others)] = others > 0
            alone = frozenset(np.array(paths_there, object)[~is_shared].tolist())
            shared = {*paths_there} - alone - self._coordinates
            self._of_one_label[axis.name] = alone if shared else frozenset()
        return self._of_one_label[axis.name]

    @cached_property
    def _times(self) -> frozenset[str]:
        """The dimensions along which values vary in time: fields that have one are data."""
        return frozenset(
            paths.name(path)
            for path, schema in variables_of(self._facts)
            if units_of(schema.attributes.values) is not None
        )

    @cached_property
    def _coordinates(self) -> frozenset[str]:
        return coordinates_of(describe_variables(self._facts), listing_groups(self._facts))
