"""Start tasks of an event loop in the background, where no call waits for them."""

from __future__ import annotations

from asyncio import Task, get_running_loop
from collections.abc import Coroutine
from typing import Any


def started[T](work: Coroutine[Any, Any, T], tasks: set[Task[Any]]) -> Task[T]:
    """Start a task and keep it among others until it is done: the loop has no strong reference."""
    task = get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
