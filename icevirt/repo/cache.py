"""Keep the most recently used values of a process, up to a number of bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakSet

_all: WeakSet[Cache] = WeakSet()


class Cache:
    """The most recently used values, up to ``limit`` bytes; the newest is always kept.

    A value that several threads request at once is made once. A forked child starts with an empty
    cache: a lock that another thread held would stay locked there forever.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clear()
        _all.add(self)

    def clear(self) -> None:
        """Forget everything, also which threads wait."""
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._held = 0

    def get[T](self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """Return the value of ``key``; ``make`` returns it with its size where it is missing."""
        found: T | None = self.find(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            found = self.find(key)
            if found is None:
                try:
                    found, size = make()
                    self.put(key, found, size)
                finally:
                    with self._lock:
                        self._making.pop(key, None)
            return found

    def put(self, key: Hashable, value: object, size: int) -> None:
        """Keep a value and let the least recently used ones go."""
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = (value, size)
            self._held += size - before
            while self._held > self.limit and len(self._values) > 1:
                _, (_, gone) = self._values.popitem(last=False)
                self._held -= gone

    def drop(self, key: Hashable) -> None:
        """Let a value go, if it is there."""
        with self._lock:
            self._held -= self._values.pop(key, (None, 0))[1]

    def find(self, key: Hashable) -> Any:
        """Return the value of ``key``, which counts as a use; None where it is missing."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]


def _forget_in_child() -> None:
    for cache in list(_all):
        cache.clear()


os.register_at_fork(after_in_child=_forget_in_child)
