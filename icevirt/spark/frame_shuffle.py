"""Sort rows of a data frame into cells by a shuffle of Spark, and run a function on the cells.

It does for a caller's data frame what `SparkExecutor.shuffle` does for tasks. Rows cross the
shuffle in compressed blocks; an error of icevirt comes back as itself.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icevirt.errors import IcevirtError
from icevirt.execution.executor import located, run_pickled
from icevirt.execution.spark_executor import RESULT, SparkExecutor, result_row, spread
from icevirt.tasks.references.cells import CellWriter, write_cells
from icevirt.tasks.references.incoming import Incoming
from icevirt.tasks.references.targets import TargetArray, WrittenCell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

type _Blocks = dict[tuple[int, int], list[bytes]]  # by number of the array and cell
type _Work = tuple[CellWriter, Sequence[TargetArray]]

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
    named = not executor.is_local
    mapping = _mapping(pickle.dumps(incoming), tasks, names_host=named)
    reducing = _reducing(pickle.dumps((writer, incoming.targets)), names_host=named)
    sent = frame.mapInArrow(executor.guarded(mapping), _BLOCK_DDL)
    moved = sent.repartition(tasks, "spread")
    done: list[tuple[WrittenCell, ...]] = executor.results(
        moved.mapInArrow(executor.guarded(reducing), RESULT)
    )
    return tuple(cell for cells in done for cell in cells)


def _mapping(incoming: bytes, tasks: int, *, names_host: bool) -> Any:
    """Return what sorts the rows of a partition; all tasks hear of an error, and write nothing."""

    def sent(to: int, array: int, cell: int, payload: bytes, *, ok: bool) -> pa.RecordBatch:
        values = (to, spread(tasks)[to], array, cell, ok, payload)
        arrays = [pa.array([each], field.type) for each, field in zip(values, _BLOCK, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_BLOCK)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sorting: Incoming = pickle.loads(incoming)  # noqa: S301  # made by `written_by`
        first = sorting.first_cells()
        try:
            for block in sorting.blocks(batches):
                to = (first[block.array] + block.cell) % tasks
                yield sent(to, block.array, block.cell, block.payload, ok=True)
        except IcevirtError as error:
            raised = pickle.dumps(located(error) if names_host else error)
            yield from (sent(to, -1, -1, raised, ok=False) for to in range(tasks))

    return run


def _reducing(work: bytes, *, names_host: bool) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks: dict[int, _Blocks] = defaultdict(dict)
        failed: dict[int, bytes] = {}
        for batch in batches:
            for row in batch.to_pylist():
                if not row["ok"]:
                    failed[row["id"]] = min(failed.get(row["id"], row["payload"]), row["payload"])
                    continue
                own = blocks[row["id"]]
                own.setdefault((row["array"], row["cell"]), []).append(row["payload"])
        for number in sorted({*blocks, *failed}):
            if number in failed:
                yield result_row(number, ok=False, payload=failed[number])
                continue
            received = blocks.pop(number)
            ok, payload = run_pickled(_write, work, pickle.loads, received, names_host=names_host)
            yield result_row(number, ok=ok, payload=payload)

    return run


def _write(work: _Work, blocks: Mapping[tuple[int, int], Sequence[bytes]]) -> tuple[Any, ...]:
    return tuple(write_cells(*work, blocks))
