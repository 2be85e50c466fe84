"""Progress of a build, drawn from `archive.report.Progress` values.

On a terminal one bar a phase; in a log one line when a phase begins. Always on stderr.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from icevirt.archive.report import Progress
from icevirt.display.text import plain


class ProgressDisplay:
    """A context manager to pass as ``progress=``; drawing ends with the block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phases: dict[str, TaskID] = {}
        self._bars = Bars(
            TextColumn("{task.description:<8}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )

    def __call__(self, step: Progress) -> None:
        """Show a step. Called from any thread."""
        if step.phase not in self._phases:
            self._begin(step)
        self._bars.update(
            self._phases[step.phase],
            completed=step.done,
            total=step.total or None,
            unit=plain(step.unit),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def _begin(self, step: Progress) -> None:
        self._phases[step.phase] = self._bars.add_task(plain(step.phase), total=None, unit="")
        if not self._console.is_terminal:
            size = f": {step.total:,} {step.unit}" if step.total else ""
            self._console.print(plain(f"{step.phase}{size}"), markup=False, highlight=False)
