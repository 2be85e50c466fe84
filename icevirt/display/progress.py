"""Show the progress of a build, from `icevirt.archive.reports` values.

A terminal gets one bar per phase; a log gets one line when a long phase begins, or JSON lines for
programs. Always on stderr.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from icevirt.amounts import amount, count_exactly
from icevirt.archive.reports.build import Progress
from icevirt.display.blocks import seconds, size
from icevirt.escaping import escape_line


class ProgressDisplay:
    """A context manager to pass as ``progress=``; drawing ends with the block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_drawn = console.is_terminal or console.is_jupyter
        self._phases: dict[str, TaskID] = {}
        self._last: Progress | None = None  # step
        self._bars = Bars(
            TextColumn("{task.description:<8}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amounts]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not self._is_drawn,
            transient=True,
        )

    def __call__(self, step: Progress) -> None:
        """Show a step. Called from any thread."""
        if not step.total and not self._is_drawn:
            return  # short, or not yet of known length
        last, self._last = self._last, step
        if last is None or last.phase != step.phase:
            if last is not None:
                self._end(last)
            self._begin(step)
        self._bars.update(
            self._phases[step.phase],
            completed=step.done,
            total=step.total or None,
            amounts=escape_line(_describe(step)),
        )

    def __enter__(self) -> Self:
        if self._is_drawn:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:  # before rich 15, bars that are disabled ended with an empty line
            self._bars.stop()

    def _begin(self, step: Progress) -> None:
        if (before := self._phases.get(step.phase)) is not None:
            self._bars.remove_task(before)
        self._phases[step.phase] = self._bars.add_task(
            escape_line(step.phase), total=None, amounts=""
        )
        if not self._is_drawn:
            message = escape_line(f"{step.phase}: {_count(step)}")
            self._console.print(message, markup=False, highlight=False)

    def _end(self, last: Progress) -> None:
        """Stop the clock of a phase; one that had nothing to count has nothing more to say."""
        if last.total:
            self._bars.stop_task(self._phases[last.phase])
        else:
            self._bars.remove_task(self._phases.pop(last.phase))


class ProgressLines:
    """The same as JSON lines: when a phase begins, every few seconds of it, and when it is done.

    Args:
        out: Where they go.
        interval: Seconds between two lines of a phase.
    """

    def __init__(self, out: TextIO, *, interval: float = 5.0) -> None:
        self._out = out
        self._interval = interval
        self._last = (("", False, False), 0.0)  # state and time of the last line

    def __call__(self, step: Progress) -> None:
        """Write a step, unless one was written a moment ago. Called from any thread."""
        last, written = self._last
        ended = step.done >= step.total > 0
        what, now = (step.phase, step.total > 0, ended), time.monotonic()
        if what == last and (ended or now - written < self._interval):
            return
        self._last = (what, now)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": "progress",
            "phase": step.phase,
            **(step.amounts if step.total else {}),
        }
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


def _count(step: Progress) -> str:
    return count_exactly(step.total, step.unit.removesuffix("s"))


def _rate(per_second: float) -> str:
    """Return ``1.2 M/s``, ``340/s`` or ``0.25/s``."""
    shown = amount(round(per_second)) if per_second >= 100 else f"{per_second:.2g}"
    return f"{shown}/s"


def _describe(step: Progress) -> str:
    """Return amounts and speed in words."""
    if not step.total:
        return ""
    parts = [f"{step.done:,}/{_count(step)}"]
    share = step.per_second / step.done if step.done else 0.0
    if step.per_second:
        parts.append(_rate(step.per_second))
    if step.references:
        parts.append(f"{amount(step.references)} references, {_rate(step.references * share)}")
    if step.bytes:
        parts.append(f"of {size(step.bytes)}")
    if (left := step.seconds_left) is not None and step.done < step.total:
        parts.append(f"{seconds(left)} left")
    return ", ".join(parts)


class ProgressBar(ProgressDisplay):
    """Shows the long phases of a call while it runs, a bar each: pass it as ``progress``.

    On a terminal the bars are on stderr. In a notebook they are below the cell; that needs the
    package ``ipywidgets``, which Jupyter's own distributions have. They go when the block ends.

    ```python
    with icevirt.ProgressBar() as bar:
        report = icevirt.build("archive/*.nc", "repo", progress=bar)
    ```
    """

    def __init__(self) -> None:
        super().__init__(Console(stderr=True, markup=False, emoji=False, highlight=False))
