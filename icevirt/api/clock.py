"""How long each phase of a build took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from icevirt.archive.report import Progress


class Clock:
    """Seconds by phase, in the order in which phases began; ``progress`` is told of each."""

    def __init__(self, progress: Callable[[Progress], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        begin = time.perf_counter()
        self.seconds.setdefault(name, 0.0)
        if self._progress is not None:
            self._progress(Progress(phase=name, done=0, total=0))
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds[name] + time.perf_counter() - begin, 4)
