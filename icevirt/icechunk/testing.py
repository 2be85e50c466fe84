"""Storage that answers late, to test programs with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from icevirt.icechunk.storage import Storage

__all__ = ["LatencyStorage"]

_WRITES = ("put", "put_if", "delete", "delete_many", "delete_below")


class LatencyStorage(Storage):
    """Another storage, with a pause before each read and write.

    Args:
        inner: The storage.
        write_latency_ms: Before each write; can be changed later.
        read_latency_ms: Before each read and listing; can be changed later.
    """

    def __init__(self, inner: Any, *, write_latency_ms: int = 0, read_latency_ms: int = 0) -> None:
        self.inner = inner
        self.write_latency_ms = write_latency_ms
        self.read_latency_ms = read_latency_ms

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.inner, self.write_latency_ms, self.read_latency_ms)

    def __repr__(self) -> str:
        return f"<icechunk.testing.LatencyStorage over {self.inner.url}>"

    def __getattr__(self, name: str) -> Any:
        """Return what the inner storage has, with the pause before it acts."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self.inner, name)
        return self._late(found, name) if callable(found) else found

    def _late(self, act: Callable[..., Any], name: str) -> Callable[..., Any]:
        def late(*args: Any, **kwargs: Any) -> Any:
            pause = self.write_latency_ms if name in _WRITES else self.read_latency_ms
            time.sleep(pause / 1000)
            return act(*args, **kwargs)

        return late


def _rebuilt(inner: Any, write_latency_ms: int, read_latency_ms: int) -> LatencyStorage:
    return LatencyStorage(inner, write_latency_ms=write_latency_ms, read_latency_ms=read_latency_ms)
