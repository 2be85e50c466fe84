"""Sort rows of a data frame into cells by a shuffle of Spark, and run a function on the cells.

It does for a caller's data frame what `SparkExecutor.shuffle` does for tasks. Rows cross the
shuffle in compressed blocks; an error of icevirt comes back as itself.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icevirt.errors import IcevirtError
from icevirt.execution.executor import results_of
from icevirt.execution.spark_executor import SparkExecutor, spread
from icevirt.execution.spark_failures import explained, host_of_failure
from icevirt.execution.spark_session import errors_of_spark, words_of
from icevirt.tasks.references.cells import CellWriter, write_cells
from icevirt.tasks.references.incoming import Incoming
from icevirt.tasks.references.targets import WrittenCell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BLOCK_TYPES: list[tuple[str, Any]] = [
    ("id", pa.int32()),
    ("spread", pa.int32()),
    ("array", pa.int32()),
    ("cell", pa.int64()),
    ("ok", pa.bool_()),
    ("payload", pa.binary()),
]
_BLOCK = pa.schema(_BLOCK_TYPES)
_BLOCK_DDL = "id int, spread int, array int, cell bigint, ok boolean, payload binary"
_RESULT_TYPES: list[tuple[str, Any]] = [
    ("id", pa.int32()),
    ("ok", pa.bool_()),
    ("payload", pa.binary()),
]
_RESULT = pa.schema(_RESULT_TYPES)
_RESULT_DDL = "id int, ok boolean, payload binary"


def written_by(
    frame: DataFrame, incoming: Incoming, writer: CellWriter, tasks: int, executor: SparkExecutor
) -> tuple[WrittenCell, ...]:
    """Write all rows of a data frame as manifests; return one result for each cell.

    Args:
        frame: Columns as `Incoming.blocks` takes them.
        incoming: Checks and sorts rows, where the data frame's partitions are.
        writer: Writes cells, behind the shuffle.
        tasks: How many tasks write.
        executor: Of the data frame's session.

    Raises:
        InvalidInputError: A row is wrong; the first task's that found one.
        SparkJobError: Spark failed.
    """
    sent = frame.mapInArrow(executor.guarded(_mapping(pickle.dumps(incoming), tasks)), _BLOCK_DDL)
    moved = sent.repartition(tasks, "spread")
    work = pickle.dumps((writer, incoming.targets))
    try:
        rows = moved.mapInArrow(executor.guarded(_reducing(work)), _RESULT_DDL).collect()
    except errors_of_spark() as error:
        raise explained(words_of(error), host_of_failure(frame.sparkSession)) from error
    found: list[tuple[WrittenCell, ...]] = results_of(
        [(row["id"], row["ok"], bytes(row["payload"])) for row in rows]
    )
    return tuple(cell for cells in found for cell in cells)


def _mapping(incoming: bytes, tasks: int) -> Any:
    """Return what sorts the rows of a partition; all tasks hear of an error, and write nothing."""

    def sent(to: int, array: int, cell: int, payload: bytes, *, ok: bool) -> pa.RecordBatch:
        values = (to, spread(tasks)[to], array, cell, ok, payload)
        return _row(_BLOCK, values)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sorting: Incoming = pickle.loads(incoming)  # noqa: S301  # made by `written_by`
        first = sorting.first_cells()
        try:
            for block in sorting.blocks(batches):
                to = (first[block.array] + block.cell) % tasks
                yield sent(to, block.array, block.cell, block.payload, ok=True)
        except IcevirtError as error:
            raised = pickle.dumps(error)
            yield from (sent(to, -1, -1, raised, ok=False) for to in range(tasks))

    return run


def _reducing(work: bytes) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: dict[int, dict[tuple[int, int], list[bytes]]] = defaultdict(dict)
        failed: dict[int, bytes] = {}
        for batch in batches:
            for row in batch.to_pylist():
                if not row["ok"]:
                    failed[row["id"]] = min(failed.get(row["id"], row["payload"]), row["payload"])
                    continue
                own = blocks[row["id"]]
                own.setdefault((row["array"], row["cell"]), []).append(row["payload"])
        for number in sorted({*blocks, *failed}):
            ok, payload = _written(number, work, blocks.pop(number, {}), failed)
            yield _row(_RESULT, (number, ok, payload))

    return run


def _written(
    number: int,
    work: bytes,
    blocks: dict[tuple[int, int], list[bytes]],
    failed: dict[int, bytes],
) -> tuple[bool, bytes]:
    if number in failed:
        return False, failed[number]
    writer, targets = pickle.loads(work)  # noqa: S301  # made by `written_by`
    try:
        return True, pickle.dumps(tuple(write_cells(writer, targets, blocks)))
    except IcevirtError as error:
        return False, pickle.dumps(error)


def _row(wanted: pa.Schema, values: Sequence[Any]) -> pa.RecordBatch:
    arrays = [pa.array([value], field.type) for value, field in zip(values, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
