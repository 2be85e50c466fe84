"""Assemble, encode and store the chunks of hybrid arrays that are no references.

Values are assembled in slabs of a few chunks, so memory stays bounded whatever the array's size,
and each chunk goes to the repository as soon as it is encoded. Its name covers its bytes, which
follow from the values and the array's metadata: another attempt writes the same objects. With any
codec, what is stored decodes to the values that were read, or the build stops.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import FileColumns
from icevirt.archive.index_shift import IndexShift
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.plan import FileRows, WindowTask
from icevirt.archive.schema import ArraySchema
from icevirt.catalog.task_inputs import WindowBlocks
from icevirt.errors import CombineError, FormatError
from icevirt.model.attributes import members_of
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import Extents
from icevirt.planning.combine.cf_packing import (
    LostValues,
    NoMemberError,
    decode,
    packing_of,
    renumber,
    repack,
    same_packing,
)
from icevirt.planning.meaning.index_shifts import BeyondError, numbers_of_none, shift_values
from icevirt.planning.meaning.local_indices import START
from icevirt.planning.partial.chunk_alignment import native_chunks, slabs
from icevirt.planning.partial.storage_cost import counts_differ
from icevirt.planning.remedies import drop_window_fix, fix
from icevirt.planning.times.instants import InexactError, recode
from icevirt.planning.times.units import missing_of, units_to_count
from icevirt.remedy_notation import write_code, write_option, write_remedy
from icevirt.tasks.chunk_encoding import (
    ChunkEncoder,
    Sink,
    chunks_of,
    decode_whole,
    fill_of,
    inline_table,
    store_large,
)
from icevirt.tasks.source_values import Reading, SourceValues, refuse_other_dtype


def rechunk(  # noqa: PLR0917 - one window and where it comes from
    referenced: ChunkTable,
    refs: WindowBlocks,
    files: FileColumns,
    window: WindowTask,
    sink: Sink,
    how: Reading,
) -> tuple[ChunkTable, int]:
    """Return the chunks of a window of a hybrid array, and how many references were replaced.

    Args:
        referenced: The references of the plain files.
        refs: Of the catalog.
        files: Of the item, where they are read.
        window: What is written.
        sink: Where stored chunks go.
        how: Files are read.

    Raises:
        CombineError: Values do not survive.
        SourcesChangedError: A file changed since the scan.
        ScanError: A file cannot be read.
    """
    assert window.hybrid is not None
    axes, takes = window.axes, window.takes
    chunks = native_chunks(
        [window.grids[axis] for axis in axes],
        window.starts[takes],
        window.lengths[takes],
        window.hybrid.plain[takes],
        box=[window.box[axis] for axis in axes],
        own_edges=window.hybrid.edges(axes[0], window.chunk_shape[axes[0]])[takes],
    )
    there = referenced.index[:, list(axes)].astype(np.int64)
    sizes = tuple((np.maximum(there.max(0, initial=0), chunks.max(0, initial=0)) + 1).tolist())
    numbers, replaced = (np.ravel_multi_index(tuple(each.T), sizes) for each in (there, chunks))
    kept = referenced.take(~np.isin(numbers, replaced))
    dtype = _dtype(window.hybrid.target)
    with SourceValues(files, how) as source:
        assembly = _Assembly(window, files, source, refs)
        document = json.loads(window.zarr_json)
        encoder, fill = ChunkEncoder(document), fill_of(document)
        tables = [kept] if len(kept) else []
        for box in slabs(chunks, axes, window.box, window.grids, dtype.itemsize):
            made: dict[tuple[int, ...], bytes] = {}
            for index, chunk in chunks_of(*assembly.values(box), box, window.grids, fill):
                try:
                    made[index] = encoder.encode(np.ascontiguousarray(chunk))
                except ValueError as error:
                    path = window.source_path
                    raise CombineError(
                        f"the codecs of {path} do not reproduce the encoded values: {error}",
                        fixes=[drop_window_fix(window.source_path, window.reads)],
                        do="You can also build the files that differ into another group.",
                        variable=path,
                    ) from error
            tables.append(store_large(inline_table(made, len(window.box)), sink))
    table = ChunkTable.concatenate(tables) if tables else kept
    return table, len(referenced) - len(kept)


class _Assembly:
    """Values of the array, from whatever files they lie in."""

    def __init__(
        self, window: WindowTask, files: FileColumns, source: SourceValues, refs: WindowBlocks
    ) -> None:
        assert window.hybrid is not None
        self._window, self._hybrid, self._files = window, window.hybrid, files
        self._source, self._refs = source, refs
        hybrid, self._dtype = window.hybrid, _dtype(window.hybrid.target)
        self._packing = packing_of(hybrid.target.attributes)
        self._alike = [
            each.data_type == hybrid.target.data_type
            and same_packing(packing_of(each.attributes), self._packing)
            and not counts_differ([each, hybrid.target])
            and members_of(each.attributes) == members_of(hybrid.target.attributes)
            for each in hybrid.schemas
        ]
        self._read: dict[int, bytes] = {}  # by file, of those that the scan read in one slab
        self._fill = fill_of(
            {"data_type": hybrid.target.data_type, "fill_value": hybrid.target.fill_value}
        )

    def values(self, box: Extents) -> tuple[NDArray[Any], tuple[int, ...]]:
        """Return the values in a box of chunks, and the element at which it begins."""
        grids = self._window.grids
        low = [int(grid.begins(b)) for grid, (b, _) in zip(grids, box, strict=True)]
        high = [int(grid.begins(e)) for grid, (_, e) in zip(grids, box, strict=True)]
        made = np.full([h - w for w, h in zip(low, high, strict=True)], self._fill, self._dtype)
        axes = list(self._window.axes)
        starts, ends = self._window.starts, self._window.starts + self._window.lengths
        lows, highs = np.array(low)[axes], np.array(high)[axes]
        there = self._window.takes & ((starts < highs) & (ends > lows)).all(axis=1)
        recorded = there & self._window.whole
        found = self._refs.of(FileRows.of(self._files), self._window, recorded)
        self._read = {}
        for block in found if recorded.any() else ():
            for row in np.flatnonzero(block.kind == ChunkType.inline).tolist():
                start, size = int(block.offset[row]), int(block.length[row])
                raw = block.data[start : start + size].tobytes()
                self._read[int(block.file[row])] = raw
        for place in np.flatnonzero(there).tolist():
            here = [slice(0, h - w) for w, h in zip(low, high, strict=True)]
            inside = [slice(w, h) for w, h in zip(low, high, strict=True)]
            for at, axis in enumerate(axes):
                start = int(starts[place, at])
                begin, end = max(low[axis], start), min(high[axis], int(ends[place, at]))
                here[axis] = slice(begin - low[axis], end - low[axis])
                start -= 0 if self._window.skips is None else int(self._window.skips[place, at])
                inside[axis] = slice(begin - start, end - start)
            made[tuple(here)] = self._in_packing(place, self._of_file(place, tuple(inside)))
        return made, tuple(low)

    def _of_file(self, place: int, region: tuple[slice, ...]) -> NDArray[Any]:
        """Return a box of one file's share, as the file packs it."""
        schema = self._hybrid.schemas[int(self._hybrid.own[place])]
        dtype = _dtype(schema)
        path, url = self._window.path_in(place), self._files.url[place]
        if schema.whole:
            shape = list(self._window.shape)
            for at, axis in enumerate(self._window.axes):
                shape[axis] = int(self._window.in_files[place, at])
            if place not in self._read:
                raise FormatError(
                    "the catalog lacks values that the plan needs",
                    do="Delete the catalog and scan again.",
                    variable=self._window.source_path,
                    file=url,
                )
            return decode_whole(schema, tuple(shape), self._read[place])[region]
        own = region[self._hybrid.new_axes :]
        within = tuple(part for axis, part in enumerate(own) if axis not in schema.lacks)
        values = self._source.read(place, path, within)
        values = refuse_other_dtype(values, dtype, path=path, url=url)
        return values.reshape([part.stop - part.start for part in region])

    def _in_packing(self, place: int, values: NDArray[Any]) -> NDArray[Any]:
        """Return values as the array packs them.

        Raises:
            CombineError: One of them has no exact counterpart.
        """
        own = int(self._hybrid.own[place])
        if self._hybrid.shift is not None:
            return self._shift(place, values, self._hybrid.schemas[own], self._hybrid.shift)
        if self._alike[own]:
            return values
        schema, target = self._hybrid.schemas[own], self._hybrid.target
        if counts_differ([schema, target]):
            return self._as_times(place, schema, values)
        path = self._window.source_path
        try:
            values = renumber(values, schema.attributes, target.attributes)
        except NoMemberError as error:
            raise CombineError(
                f"a member of the enumeration {path} has no number in the dataset: {error}",
                fixes=[fix("a group for each enumeration", on_mismatch="eras")],
                variable=path,
                file=self._files.url[place],
            ) from error
        theirs = packing_of(schema.attributes)
        found = repack(decode(values, theirs), self._dtype, self._packing)
        if not isinstance(found, LostValues):
            return found
        raise CombineError(
            f"{found.count:,} values of {path} cannot be packed like the other files' values; the "
            f"maximum error would be {found.maximum_error:g}",
            do=write_remedy(
                "Build the deviating files into another group, or store the variable"
                " as decoded floats with ",
                write_code(f"float_variables=[{path!r}]", f"--float-variable {path}"),
                ".",
            ),
            variable=path,
            file=self._files.url[place],
            value=found.first,
            maximum_error=found.maximum_error,
            packing={name: str(value) for name, value in theirs.items()},
            of_the_array={name: str(value) for name, value in self._packing.items()},
        )

    def _shift(
        self, place: int, values: NDArray[Any], schema: ArraySchema, shift: IndexShift
    ) -> NDArray[Any]:
        missing = numbers_of_none(schema)
        try:
            return shift_values(values, shift, place, missing=missing, dtype=self._dtype)
        except BeyondError as error:
            path, first, count = (
                self._window.source_path,
                int(shift.first[place]),
                int(shift.count[place]),
            )
            raise CombineError(
                f"{path} has the number {error}, but its file has {count:,} elements along"
                f" {shift.dimension!r}, from {first} to {first + count - 1}",
                fixes=[drop_window_fix(path, self._window.reads)],
                do=write_remedy(
                    "If the file counts from another number, say so: ",
                    write_code(
                        f'attrs={{"{path}": {{"{START}": {1 - first}}}}}',
                        f"--attr {path}:{START}={1 - first}",
                    ),
                    "; if it numbers something else, name that in ",
                    write_option("index_of"),
                    ".",
                ),
                variable=path,
                file=self._files.url[place],
            ) from error

    def _as_times(self, place: int, schema: ArraySchema, values: NDArray[Any]) -> NDArray[Any]:
        source = units_to_count(schema.attributes.values)
        target = units_to_count(self._hybrid.target.attributes.values)
        assert source is not None
        assert target is not None
        try:
            return recode(
                values,
                source,
                target,
                dtype=self._dtype,
                missing=missing_of(schema.attributes),
                fill=self._packing.get("_FillValue"),
            )
        except InexactError as error:
            path = self._window.source_path
            raise CombineError(
                f"a time of {path} cannot be converted to the units of the other files: {error}",
                do="Build the deviating files into another group.",
                variable=path,
                file=self._files.url[place],
            ) from error


def _dtype(schema: ArraySchema) -> np.dtype[Any]:
    dtype = find_fixed_dtype(schema.data_type)
    assert dtype is not None, "the plan stores no values of other types"
    return dtype
