"""Do pieces of work in a few threads, where that is worth it; none is left but what hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue

from icevirt.threads import Threads, raise_failure, take_results

_WORTH = 0.002  # seconds of work, below which another thread costs more than it saves
_LONG = 0.0004  # seconds that a piece takes at least where threads hardly wait for one another
_WAITING = 16  # threads that wait for a disk
_HELD = 64 * 1024 * 1024  # bytes that threads hold beside the result, unless a piece has more

_at_work: set[int] = set()  # the threads of callers that read at the moment, as those of dask do
os.register_at_fork(after_in_child=_at_work.clear)  # they are not in the child


def work_through[T](pieces: Sequence[T], work: Callable[[T], None], size: int) -> None:
    """Do all pieces. The first ones are done here; their time decides how many threads do the rest.

    If they wait for a disk, many threads do. If they decode for long, as many as there are
    processors for each caller that reads at the moment. If they take little time, none: threads of
    Python would only take turns.

    Args:
        pieces: What is to be done.
        work: Does one piece.
        size: Bytes of memory that a piece takes while it is done.
    """
    caller = threading.get_ident()
    _at_work.add(caller)
    try:
        _work_through(pieces, work, size)
    finally:
        _at_work.discard(caller)


def _work_through[T](pieces: Sequence[T], work: Callable[[T], None], size: int) -> None:
    began, used = time.perf_counter(), time.thread_time()
    for done, piece in enumerate(pieces, 1):
        work(piece)
        took = time.perf_counter() - began
        left = took / done * (len(pieces) - done)
        if took > _WORTH and left > _WORTH and took / done > _LONG:
            is_waiting = time.thread_time() - used < took / 2
            most = _WAITING if is_waiting else _processors() // len(_at_work)
            threads = min(most, max(_HELD // size, 1))
            if threads > 1:
                share(islice(pieces, done, None), work, min(threads, len(pieces) - done))
                return


def _processors() -> int:
    return getattr(os, "process_cpu_count", os.cpu_count)() or 1  # Python 3.13 has the former


def share[T](pieces: Iterator[T], work: Callable[[T], None], threads: int) -> None:
    """Do pieces in threads. Each thread takes the next piece that is left."""
    is_over = False

    def run() -> None:
        nonlocal is_over
        try:
            for piece in pieces:
                if is_over:
                    return
                work(piece)
        except BaseException:
            is_over = True  # before this thread's error is noticed
            raise

    with Threads(threads, "icevirt-read") as pool:
        try:
            for _ in take_results([pool.submit(run) for _ in range(threads)]):
                pass
        finally:
            is_over = True


def work_ahead[T](
    pieces: Sequence[T],
    submit: Callable[[T], Future[None]],
    size: Callable[[T], int],
    most: int,
) -> None:
    """Submit pieces while those that are not done have at most so many bytes; wait for all.

    An error is raised as soon as it is known.
    """
    flying: dict[Future[None], int] = {}
    finished: SimpleQueue[Future[None]] = SimpleQueue()
    held = 0

    def collect() -> int:
        future = finished.get()
        raise_failure(future, flying)
        return flying.pop(future)

    try:
        for piece in pieces:
            while flying and held + size(piece) > most:
                held -= collect()
            future = submit(piece)
            flying[future] = size(piece)
            future.add_done_callback(finished.put)
            held += size(piece)
        while flying:
            collect()
    finally:
        for future in flying:  # a server that hangs is not waited for
            future.cancel()
