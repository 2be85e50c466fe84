"""Files that are stacked along a dimension that none of them has: scenarios, members, start times.

Every array whose values differ between files, or that was too large to compare, gets a new first
axis of length one; from there on the files are concatenated along it. What is alike in all files is
stored once. The labels of the new dimension are named by a person, or told by the files: by their
names or by a global attribute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.attributes import Attributes
from icevirt.archive.facts import CatalogFacts, Coded
from icevirt.archive.plan import Mode, PlannedArray
from icevirt.archive.report import ReferenceCounts
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, InvalidInputError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON

type Labels = Sequence[str | int | float] | str
"""Of each file in the order given; or ``regex:PATTERN`` with one group, matched in the file's URL;
or ``attribute:NAME`` of the file's root group."""

_KINDS = {"i": "int64", "f": "float64", "U": "string"}
_TEXT: tuple[JSON, ...] = ({"name": "vlen-utf8"},)
_NUMBERS: tuple[JSON, ...] = ({"name": "bytes", "configuration": {"endian": "little"}},)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """The labels of a new dimension, and where each file lies along it."""

    values: NDArray[Any]  # (cells,) in the order of the dataset
    cell: NDArray[np.int64]  # (files,)

    def only(self, rows: NDArray[np.int64]) -> Stack:
        """Return the labels of some files, in the order given."""
        used, cell = np.unique(self.cell[rows], return_inverse=True)
        return Stack(values=self.values[used], cell=cell.astype(np.int64))


def labels_told(facts: CatalogFacts, labels: Labels, dimension: str) -> Stack:
    """Return the labels of the files.

    Labels that are listed keep their order; those that files tell are sorted.

    Raises:
        InvalidInputError: There are too few or too many, or the pattern is none.
        CombineError: A file does not tell its label.
    """
    if isinstance(labels, str):
        values = _typed(_from_files(facts, labels, dimension))
        distinct, cell = np.unique(values, return_inverse=True)
        return Stack(values=distinct, cell=cell.astype(np.int64))
    listed = list(labels)
    if len(listed) != len(facts.files):
        raise InvalidInputError(
            f"{len(listed)} labels for {len(facts.files)} files",
            do="Pass one for each file, in their order; files that are left out because they are"
            " bad have none.",
            labels=listed[:10],
        )
    number: dict[Any, int] = {}
    cell = np.array([number.setdefault(each, len(number)) for each in listed], np.int64)
    return Stack(values=_array(list(number)), cell=cell)


def _from_files(facts: CatalogFacts, labels: str, dimension: str) -> list[str]:
    kind, _, what = labels.partition(":")
    if kind == "regex":
        return _from_names(facts, what, dimension)
    if kind != "attribute" or not what:
        raise InvalidInputError(
            "labels are neither listed nor told by the files",
            do="Pass a list, 'regex:PATTERN' with one group, or 'attribute:NAME'.",
            labels=labels,
        )
    found = []
    for row in range(len(facts.files)):
        held = facts.groups_of(row)[0].attributes.values.get(what)
        if not isinstance(held, str | int | float):
            raise _untold(facts, row, dimension, f"it has no global attribute {what!r}")
        found.append(str(held))
    return found


def _from_names(facts: CatalogFacts, pattern: str, dimension: str) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(
            "not a regular expression", do="Correct it.", pattern=pattern, cause=str(error)
        ) from error
    if compiled.groups != 1:
        raise InvalidInputError(
            "the pattern of the labels has not exactly one group",
            do="Put the part that is the label in parentheses.",
            pattern=pattern,
        )
    found = []
    for row, url in enumerate(facts.files.url):
        match = compiled.search(url)
        if match is None or match[1] is None:
            raise _untold(facts, row, dimension, f"its name does not match {pattern!r}")
        found.append(match[1])
    return found


def _untold(facts: CatalogFacts, row: int, dimension: str, why: str) -> CombineError:
    return CombineError(
        f"a file does not tell its label along {dimension!r}: {why}",
        do="Leave it out, or list the labels.",
        file=facts.files.url[row],
    )


def _typed(texts: Sequence[str]) -> NDArray[Any]:
    """Return numbers where all labels are some; a leading zero makes no other number of one."""
    for kind in (int, float):
        try:
            return _array([kind(text) for text in texts])
        except ValueError:
            continue
    return _array(list(texts))


