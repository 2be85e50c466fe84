"""Estimate the cost of a plan: work, memory, storage, and requests of its readers.

Pure arithmetic over the plan's columns: nothing depends on the number of references, and a million
files only enter as sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from icevirt.amounts import volume
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.reports.build import ArrayCost, PlanCost, ReadCost, ReferenceCounts
from icevirt.planning.remedies import list_names
from icevirt.planning.schedule.write_tasks import manifests_of, route_of

SMALL_CHUNK = 10 * 1024
"""Bytes; of smaller chunks a reader waits for requests and not for data."""

LARGE_CHUNK = 256 * 1024**2
"""Bytes; of larger chunks a reader holds far more than it asked for, and cannot read a part."""

_PER_REFERENCE = 200  # bytes that a task holds; the table and its manifest take 150 of them
_PER_FILE_OF_TASK = 100  # bytes beside the name: places, checksum, and where the catalog has it
_READING = 48 << 20  # bytes of the catalog that a task keeps at most
_READ_OF_REFERENCE = 24  # bytes
_NAMES = 2  # times that a name is held: as it was read, and in what is encoded
_PER_FILE = 300  # bytes that a driver holds beside names
_PER_ARRAY_OF_FILE = 30
_COPIES = 3  # of values that are joined: pieces, the whole, chunks
_SHOWN = 5  # arrays in a warning


def costs_of(plan: BuildPlan) -> PlanCost:
    """Return what executing a plan takes, and reading its dataset afterwards."""
    references = sum((array.written for array in plan.arrays), ReferenceCounts())
    of_arrays = tuple(map(_array, plan.arrays))
    routing = route_of(plan)
    return PlanCost(
        files=len(plan.files),
        arrays=len(plan.arrays),
        references=references,
        windows=sum(map(windows_of, plan.arrays)),
        route=routing.kind.value,
        route_description=routing.describe(),
        bytes_stored=references.bytes_stored,
        scan_tasks=len(plan.files.parts),
        write_tasks=manifests_of(plan),
        task_memory=max((_task_memory(plan, array) for array in plan.arrays), default=0),
        driver_memory=2 * (plan.files.url.data.nbytes + plan.files.etag.data.nbytes)
        + _PER_FILE * len(plan.files)
        + _PER_ARRAY_OF_FILE * sum(len(array.files) for array in plan.arrays),
        of_arrays=of_arrays,
        warnings=tuple(_warn(plan, of_arrays)),
    )


def windows_of(array: PlannedArray) -> int:
    """Return how many windows the chunk grid of an array is cut into."""
    return math.prod(
        -(-chunks // edge) for chunks, edge in zip(array.grid, array.window, strict=True)
    )


def _array(array: PlannedArray) -> ArrayCost:
    counts = array.written
    mean = counts.bytes_referenced // counts.virtual if counts.virtual else 0
    stored = -(-(counts.bytes_referenced + counts.bytes_stored) // max(1, math.prod(array.grid)))
    steps = array.axes or ((0,) if array.mode is ArrayMode.given and array.shape else ())
    others = [axis for axis in range(len(array.shape)) if axis not in steps]
    points = math.prod(array.shape[axis] for axis in others)
    return ArrayCost(
        path=array.path,
        bytes_per_chunk=mean,
        points=points,
        map=_access(array, others, stored) if steps else None,
        series=_access(array, steps, stored) if steps else None,
    )


def _access(array: PlannedArray, axes: Sequence[int], stored: int) -> ReadCost:
    """Return what reading everything along some axes takes, at one place of the others."""
    chunks = math.prod(array.grid[axis] for axis in axes)
    manifests = math.prod(-(-array.grid[axis] // array.window[axis]) for axis in axes)
    return ReadCost(chunks=chunks, manifests=manifests, bytes=chunks * stored)


# -- memory --------------------------------------------------------------------------------------


def _task_memory(plan: BuildPlan, array: PlannedArray) -> int:
    """Return what a task holds for one window: references, the files they lie in, and values."""
    inside = math.prod(map(min, array.grid, array.window))
    references = min(inside, array.references.total or inside)
    total = sum(each.references.total for each in plan.arrays)
    reading = min(_READING, _READ_OF_REFERENCE * total)
    if array.mode is ArrayMode.join:
        values = math.prod(array.shape) * _width(array)
        return reading + _PER_FILE_OF_TASK * len(array.files) + _COPIES * values
    share = math.prod(min(1.0, array.window[a] / max(1, array.grid[a])) for a in array.axes)
    files = min(math.ceil(share * len(array.files)), references)
    name = (plan.files.url.data.nbytes + plan.files.etag.data.nbytes) / max(1, len(plan.files))
    of_files = int(files * (_PER_FILE_OF_TASK + _NAMES * name))
    return reading + references * _PER_REFERENCE + of_files


def _width(array: PlannedArray) -> int:
    """Return the bytes of one value; 8 where that depends on the value."""
    try:
        return np.dtype(str(array.schema.data_type)).itemsize or 8
    except (TypeError, ValueError):
        return 8


# -- warnings ------------------------------------------------------------------------------------


def _warn(plan: BuildPlan, costs: Sequence[ArrayCost]) -> Iterator[str]:
    small, large = [], []
    for array, cost in zip(plan.arrays, costs, strict=True):
        mean, whole = cost.bytes_per_chunk, math.prod(array.chunk_shape) * _width(array)
        if 0 < mean < SMALL_CHUNK and math.prod(array.grid) > 1:
            small.append(f"{cost.path} ({volume(mean)})")
        if mean and max(mean, whole) > LARGE_CHUNK:
            large.append(f"{cost.path} ({volume(max(mean, whole))})")
    if small:
        yield (
            f"chunks of {list_names(small, _SHOWN)} hold less than 10 KiB on average: a reader"
            " spends its time on requests. If they are read often, store larger ones"
            " with `materialize`, or rewrite the files"
        )
    if large:
        yield (
            f"chunks of {list_names(large, _SHOWN)} hold more than 256 MiB: a reader loads a whole "
            "chunk to read one point. Store smaller ones with `materialize`, or rewrite the files"
        )
