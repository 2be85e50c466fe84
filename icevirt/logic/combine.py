"""From the facts of a closed catalog to the plan of a build, or to the reason why there is none.

Files combine when every array decodes alike in all of them, their grids agree, chunks line up, and
arrays without the concatenated dimension hold the same values everywhere. Anything else is refused
with the files, the variable and the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.plan import BuildPlan, Mode, PlannedArray
from icevirt.archive.report import ReferenceCounts
from icevirt.archive.scanned import ScannedArray, ScannedGroup
from icevirt.archive.schema import DECODING, ArraySchema
from icevirt.archive.times import Recoding
from icevirt.errors import CombineError
from icevirt.ids import ObjectId8
from icevirt.logic import duplicates, recoding
from icevirt.logic.attributes import CombineAttrs, combine_attributes
from icevirt.logic.containers import containers_for
from icevirt.logic.duplicates import Duplicates, without_duplicates
from icevirt.logic.labels import labels_of
from icevirt.logic.members import Member, members_of
from icevirt.logic.ordering import Order, order_files
from icevirt.logic.recoding import recode_times
from icevirt.logic.windows import MAX_REFERENCES, split_rules, window_of
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON

JOINED_CHUNK_BYTES = 4 << 20
"""Values that are stored in the repository are cut into chunks of about this size."""

_STORED_CODEC: JSON = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
_WORTH_COMPRESSING = 512  # bytes; below it chunks are inline anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asked for."""

    build_id: str
    concat_dim: str | None = None
    group: str = "/"
    combine_attrs: CombineAttrs = "override"
    duplicates: Duplicates = "refuse"
    max_references: int = MAX_REFERENCES  # of one manifest


def combine(facts: CatalogFacts, wish: Wish) -> BuildPlan:
    """Decide how the files of a catalog become one dataset.

    Raises:
        CombineError: They do not, without changing values; the message says which and why.
    """
    if len(facts.files) > 1 and wish.concat_dim is None:
        raise CombineError(
            f"{len(facts.files)} files, and no dimension to concatenate them along",
            do="Pass concat_dim (on the command line --concat-dim).",
            dimensions=_dimensions(facts.arrays),
        )
    if wish.concat_dim is not None and wish.concat_dim not in _dimensions(facts.arrays):
        raise CombineError(
            f"no variable has the dimension {wish.concat_dim!r}",
            do="Name a dimension that the files have.",
            dimensions=_dimensions(facts.arrays),
        )
    facts, times = recode_times(facts, wish.concat_dim)
    kept, left_out = without_duplicates(facts, wish.concat_dim, wish.duplicates)
    if left_out:
        facts = facts.only(kept)
        times = {path: each.take(kept) for path, each in times.items()}
    as_listed = Order(rows=np.arange(len(facts.files)), reason="")
    members_of(facts, as_listed, wish.concat_dim)  # files that disagree have no order to speak of
    order = _order(facts, wish.concat_dim)
    members = members_of(facts, order, wish.concat_dim)
    arrays = tuple(
        replace(_planned(facts, member, wish), times=_in_order(times.get(member.path), order))
        for member in members
    )
    files = facts.files.take(order.rows)
    return BuildPlan(
        build_id=wish.build_id,
        group=paths.canonical(wish.group),
        concat_dim=wish.concat_dim,
        files=files,
        groups=_groups(facts, order, wish),
        arrays=arrays,
        containers=containers_for(facts.places),
        split_rules=split_rules(
            {
                array.path: (
                    array.grid,
                    array.window,
                    None if array.mode is Mode.once else array.axis,
                )
                for array in arrays
            }
        ),
        notes=(
            *((order.reason, *recoding.told(times)) if len(facts.files) > 1 else ()),
            *duplicates.told(left_out, wish.duplicates),
        ),
        left_out=left_out,
    )


def _in_order(times: Recoding | None, order: Order) -> Recoding | None:
    return None if times is None else times.take(order.rows)


# -- which files, in which order ---------------------------------------------------------------


def _order(facts: CatalogFacts, dimension: str | None) -> Order:
    n = len(facts.files)
    if dimension is None or n == 1:
        return Order(rows=np.arange(n), reason="")
    return order_files(list(facts.files.url), labels_of(facts, dimension), dimension=dimension)


def _dimensions(arrays: ArrayColumns) -> list[str]:
    names = {
        name
        for text in arrays.schema.values
        for name in ArraySchema.loads(text).dimension_names
        if name is not None
    }
    return sorted(names)


# -- what becomes of it ------------------------------------------------------------------------