def _array(values: Sequence[Any]) -> NDArray[Any]:
    made = np.array(values)
    if made.dtype.kind not in _KINDS or made.ndim != 1:
        raise InvalidInputError(
            "labels are texts, or whole numbers, or numbers, all of one kind",
            do="Correct them.",
            labels=list(values)[:10],
        )
    return made.astype(str) if made.dtype.kind == "U" else made.astype(_KINDS[made.dtype.kind])


# -- facts with the new axis -------------------------------------------------------------------


def stacked(facts: CatalogFacts, dimension: str, stack: Stack) -> CatalogFacts:
    """Return the facts as if the files had the dimension, with length one, where arrays differ.

    An array that is not there for every label differs too: it is nobody else's.

    Raises:
        CombineError: An array is encoded in a way that takes no further axis.
    """
    arrays = facts.arrays
    moved = np.zeros(len(arrays.file), np.bool_)
    for code in range(len(arrays.path.values)):
        rows = np.flatnonzero(arrays.path.codes == code)
        everywhere = len(np.unique(stack.cell[arrays.file[rows]])) == len(stack.values)
        moved[rows] = _differs(facts, rows, everywhere=everywhere)
    schemas = list(arrays.schema.values)
    codes = arrays.schema.codes.copy()
    for code in np.unique(codes[moved]).tolist():
        row = int(np.argmax(moved & (arrays.schema.codes == code)))
        schema = ArraySchema.loads(arrays.schema.values[code])
        schemas.append(_with_axis(schema, dimension, arrays.path[row]).dumps())
        codes[moved & (arrays.schema.codes == code)] = len(schemas) - 1
    shapes = list(arrays.shape.values)
    shape_codes = arrays.shape.codes.copy()
    for code in np.unique(shape_codes[moved]).tolist():
        shapes.append(json.dumps([1, *json.loads(arrays.shape.values[code])]))
        shape_codes[moved & (arrays.shape.codes == code)] = len(shapes) - 1
    everything = np.arange(len(codes))
    return replace(
        facts,
        arrays=replace(
            arrays,
            schema=Coded(codes, tuple(schemas)).take(everything),
            shape=Coded(shape_codes, tuple(shapes)).take(everything),
        ),
    )


def _differs(facts: CatalogFacts, rows: NDArray[np.int64], *, everywhere: bool) -> bool:
    """Say whether an array is to be stacked; coordinates never are, so that unlike ones refuse."""
    arrays = facts.arrays
    digests = arrays.digest.codes[rows]
    if everywhere and arrays.digest[int(rows[0])] and (digests == digests[0]).all():
        return False
    path = arrays.path[int(rows[0])]
    return ArraySchema.loads(arrays.schema[int(rows[0])]).dimension_names != (paths.name(path),)


def _with_axis(schema: ArraySchema, dimension: str, path: str) -> ArraySchema:
    first = schema.codecs[0] if schema.codecs else None
    name = first.get("name") if isinstance(first, dict) else first
    if name not in ("bytes", "vlen-utf8", "vlen-bytes"):
        raise CombineError(
            f"variable {path} is encoded by {name!r}, which takes no further axis",
            do=f"Leave it out with drop_variables=[{path!r}].",
            variable=path,
        )
    edges = schema.chunk_shape
    return replace(
        schema,
        dimension_names=(dimension, *schema.dimension_names),
        chunk_shape=None if edges is None else (1, *edges),
    )


# -- the new coordinate ------------------------------------------------------------------------


def coordinate(stack: Stack, dimension: str, group: str, build_id: str) -> PlannedArray:
    """Return the array of the labels, stored in one chunk."""
    values = stack.values
    kind = _KINDS[values.dtype.kind]
    path = paths.join(group, dimension)
    scanned = ScannedArray(
        path="/",
        dimension_names=(dimension,),
        shape=values.shape,
        chunk_shape=values.shape,
        data_type=kind,
        codecs=_TEXT if kind == "string" else _NUMBERS,
        fill_value="" if kind == "string" else 0,
        attributes=Attributes(),
        references=ChunkTable.empty(1),
    )
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    return PlannedArray(
        path=path,
        source_path=f"/{dimension}",
        node_id=ObjectId8.of_content(build_id.encode(), path.encode()),
        mode=Mode.given,
        axis=0,
        shape=values.shape,
        chunk_shape=values.shape,
        zarr_json=scanned.zarr_json(),
        schema=ArraySchema.of(scanned),
        files=zero,
        starts=zero,
        lengths=one,
        whole=np.zeros(1, np.bool_),
        whole_schema=None,
        window=(1,),
        references=ReferenceCounts(inline=1, bytes_stored=values.nbytes),
        expected=1,
        values=values,
    )
