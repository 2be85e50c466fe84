"""Time each phase of a build, and report phases and steps to progress callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from icevirt.api.pipeline.events import heard, tell
from icevirt.archive.reports.build import Progress

_INTERVAL = 10.0  # seconds between two records of a phase in the log


class Clock:
    """Seconds by phase, in the order in which phases began.

    ``progress`` and the log are told of each phase, and of the steps that stages give to `step`.
    """

    def __init__(self, progress: Callable[[Progress], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._last: Progress | None = None  # step of the phase that runs
        self._logged = 0.0

    @property
    def step(self) -> Callable[[Progress], None] | None:
        """What stages tell their steps; None where nobody listens, as looking costs a listing."""
        return self._step if heard(self._progress) else None

    def _step(self, step: Progress) -> None:
        """Take a step. Called from any thread."""
        if self._last is None and step.found:
            tell("resumed", phase=step.phase, found=step.found, total=step.total, unit=step.unit)
        self._last = step
        if self._progress is not None:
            self._progress(step)
        now = time.monotonic()
        if now - self._logged >= _INTERVAL:
            self._logged = now
            tell("progress", phase=step.phase, **step.amounts)

    def _done(self) -> dict[str, Any]:
        return {} if self._last is None else self._last.amounts

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        begin = time.perf_counter()
        self.seconds.setdefault(name, 0.0)
        self._last, self._logged = None, time.monotonic()
        if self._progress is not None:
            self._progress(Progress(phase=name, done=0, total=0))
        tell("phase-begun", phase=name)
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds[name] = round(self.seconds[name] + took, 4)
            tell("phase-ended", **({"phase": name} | self._done() | {"seconds": round(took, 3)}))