def _planned(facts: CatalogFacts, member: Member, wish: Wish) -> PlannedArray:
    if member.axis is None:
        _refuse_unequal(facts, member)
        mode, rows = Mode.once, member.rows[:1]
    else:
        mode = Mode.join if len(member.rows) > 1 and member.whole.all() else Mode.concat
        rows = member.rows
    axis = member.axis or 0
    has_axes = member.shapes.shape[1] > 0
    lengths = member.shapes[: len(rows), axis] if has_axes else np.ones(1, np.int64)
    starts = np.cumsum(lengths) - lengths
    shape = list(member.shapes[0].tolist())
    if member.axis is not None:
        shape[axis] = int(lengths.sum())
    schema = _with_attributes(facts, member, wish)
    edges = _edges(member, mode, shape, axis)
    if mode is Mode.concat and len(rows) > 1:
        _refuse_unaligned(facts, member, lengths, starts, edges[axis])
    if mode is Mode.join:
        schema = replace(schema, codecs=_stored_codecs(schema, facts.arrays, rows))
    path = paths.join(wish.group, member.path)
    grid = [-(-length // edge) for length, edge in zip(shape, edges, strict=True)]
    return PlannedArray(
        path=path,
        source_path=member.path,
        node_id=ObjectId8.of_content(wish.build_id.encode(), path.encode()),
        mode=mode,
        axis=axis,
        shape=tuple(shape),
        chunk_shape=tuple(edges),
        zarr_json=_zarr_json(schema, shape, edges),
        schema=schema,
        starts=starts,
        lengths=lengths,
        whole=member.whole[: len(rows)],
        whole_schema=member.whole_schema,
        window=window_of(grid, axis, wish.max_references),
        references=_counts(facts.arrays, rows),
        expected=math.prod(grid)
        if mode is Mode.join
        else _expected(facts.arrays, member, rows, edges),
    )


def _with_attributes(facts: CatalogFacts, member: Member, wish: Wish) -> ArraySchema:
    codes = dict.fromkeys(facts.arrays.schema.codes[member.rows].tolist())
    found = [ArraySchema.loads(facts.arrays.schema.values[code]).attributes for code in codes]
    return replace(
        member.schema,
        attributes=combine_attributes(
            found, wish.combine_attrs, path=member.path, keep=(*DECODING, "coordinates", "bounds")
        ),
    )


def _refuse_unequal(facts: CatalogFacts, member: Member) -> None:
    """Refuse static arrays that hold other values in other files; the first file's are used."""
    codes = facts.arrays.digest.codes[member.rows]
    unlike = codes != codes[0]
    if unlike.any() or (len(codes) > 1 and not facts.arrays.digest[int(member.rows[0])]):
        other = int(np.argmax(unlike))
        raise CombineError(
            f"variable {member.path} does not have the concatenated dimension,"
            " and its values differ between files",
            do=f"Leave it out with drop_variables=[{member.path!r}], or build the files of each"
            " grid into a group of its own.",
            variable=member.path,
            first=facts.files.url[int(facts.arrays.file[member.rows[0]])],
            other=facts.files.url[int(facts.arrays.file[member.rows[other]])],
        )


def _edges(member: Member, mode: Mode, shape: Sequence[int], axis: int) -> list[int]:
    if member.schema.chunk_shape is not None and mode is not Mode.join:
        return list(member.schema.chunk_shape)
    edges = [max(1, length) for length in shape]
    if mode is Mode.join:
        step = 8 * int(np.prod(edges, dtype=np.int64)) // edges[axis]  # 8 bytes: the widest number
        edges[axis] = min(edges[axis], max(1, JOINED_CHUNK_BYTES // max(step, 1)))
    return edges


def _refuse_unaligned(
    facts: CatalogFacts,
    member: Member,
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    edge: int,
) -> None:
    bad = starts % edge != 0
    if bad.any():
        after = int(np.argmax(bad))
        short = after - 1
        raise CombineError(
            f"the chunks of variable {member.path} do not line up: a file in the middle has"
            f" {int(lengths[short])} steps, which is no multiple of the chunk's {edge}",
            do=f"Leave the variable out with drop_variables=[{member.path!r}], or rechunk the"
            " files (nccopy -c).",
            variable=member.path,
            file=facts.files.url[int(facts.arrays.file[member.rows[short]])],
            next=facts.files.url[int(facts.arrays.file[member.rows[after]])],
        )


def _stored_codecs(
    schema: ArraySchema, arrays: ArrayColumns, rows: NDArray[np.int64]
) -> tuple[JSON, ...]:
    large = int(arrays.inline_bytes[rows].sum()) > _WORTH_COMPRESSING
    return (*schema.codecs, _STORED_CODEC) if large else schema.codecs


def _counts(arrays: ArrayColumns, rows: NDArray[np.int64]) -> ReferenceCounts:
    return ReferenceCounts(
        virtual=int(arrays.virtual[rows].sum()),
        inline=int(arrays.inline[rows].sum()),
        bytes_referenced=int(arrays.virtual_bytes[rows].sum()),
        bytes_stored=int(arrays.inline_bytes[rows].sum()),
    )


def _expected(
    arrays: ArrayColumns, member: Member, rows: NDArray[np.int64], edges: Sequence[int]
) -> int:
    """Count the references of the files; values stored whole fill chunks of the others' shape."""
    counts = arrays.virtual[rows] + arrays.inline[rows]
    whole = member.whole[: len(rows)]
    if member.schema.whole or not whole.any():
        return int(counts.sum())
    chunks = np.prod(-(-member.shapes[: len(rows)] // np.array(edges, np.int64)), axis=1)
    return int(np.where(whole, chunks, counts).sum())


def _zarr_json(schema: ArraySchema, shape: Sequence[int], edges: Sequence[int]) -> bytes:
    return ScannedArray(
        path="/",
        dimension_names=schema.dimension_names,
        shape=tuple(shape),
        chunk_shape=tuple(edges),
        data_type=schema.data_type,
        codecs=schema.codecs,
        fill_value=schema.fill_value,
        attributes=schema.attributes,
        references=ChunkTable.empty(len(shape)),
    ).zarr_json()


# -- groups ------------------------------------------------------------------------------------


def _groups(facts: CatalogFacts, order: Order, wish: Wish) -> dict[str, bytes]:
    """Return the groups of the dataset; those of later files count unless "override" was asked."""
    rows = order.rows[:1] if wish.combine_attrs == "override" else order.rows
    found: dict[str, list[ScannedGroup]] = {}
    for row in rows.tolist():
        for group in facts.groups_of(row):
            found.setdefault(group.path, []).append(group)
    return {
        paths.join(wish.group, path): groups[0].zarr_json(
            combine_attributes([each.attributes for each in groups], wish.combine_attrs, path=path)
        )
        for path, groups in found.items()
    }
