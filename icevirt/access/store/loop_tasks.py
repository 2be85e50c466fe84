"""Start tasks of an event loop in the background, and end readers when the process ends.

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
from asyncio import AbstractEventLoop, Task
from collections.abc import Coroutine
from contextlib import suppress
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

_PATIENCE = 1.0  # seconds that the end of a process waits for them

_background: WeakSet[Task[Any]] = WeakSet()
_readers: WeakKeyDictionary[AbstractEventLoop, set[CodeType]] = WeakKeyDictionary()


def started[T](work: Coroutine[Any, Any, T], tasks: set[Task[Any]]) -> Task[T]:
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
os.register_at_fork(after_in_child=_readers.clear)  # loops of the parent do not run in a child
