"""Shuffle rows between tasks of one machine, through files of a private directory.

Each mapper writes its rows into a file of its own and returns where they lie, so that no row passes
through the driver. A mapper that is tried again writes another file.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from icevirt.execution.executor import Done, Executor
from icevirt.storage.protocol import Storage

type _Span = tuple[str, int, int]  # path of a file, offset and length of a row in it


class LocalShuffle:
    """The shuffle of executors on one machine."""

    def shuffle[M, T, R](
        self: Executor,
        mapper: Callable[[M, int], Iterator[tuple[int, bytes]]],
        maps: Sequence[M],
        function: Callable[[T, list[bytes]], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run mappers, then every task with the rows for it; see `Executor.shuffle`."""
        del storage  # nothing leaves the machine
        with tempfile.TemporaryDirectory(prefix="icevirt-shuffle-") as folder:
            spans: dict[int, list[_Span]] = defaultdict(list)
            for sent in self.run(partial(_map, mapper, folder), enumerate(maps)):
                for to, span in sent:
                    spans[to].append(span)
            given = ((task, spans[number]) for number, task in enumerate(tasks))
            return self.run(partial(_reduce, function), given, progress=progress)


def _map[M](
    mapper: Callable[[M, int], Iterator[tuple[int, bytes]]], folder: str, numbered: tuple[int, M]
) -> list[tuple[int, _Span]]:
    """Write the rows of a mapper; return the number of the task of each, and where it lies."""
    number, task = numbered
    sent: list[tuple[int, _Span]] = []
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        for to, row in mapper(task, number):
            sent.append((to, (file.name, file.tell(), len(row))))
            file.write(row)
    return sent


def _reduce[T, R](function: Callable[[T, list[bytes]], R], given: tuple[T, list[_Span]]) -> R:
    task, spans = given
    return function(task, [_row(*span) for span in spans])


def _row(path: str, offset: int, length: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(offset)
        return file.read(length)
