"""Decide which differences between files may be stored, at which cost, and cut the work into tasks.

Chunking and encoding may differ, because decoding and encoding again changes no value. Packing may
differ if each value survives. The meaning of values may not differ.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.amounts import size_of
from icevirt.archive.facts import ArrayColumns
from icevirt.archive.joining import NUMBERS
from icevirt.archive.plan import AxisGrid, Hybrid, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.archive.schema import DURATION, MEMBERS, ArraySchema, TimeUnits
from icevirt.errors import CombineError
from icevirt.model.json import dump
from icevirt.planning.combine.cf_packing import PACKING, can_renumber, packing_of
from icevirt.planning.combine.options import CombineOptions, CombineSpec
from icevirt.planning.normal_form import differences, normalize
from icevirt.planning.remedies import choose, leave_out
from icevirt.planning.schedule.write_tasks import window_of
from icevirt.planning.times.calendars import SINCE_REFORM
from icevirt.planning.times.recoding import counting_as
from icevirt.planning.times.targets import declare, storage_of, target_of
from icevirt.planning.times.units import missing_of, units_to_count
from icevirt.remedy_notation import write_option, write_remedy

_STORAGE = frozenset(("chunk shape", "codecs", "fill value"))
_PACKED = frozenset(("data type", MEMBERS, *(f"attribute {name}" for name in PACKING)))
WINDOW_BYTES = 256 << 20
"""Values that are stored with one manifest, on average: the work of one task."""


def permits(
    options: CombineOptions,
    path: str,
    axes: Sequence[int],
    unlike: Mapping[str, tuple[Any, Any]],
) -> bool:
    """Say whether files that differ in these facts of decoding may make one array."""
    if not axes and is_storage(unlike):
        return True  # equal values, as their digests tell, are stored once: the first file's
    if options.chunk_grid == "rectilinear" and len(axes) == 1 and set(unlike) == {"chunk shape"}:
        (axis,), (one, other) = axes, unlike["chunk shape"]
        if [*one[:axis], *one[axis + 1 :]] == [*other[:axis], *other[axis + 1 :]]:
            return True
    allowed = options.on_mismatch == "native" or options.as_floats(path)
    if MEMBERS in unlike:
        allowed = not options.as_floats(path) and allowed and can_renumber(*unlike[MEMBERS])
    return allowed and bool(axes) and set(unlike) <= _STORAGE | _PACKED


def is_storage(unlike: Iterable[str]) -> bool:
    """Say whether these differences are of how values are cut and encoded, and nothing else."""
    return set(unlike) <= _STORAGE


def is_packing(unlike: Iterable[str]) -> bool:
    """Say whether these differences are of packing, perhaps of encoding, and nothing else."""
    names = set(unlike)
    return bool(names & _PACKED) and names <= _STORAGE | _PACKED


def signature(schema: ArraySchema, *, stored: bool, but: int | None = None) -> str:
    """Return what must be alike, as text; ``but`` is an axis whose chunks may differ in length."""
    facts = normalize(schema.decode_signature(stored=stored))
    if stored and but is not None:
        facts["chunk shape"] = [n for axis, n in enumerate(facts["chunk shape"]) if axis != but]
    return json.dumps(facts, sort_keys=True)


def remedy(path: str) -> str:
    """Return what helps where too much would be stored."""
    return write_remedy(
        "Let chunks follow the files with ",
        choose(chunk_grid="rectilinear"),
        ", raise ",
        write_option("max_native_bytes"),
        ", build the files that differ into another group, or leave the variable out with ",
        leave_out(path),
        ".",
    )


def refuse_expensive(arrays: Sequence[PlannedArray], spec: CombineSpec) -> None:
    """Refuse to store more than was allowed. Raises ``CombineError`` with the numbers."""
    hybrids = [(each, each.hybrid) for each in arrays if each.hybrid is not None]
    # what the scan read is stored in any case
    costs = [
        (array.path, hybrid) for array, hybrid in hybrids if hybrid.chunks and not array.whole.all()
    ]
    total = sum(hybrid.nbytes for _, hybrid in costs)
    if total <= spec.options.max_native_bytes:
        return
    costs.sort(key=lambda each: -each[1].nbytes)
    path, worst = costs[0]
    raise CombineError(
        f"{size_of(total)} of values in {len(costs)} variables cannot be referenced and would be"
        f" stored, more than max_native_bytes={spec.options.max_native_bytes}; {path}:"
        f" {size_of(worst.nbytes)} in {worst.chunks:,} chunks, because {worst.why}",
        do=write_remedy("Or leave the variable out with ", leave_out(path), "."),
        variable=path,
        bytes_needed=total,
        bytes_to_store={path: hybrid.nbytes for path, hybrid in costs[:10]},
    )


def deviates(hybrid: Hybrid) -> bool:
    """Say whether chunks are stored though files cut, compress or pack them in several ways."""
    if not hybrid.chunks:
        return False
    stored = [each for each in hybrid.schemas if not each.whole]
    return any(
        len({signature(each, stored=by) for each in held}) > 1
        for held, by in ((stored, True), (hybrid.schemas, False))
    )


def describe_storage(arrays: Sequence[PlannedArray]) -> list[str]:
    """Return a line for each hybrid array."""
    return [_describe_array(array, array.hybrid) for array in arrays if array.hybrid is not None]


def _describe_array(array: PlannedArray, hybrid: Hybrid) -> str:
    said = []
    if hybrid.chunks:
        said.append(
            f"{hybrid.chunks:,} of {math.prod(array.grid):,} chunks ({size_of(hybrid.nbytes)} of"
            f" values) are stored, because {hybrid.why}"
        )
    if (error := max_error(hybrid)) is not None:
        off = f"; packing again could change them by up to {error:g}" if error else ""
        said.append(
            f"values that are packed differently must survive exactly, or the build stops{off}. To "
            "keep every value, store floats with float_variables, or build a group for each era"
        )
    if hybrid.bounds is not None:
        said.append("chunk lengths follow the files")
    return f"{array.path}: {'; '.join(said)}"


def max_error(hybrid: Hybrid) -> float | None:
    """Return how far values may be off that are packed anew; None where none are.

    0 where that depends on the values, because the array is not packed.
    """
    target = hybrid.target
    schemas = {signature(each, stored=False): each for each in hybrid.schemas}
    if not hybrid.chunks or signature(target, stored=False) not in schemas:  # decoded floats
        return None
    mine = target.decode_signature(stored=False)
    if not any(
        is_packing(differences(mine, each.decode_signature(stored=False)))
        for each in schemas.values()
    ):
        return None
    if isinstance(target.data_type, str) and target.data_type.startswith("float"):
        return 0.0
    scale = packing_of(target.attributes).get("scale_factor", 1.0)
    return abs(float(np.asarray(scale).reshape(-1)[0])) / 2


def stored_bytes(arrays: Sequence[PlannedArray]) -> int:
    """Return the bytes of values that are stored beside those that the scan read."""
    return sum(
        each.hybrid.nbytes
        for each in arrays
        if each.hybrid is not None and each.hybrid.chunks and not each.whole.all()
    )


def hybrid_counts(
    arrays: ArrayColumns, rows: NDArray[np.integer], hybrid: Hybrid | None
) -> ReferenceCounts:
    """Return the references that stay, as far as the driver can tell, and what is stored."""
    if hybrid is None:
        return ReferenceCounts(
            virtual=int(arrays.virtual[rows].sum()),
            inline=int(arrays.inline[rows].sum()),
            bytes_referenced=int(arrays.virtual_bytes[rows].sum()),
            bytes_stored=int(arrays.inline_bytes[rows].sum()),
        )
    plain = rows[hybrid.plain]
    stay = max(0, hybrid.scanned - hybrid.replaced)
    share = stay / hybrid.scanned if hybrid.scanned else 0.0
    return ReferenceCounts(
        virtual=min(stay, int(arrays.virtual[plain].sum())),
        native=hybrid.chunks,
        bytes_referenced=int(share * int(arrays.virtual_bytes[plain].sum())),
        bytes_stored=hybrid.nbytes,
    )


def hybrid_window(
    grid: Sequence[int], axis: int, limit: int, hybrid: Hybrid | None
) -> tuple[int, ...]:
    """Return how many chunks a manifest spans, so that no task stores much more than others."""
    window = list(window_of(grid, axis, limit))
    tasks = 0 if hybrid is None else -(-hybrid.nbytes // WINDOW_BYTES)
    if tasks > 1 and grid[axis]:
        window[axis] = max(1, min(window[axis], -(-grid[axis] // tasks)))
    return tuple(window)


def with_grid(zarr_json: bytes, grids: Sequence[AxisGrid]) -> bytes:
    """Return the document of an array with its rectilinear grid, where it has one.

    Lengths that repeat are written once, with their number.
    """
    if all(grid.bounds is None for grid in grids):
        return zarr_json
    document = json.loads(zarr_json)
    document["chunk_grid"] = {
        "name": "rectilinear",
        "configuration": {"kind": "inline", "chunk_shapes": [_run_lengths(grid) for grid in grids]},
    }
    return dump(document)


def _run_lengths(grid: AxisGrid) -> list[int | list[int]]:
    if grid.bounds is None:
        # every length as zarr sees it: also the last chunk is as long as the others
        return [[grid.edge, len(grid)]]
    sizes = np.diff(grid.bounds)
    cuts = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    runs = itertools.pairwise(cuts)
    return [
        [int(sizes[low]), high - low] if high - low > 1 else int(sizes[low]) for low, high in runs
    ]


_COUNTING = frozenset(("attribute units", "attribute calendar"))


def converts(
    options: CombineOptions,
    path: str,
    axes: Sequence[int],
    unlike: Mapping[str, tuple[Any, Any]],
    pair: tuple[ArraySchema, ArraySchema],
) -> bool:
    """Say whether files that count times differently may make one array, which is stored."""
    counts = [_find_units(each) for each in pair]
    calendars = {each.calendar for each in counts if each is not None}
    counting = _COUNTING | {"attribute dtype"} if calendars == {DURATION} else _COUNTING
    rest = {name: each for name, each in unlike.items() if name not in counting}
    return (
        bool(axes)  # one array of times that several files count otherwise is not the first's
        and None not in counts
        and (len(calendars) == 1 or calendars <= SINCE_REFORM)
        and options.on_mismatch == "native"
        and not options.as_floats(path)
        and permits(options, path, axes, rest)
    )


def counts_differ(schemas: Sequence[ArraySchema]) -> bool:
    """Say whether files count times differently."""
    counts = [_find_units(each) for each in schemas]
    return len({None if each is None else each.meaning for each in counts} - {None}) > 1


def make_stored_times(schemas: Sequence[ArraySchema], first: ArraySchema) -> ArraySchema | None:
    """Return the schema of times that all files can be converted to; None where there is none."""
    counts = [each for each in map(_find_units, schemas) if each is not None]
    storage = [(storage_of(each), missing_of(each.attributes)) for each in schemas]
    number = np.arange(len(schemas))
    target = target_of(declare(counts, storage, number, number), None)
    if target is None:
        return None
    return replace(
        first,
        data_type=target.data_type,
        fill_value="NaN" if target.fill != target.fill else target.fill or 0,
        attributes=counting_as(first.attributes, target, schemas[0].attributes),
    )


def _find_units(schema: ArraySchema) -> TimeUnits | None:
    is_number = isinstance(schema.data_type, str) and schema.data_type in NUMBERS
    return units_to_count(schema.attributes.values) if is_number else None
