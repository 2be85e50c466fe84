"""Batch asynchronous reads: one lookup for all requests of an event-loop turn.

Bytes that the kernel holds in memory are read at once, because a hop to a thread costs more than
most local reads. Reads that block run in a thread, in a few if they take long, and remote reads are
fetched together. One failure fails one request.

zarr requests all chunks of an array, ten at a time, and raises the first error. Its other requests
stay in its event loop, which runs in a thread of its own. When the process ends then, Python
reports each one as a task that was destroyed or whose exception was never retrieved: hundreds of
lines below the error. The same follows an interrupted read. So readers that are left are cancelled
before zarr stops its loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from operator import sub
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from zarr.abc.store import ByteRequest

from icevirt.access.store.keys import GroupedRequests, Request, sort_out
from icevirt.access.store.locating import InMemory, InObject, InSource, Range, is_away
from icevirt.access.store.reading import SessionReader
from icevirt.threads import interruption_callbacks, run_in_thread

if TYPE_CHECKING:
    from icevirt.access.store.network_batcher import NetworkBatcher
    from icevirt.objects.answers import Body


_THREADS = 4
_WORTH = 0.001  # seconds of reading, below which more threads cost more than they save
_QUICK = 256 * 1024  # bytes that are copied sooner than handed to a thread


type Outcome = Range | Exception | None
"""What is known of a request: where to read it, why not, or that nothing was written."""


class _Waiting(NamedTuple):
    """A caller that waits for a value."""

    request: Request
    answer: Future[Body | None]

    def give(self, body: Body | Exception | None) -> None:
        """Answer, unless the caller is gone. Only in the thread of the loop."""
        if self.answer.done():
            return
        if isinstance(body, Exception):
            self.answer.set_exception(body)
        else:
            self.answer.set_result(body)


class RequestBatcher:
    """Collects the requests of each event loop and answers them together."""

    def __init__(self, reader: SessionReader) -> None:
        self._reader = reader
        self._collected: dict[AbstractEventLoop, list[_Waiting]] = {}
        self._away: WeakKeyDictionary[AbstractEventLoop, NetworkBatcher] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._threads = ReadingThreads()
        # arrays that a thread looks into, and what waits until it has
        self._busy: WeakKeyDictionary[AbstractEventLoop, set[str]] = WeakKeyDictionary()
        self._postponed: WeakKeyDictionary[AbstractEventLoop, list[_Waiting]] = WeakKeyDictionary()

    async def read(self, key: str, byte_range: ByteRequest | None) -> Body | None:
        """Return the value of a key; None where nothing was written."""
        loop = asyncio.get_running_loop()
        answer: Future[Body | None] = loop.create_future()
        collected = self._collected.setdefault(loop, [])
        collected.append(_Waiting((key, byte_range), answer))
        if len(collected) == 1:
            loop.call_soon(lambda: self._answer(self._collected.pop(loop), loop))
            end_with_process(loop)
        return await answer

    def _answer(self, waiting: Sequence[_Waiting], loop: AbstractEventLoop) -> None:
        """Answer requests, or begin to; an error answers all callers."""
        try:
            wanted = sort_out([one.request for one in waiting])
            if not self._reader.is_at_hand(wanted):
                self._look_up(waiting, wanted, loop)
                return
            found = self._locate(wanted)
            # a lone reader gains nothing from threads; several copy large chunks side by side
            most = _QUICK if self._tasks or len(waiting) > 1 else None
            pairs = zip(waiting, found, strict=True)
            self._read([pair for pair in pairs if not _at_once(*pair, most)], loop)
        except Exception as error:  # noqa: BLE001 - each request gets it
            _give_all(waiting, error)

    def _look_up(
        self, waiting: Sequence[_Waiting], wanted: GroupedRequests, loop: AbstractEventLoop
    ) -> None:
        """Begin to answer where manifests have to be fetched, decompressed or decoded.

        One thread at a time looks into an array. Several would make room for one another's
        manifests; and what is requested meanwhile is looked up together.
        """
        arrays, busy = {chunks.path for chunks in wanted.chunks}, self._busy.setdefault(loop, set())
        if not busy.isdisjoint(arrays):
            self._postponed.setdefault(loop, []).extend(waiting)
            return
        busy |= arrays

        def work(wanted: GroupedRequests) -> list[Outcome]:
            return self._threads.read_here(self._locate(wanted))

        task = start_task(_or_error(work, wanted, len(waiting)), self._tasks)
        # called even where the task was cancelled before it began
        task.add_done_callback(partial(self._answer_looked_up, waiting, arrays, loop))

    def _answer_looked_up(
        self,
        waiting: Sequence[_Waiting],
        arrays: set[str],
        loop: AbstractEventLoop,
        task: asyncio.Task[list[Outcome]],
    ) -> None:
        """Answer what a thread looked up and perhaps read, and what was requested meanwhile."""
        self._busy[loop] -= arrays
        postponed = self._postponed.pop(loop, [])
        if task.cancelled():
            _fail_unanswered([*waiting, *postponed], task)
            return
        if postponed:
            self._answer(postponed, loop)
        try:
            pairs = zip(waiting, task.result(), strict=True)
            self._read([pair for pair in pairs if not _is_given(*pair)], loop)
        except Exception as error:  # noqa: BLE001 - each request gets it
            _give_all(waiting, error)

    def _read(self, pairs: Sequence[tuple[_Waiting, Outcome]], loop: AbstractEventLoop) -> None:
        """Begin to read what has to be waited for."""
        if slow := self._send_away(pairs, loop):
            task = start_task(self._threads.read(slow), self._tasks)
            task.add_done_callback(partial(_fail_unanswered, [waiting for waiting, _ in slow]))

    def _send_away(
        self, pairs: Sequence[tuple[_Waiting, Outcome]], loop: AbstractEventLoop
    ) -> list[tuple[_Waiting, Outcome]]:
        """Let the network answer what lies elsewhere; return the others."""
        away = [(one, waiting.give) for waiting, one in pairs if is_away(one)]
        if not away:
            return list(pairs)
        from icevirt.access.store.network_batcher import NetworkBatcher

        self._away.setdefault(loop, NetworkBatcher(start_task)).fetch(away)
        return [pair for pair in pairs if not is_away(pair[1])]

    def _locate(self, wanted: GroupedRequests) -> list[Outcome]:
        """Find out where to read; if that fails for one request, only that one fails."""
        try:
            return list(self._reader.locate(wanted))
        except Exception as error:  # noqa: BLE001 - each request gets it
            if len(wanted.requests) == 1:
                return [error]
        # not while the error is handled: each one's own would be shown with it
        return [self._locate(sort_out([request]))[0] for request in wanted.requests]


def _fail_unanswered(waiting: Sequence[_Waiting], task: asyncio.Task[Any]) -> None:
    """Let no caller wait forever, whatever happened to what answers them."""
    if task.cancelled():  # with its loop
        for one in waiting:
            one.answer.cancel()
    elif isinstance(error := task.exception(), Exception):
        _give_all(waiting, error)


def _give_all(waiting: Sequence[_Waiting], error: Exception) -> None:
    for one in waiting:
        one.give(error)


def _is_given(waiting: _Waiting, found: Outcome) -> bool:
    """Answer with what was looked up or read; say whether it was more than a place."""
    is_place = isinstance(found, InObject | InSource) or is_away(found)
    return not is_place and _at_once(waiting, found, None)


def _at_once(waiting: _Waiting, found: Outcome, most: int | None) -> bool:
    """Answer if that needs no waiting and at most so many bytes; say whether it did."""
    if found is None or isinstance(found, Exception):
        waiting.give(found)
        return True
    if (most is not None and found.length > most) or (body := found.now()) is None:
        return False
    waiting.give(body)
    return True


class ReadingThreads:
    """Read in threads: one, or a few where reads took long the last time.

    In Python threads take turns, so opening files that are in the page cache takes twice the
    processor time in four of them.
    """

    def __init__(self) -> None:
        self._usual = 0.0  # seconds that a read takes

    def shares(self, count: int) -> int:
        """Return how many threads share so many reads."""
        return min(count, _THREADS) if count * self._usual > _WORTH else 1

    def read_here(self, found: Sequence[Outcome]) -> list[Outcome]:
        """Read what one thread should read in this one; blocks."""
        rows = [row for row, one in enumerate(found) if isinstance(one, InObject | InSource)]
        done = list(found)
        if rows and self.shares(len(rows)) == 1:
            bodies, self._usual = _read_timed([found[row] for row in rows])
            for row, body in zip(rows, bodies, strict=True):
                done[row] = body if body is None or isinstance(body, Exception) else InMemory(body)
        return done

    async def read(self, pairs: Sequence[tuple[_Waiting, Outcome]]) -> None:
        """Read, each thread a run of neighbours, and answer each run as it is done."""
        if not pairs:
            return
        size = -(-len(pairs) // self.shares(len(pairs)))
        runs = [pairs[at : at + size] for at in range(0, len(pairs), size)]
        # the quickest waited least for others, whose turn it was
        self._usual = min(await asyncio.gather(*map(_one_thread, runs)))


async def _one_thread(pairs: Sequence[tuple[_Waiting, Outcome]]) -> float:
    """Read and answer, and return the seconds that a read took."""
    took = 0.0

    def read(found: Sequence[Outcome]) -> list[Body | Exception | None]:
        nonlocal took
        bodies, took = _read_timed(found)
        return bodies

    bodies = await _or_error(read, [found for _, found in pairs], len(pairs))
    for (waiting, _), body in zip(pairs, bodies, strict=True):
        waiting.give(body)
    return took


def _read_timed(found: Sequence[Outcome]) -> tuple[list[Body | Exception | None], float]:
    """Read, and return the seconds that half of the reads took at most."""
    bodies, ends = [], [time.perf_counter()]
    for one in found:
        bodies.append(_read(one))
        ends.append(time.perf_counter())
    return bodies, sorted(map(sub, ends[1:], ends))[(len(found) - 1) // 2]


def _read(found: Outcome) -> Body | Exception | None:
    if found is None or isinstance(found, Exception):
        return found
    try:
        return found.wait()
    except Exception as error:  # noqa: BLE001 - the request gets it
        return error


async def _or_error[A, B](
    work: Callable[[A], list[B | Exception]], arguments: A, count: int
) -> list[B | Exception]:
    """Run ``work`` in a thread; if no thread can be started, each request gets that error."""
    try:
        return await run_in_thread(work, arguments)
    except RuntimeError as error:
        return [error] * count


_PATIENCE = 1.0  # seconds that the end of a process waits for them

_background: WeakSet[Task[Any]] = WeakSet()
_readers: WeakKeyDictionary[AbstractEventLoop, set[CodeType]] = WeakKeyDictionary()


def start_task[T](work: Coroutine[Any, Any, T], tasks: set[Task[Any]]) -> Task[T]:
    """Start a task and keep it among others until it is done: the loop has no strong reference."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    _background.add(task)
    task.add_done_callback(tasks.discard)
    return task


def end_with_process(loop: AbstractEventLoop) -> None:
    """Cancel what is left of tasks that run the code of the current one, when the process ends."""
    task = asyncio.current_task(loop)
    code = getattr(task and task.get_coro(), "cr_code", None)
    if code is not None:
        _readers.setdefault(loop, set()).add(code)


def _end_readers() -> None:
    # zarr was imported before this module, so its function that stops the loop runs after this one
    for loop, codes in list(_readers.items()):
        if loop.is_running():
            with suppress(TimeoutError, RuntimeError):  # it hangs, or was just closed
                asyncio.run_coroutine_threadsafe(_end(codes), loop).result(_PATIENCE)


async def _end(codes: set[CodeType]) -> None:
    left = [
        task
        for task in asyncio.all_tasks()
        if task in _background or getattr(task.get_coro(), "cr_code", None) in codes
    ]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


atexit.register(_end_readers)
interruption_callbacks.append(_end_readers)
os.register_at_fork(after_in_child=_readers.clear)  # loops of the parent do not run in a child
