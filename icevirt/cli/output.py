"""Print: answers on stdout as text or JSON, errors and progress on stderr."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from icevirt.errors import (
    CombineError,
    IcevirtError,
    InvalidInputError,
    JobsCancelledError,
    NotListableError,
    ReadOnlyError,
    SparkJobError,
    StaleReferenceError,
    StorageError,
)
from icevirt.escaping import escape_json, escape_line
from icevirt.model.generation import OldFormatWarning
from icevirt.remedy_notation import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable

    from icevirt.archive.reports.build import Progress


REFUSED = 1
"""Files, arguments or the repository do not allow it.

Also where `verify` found differences, and where the reader of stdout went away."""

PLATFORM = 3
"""Spark or a storage failed: the same command goes on where it stopped, once that works."""

CANCELLED = 4
"""The Spark jobs were cancelled: the same command goes on where it stopped."""

BEHIND = 5
"""`status` found that a dataset is further behind than was allowed."""

HELD = 5
"""An update did what it could, and holds files back; only with ``--fail-on-held``."""

BUG = 70
"""An error that icevirt did not foresee, with a traceback; `EX_SOFTWARE` of sysexits.h."""


def status_of(error: IcevirtError) -> int:
    """Return the exit status of an error; 2 is a wrong command line, 130 and 143 are signals."""
    if isinstance(error, JobsCancelledError):
        return CANCELLED
    if isinstance(error, NotListableError | StaleReferenceError):
        return REFUSED
    of_files = "unreadable" in error.facts  # files of which a storage gave no bytes
    if isinstance(error, SparkJobError | StorageError) or of_files:
        return PLATFORM
    return REFUSED


Output = StrEnum("Output", ["text", "json"])  # how an answer is printed
ProgressStyle = StrEnum("ProgressStyle", ["auto", "json"])  # how progress is shown on stderr
_flags: ContextVar[Mapping[str, str]] = ContextVar("flags", default={})  # noqa: B039
_progress_style = ContextVar("progress_style", default=ProgressStyle.auto)


def tell_progress_as(style: ProgressStyle) -> None:
    """Choose how the next command shows its progress."""
    _progress_style.set(style)


def writable_file(path: str | None) -> str | None:
    """Check a file that a command writes at its end, before its work.

    Raises:
        InvalidInputError: It cannot be written there.
    """
    if path is None:
        return None
    target = Path(path)
    folder = target.parent
    facts = {"path": str(target)}
    if target.is_dir():
        example = shlex.quote(str(target / "report.html"))
        raise InvalidInputError(
            "this is a directory, not a file", do=f"Name a file in it, like {example}.", **facts
        )
    if not folder.is_dir():
        raise InvalidInputError(
            "the directory of this file does not exist",
            do=f"Make it with mkdir -p {shlex.quote(str(folder))}, or name another file.",
            **facts,
        )
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise InvalidInputError(
            "this file cannot be written", do="Name one where you may write.", **facts
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command returns: a value, and how it was asked to be shown."""

    value: object
    output: Output = Output.text
    quiet: bool = False  # text is not printed at all
    status: int = 0  # of the process
    next_step: str = ""  # a command to go on with, which is printed below the text


def show(answer: CommandResult | None, **_: object) -> None:
    """Print the answer of a command; further arguments are those of the program itself."""
    from icevirt.display.render import console, next_step, show_value

    if answer is None:
        return
    with answering(), in_own_notation():
        if answer.output is Output.json:
            from icevirt.display.document import document

            sys.stdout.write(f"{escape_json(document(answer.value), indent=2)}\n")
        elif not answer.quiet:
            to = console(sys.stdout)
            show_value(answer.value, to)
            if answer.next_step:
                show_value(next_step(answer.next_step), to)
    if answer.status:
        import typer

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
    """Print an error on stderr: on one line; on a terminal, or with what solves it, on several.

    On a terminal the last line names the page of its code. For programs it is one line of JSON.
    """
    from icevirt.display.document import document
    from icevirt.display.fixes import lines

    with in_own_notation():
        if json_is_asked():
            sys.stderr.write(f"{escape_json(document(error))}\n")
            return
        is_long = bool(error.fixes) or isinstance(error, CombineError) or sys.stderr.isatty()
        said = lines(error, sys.argv[1:]) if is_long else [escape_line(error)]
        if sys.stderr.isatty():
            said.append(f"more: icevirt explain {error.code}")
    sys.stderr.write(f"icevirt: {'\n'.join(said)}\n")


def show_usage_error(message: str) -> None:
    """Print what is wrong with a command line, as an error for programs."""
    show_error(InvalidInputError(message, do="See `icevirt COMMAND --help`."))


def json_is_asked() -> bool:
    """Say whether the command line of this process asks for JSON."""
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    pairs = {*itertools.pairwise(words)}
    given = {("-o", "json"), ("--output", "json")} & pairs
    return bool(given) or bool({"-ojson", "--output=json"} & {*words})


def remember_flags(flags: Mapping[str, str]) -> None:
    """Say which flags the command of this process has, by the names of its parameters."""
    _flags.set(flags)


@contextlib.contextmanager
def in_own_notation() -> Iterator[None]:
    """Let remedies in the block name the flags of the command."""
    token = COMMAND.set(_flags.get())
    try:
        yield
    finally:
        COMMAND.reset(token)


@contextlib.contextmanager
def telling_old_formats() -> Iterator[None]:
    """Say once at the end that a repository has an old format, unless an error says the same."""
    texts: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always", OldFormatWarning)
        others = warnings.showwarning

        def keep(message: Any, category: Any, *place: Any, **named: Any) -> None:
            if issubclass(category, OldFormatWarning):
                texts[str(message)] = None
            else:
                others(message, category, *place, **named)

        warnings.showwarning = keep
        try:
            yield
        except ReadOnlyError as error:
            texts = {text: None for text in texts if error.what not in text}
            raise
        finally:
            sys.stderr.write("".join(f"icevirt: warning: {escape_line(text)}\n" for text in texts))


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield what a build reports its progress to, None for silence."""
    from icevirt.display.progress import ProgressDisplay, ProgressLines
    from icevirt.display.render import console

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
