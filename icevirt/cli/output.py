"""Print: answers on stdout as text or JSON, errors and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from icevirt.cli.statuses import PLATFORM, REFUSED
from icevirt.errors import CombineError, IcevirtError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from icevirt.archive.reports.build import Progress

_WIDTH = 10_000  # where no terminal reads, lines are as long as they need to be


Output = StrEnum("Output", ["text", "json"])  # how an answer is printed
ProgressStyle = StrEnum("ProgressStyle", ["auto", "json"])  # how progress is shown on stderr
_progress_style = ContextVar("progress_style", default=ProgressStyle.auto)


def tell_progress_as(style: ProgressStyle) -> None:
    """Choose how the next command shows its progress."""
    _progress_style.set(style)


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Print text for people or JSON for programs.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command returns: a value, and how it was asked to be shown."""

    value: object
    output: Output = Output.text
    quiet: bool = False  # text is not printed at all
    status: int = 0  # of the process


def show(answer: CommandResult | None, **_: object) -> None:
    """Print the answer of a command; further arguments are those of the program itself."""
    from icevirt.display.document import document
    from icevirt.display.render import render

    if answer is None:
        return
    with answering():
        if answer.output is Output.json:
            json.dump(document(answer.value), sys.stdout, indent=2, ensure_ascii=False)
            sys.stdout.write("\n")
        elif not answer.quiet:
            console(sys.stdout).print(render(answer.value))
    if answer.status:
        raise typer.Exit(answer.status)


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Bring what the block prints to stdout, or end the program.

    A reader that has seen enough (``| head``) is not worth a line, everything else is.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # what is left in the buffer would fail again when the interpreter flushes it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        status = REFUSED
        if not isinstance(error, BrokenPipeError):
            status = PLATFORM
            show_error(
                StorageError(
                    f"the answer cannot be written to stdout: {error.strerror}",
                    do="Free some space, or redirect the output.",
                )
            )
        sys.exit(status)


def show_error(error: IcevirtError) -> None:
    """Print an error on stderr: on one line; with what solves it, or about files, on several."""
    from icevirt.display.refusals import lines
    from icevirt.display.text import plain

    is_long = bool(error.fixes) or isinstance(error, CombineError)
    said = lines(error, sys.argv[1:]) if is_long else [plain(error)]
    sys.stderr.write(f"icevirt: {'\n'.join(said)}\n")


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield what a build reports its progress to, None for silence."""
    from icevirt.display.progress import ProgressDisplay, ProgressLines

    if quiet:
        yield None
        return
    if _progress_style.get() is ProgressStyle.json:
        with _events_on(sys.stderr):
            yield ProgressLines(sys.stderr)
        return
    with ProgressDisplay(console(sys.stderr)) as display:
        yield display


@contextlib.contextmanager
def _events_on(stream: TextIO) -> Iterator[None]:
    """Write what is logged in the block as JSON lines, except progress, which has its own lines."""
    from icevirt.display.events import JsonFormatter

    log, handler = logging.getLogger("icevirt"), logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(lambda record: getattr(record, "event", None) != "progress")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def console(stream: object) -> Console:
    """Return a console that prints names as they are: no markup, no emoji, no highlighting."""
    from rich.console import Console

    terminal = getattr(stream, "isatty", bool)()
    return Console(
        file=stream,  # type: ignore[arg-type]
        width=None if terminal else _WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )
