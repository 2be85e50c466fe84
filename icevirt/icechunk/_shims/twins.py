"""Give methods the ``_async`` twins that icechunk's classes have: the method, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any


class AsyncTwin:
    """The twin of a method of the same class: awaited, it runs the method in a thread.

    Args:
        name: Of the method; it may be a class method or a static one.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Callable[..., Awaitable[Any]]:
        """Return the function that takes the method's arguments."""
        method = getattr(owner if instance is None else instance, self._name)

        async def twin(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return twin


async def each[T](make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield what an iterator yields, which a thread makes and exhausts."""
    for value in await asyncio.to_thread(lambda: list(make())):
        yield value
