"""Run the program: its commands, its version, and its error handling.

An error of icevirt, or of stdout, is on stderr: one line, or several if it proposes commands. The
exit statuses are those of `icevirt.cli.output`. A traceback is a bug.
"""

from __future__ import annotations

import functools
import importlib
import logging
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from icevirt.cli.help import COMMANDS, Command
from icevirt.cli.output import (
    BUG,
    CommandResult,
    Output,
    ProgressStyle,
    answering,
    json_is_asked,
    show,
    show_error,
    show_usage_error,
    status_of,
    tell_progress_as,
    telling_old_formats,
)
from icevirt.cli.repository_access import with_storage
from icevirt.errors import IcevirtError, refuse_missing
from icevirt.escaping import escape_lines
from icevirt.redaction import without_secrets
from icevirt.version import __version__


def prepare() -> None:
    """Log to stderr, and end by SIGTERM as by Ctrl-C."""
    if not logging.getLogger("icevirt").handlers:
        _log_to_stderr()
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, _frame: object) -> NoReturn:
    """End the program as Ctrl-C does: code that started other processes ends them."""
    sys.exit(128 + number)


class _LeftBySignal(logging.Formatter):
    """Say what a signal leaves, in words."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line."""
        kept = getattr(record, "fields", {})["kept"]
        return f"icevirt: what is finished stays in {kept}; run the same command again to go on"


def _leaves_something(record: logging.LogRecord) -> bool:
    is_by_signal = str(getattr(record, "event", "")).endswith("-interrupted")
    return is_by_signal and "kept" in getattr(record, "fields", {})


def _log_to_stderr() -> None:
    """Show what libraries warn about, less Spark's bridge to Java: its errors are raised too."""
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: "py4j" not in record.pathname)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    own = logging.getLogger("icevirt")
    own.propagate = False  # answers and errors say it already, but for what a signal leaves
    left = logging.StreamHandler()
    left.addFilter(_leaves_something)
    left.setFormatter(_LeftBySignal())
    own.addHandler(left)


_ENDED = {130: "interrupted", 143: "terminated"}  # statuses of programs that signals ended


_UPDATES_TAKE_NO_SOURCES = (
    ". An update lists the sources again that the build recorded, and takes what is new there. "
    "Files elsewhere: icevirt append 'DIRECTORY/*.nc' REPO."
)


def _command_of(error: Exception) -> str | None:
    return getattr(getattr(error, "ctx", None), "info_name", None)


@contextmanager
def _repeating_no_secret() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(words := getattr(error, "message", None), str):
            if getattr(error, "option_name", None) == "--progress":
                words = "No such option here: write it before the command, icevirt --progress json"
            if "unexpected extra argument" in words and _command_of(error) == "update":
                words += _UPDATES_TAKE_NO_SOURCES
            words = words.replace("Value error, ", "")
            error.message = escape_lines(without_secrets(words))  # type: ignore[attr-defined]
            if json_is_asked():
                show_usage_error(error.message)  # type: ignore[attr-defined]
                raise typer.Exit(getattr(error, "exit_code", 2)) from None
        raise


_COMMANDS = {
    "catalog": "icevirt.cli.others:catalog",
    "branch": "icevirt.cli.others:branch",
    "tag": "icevirt.cli.others:tag",
    "explain": "icevirt.cli.others:explain",
    "demo": "icevirt.cli.demo:demo",
    "spark-script": "icevirt.cli.others:spark_script",
}
"""Where commands are that are not made from a function (`icevirt.cli.commands`)."""


class _Program(TyperGroup):
    """Commands whose usage errors repeat no secret."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Return a command; its module, and all that its options need, is imported now."""
        if cmd_name not in self.commands and cmd_name in self.list_commands(_ctx):
            self.commands[cmd_name] = _command(cmd_name)
        elif cmd_name not in self.commands:  # a typing error, for which the nearest is looked up
            for each in self.list_commands(_ctx):
                self.get_command(_ctx, each)
        return self.commands.get(cmd_name)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options of the program itself."""
        with _repeating_no_secret():
            return super().make_context(*args, **kwargs)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands by panel; none is imported for that."""
        for panel, sentences in COMMANDS.items():
            with formatter.section(panel):
                formatter.write_dl([*sentences.items()])

    def invoke(self, ctx: Any) -> Any:
        """Read the arguments of a command and run it."""
        with _repeating_no_secret(), refuse_missing("the command"):
            return super().invoke(ctx)


def _find(name: str) -> Any:
    """Return what implements a command."""
    if name in _COMMANDS:
        module, _, function = _COMMANDS[name].partition(":")
        return getattr(importlib.import_module(module), function)
    from icevirt.cli.commands import FUNCTIONS
    from icevirt.cli.functions import command_of

    return command_of(FUNCTIONS[name])


@functools.cache  # options know their types once they were read; programs run many commands
def _command(name: str) -> Any:
    """Return the command that a function implements, or the group that a program is."""
    found = _find(name)
    if isinstance(found, typer.Typer):
        for each in (each for each in found.registered_commands if each.cls is not Command):
            each.cls, each.callback = Command, with_storage(cast("Any", each.callback))
        group = typer.main.get_group(found)
        group.name = name
        return group
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name, cls=Command)(with_storage(found))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="icevirt",
    cls=_Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    result_callback=show,
)


def _print_version(asked: bool) -> None:
    if not asked:
        return
    if json_is_asked():
        from icevirt.installation import versions

        found = {"icevirt": __version__, **versions()}
        show(
            CommandResult(
                value=found | _java() if "pyspark" in found else found, output=Output.json
            )
        )
    else:
        typer.echo(f"icevirt {__version__}")
    raise typer.Exit


def _java() -> dict[str, str]:
    """Return the Java that Spark would run on, and what names it."""
    from icevirt.errors import BuildError
    from icevirt.execution.java import find_java

    try:
        java = find_java()
    except BuildError:
        return {}
    return {"java": f"{java.version} of {java.origin}"}


def _only_with_version(given: Output | None) -> None:
    if given is not None and "--version" not in sys.argv:
        raise typer.BadParameter("write it behind the command: icevirt COMMAND --output json")


@app.callback()
def program(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit; with --output json, all versions that a report of "
            "a fault needs.",
        ),
    ] = False,
    _output: Annotated[
        Output | None,
        typer.Option("--output", "-o", callback=_only_with_version, hidden=True),
    ] = None,
    progress: Annotated[
        ProgressStyle,
        typer.Option(
            help="How to show progress on stderr: auto (bars on a terminal, else one line per "
            "phase) or json (lines for programs).",
        ),
    ] = ProgressStyle.auto,
) -> None:
    """Turn archives of NetCDF/HDF5 files into versioned Icechunk datasets, without copying them."""
    tell_progress_as(progress)


def run() -> None:
    """Run the command line of this process."""
    prepare()
    try:
        with telling_old_formats():
            app()
    except IcevirtError as error:
        show_error(error)
        sys.exit(status_of(error))
    except OSError as error:
        if not _is_of_help(error):
            _end_by_bug(error)
        with answering():
            raise
    except SystemExit as stop:
        if stop.code in _ENDED:
            sys.stderr.write(f"icevirt: {_ENDED[stop.code]}\n")
        raise
    except Exception as error:  # noqa: BLE001  # it is shown, and the status says so
        _end_by_bug(error)


def _end_by_bug(error: BaseException) -> NoReturn:
    """Print a traceback; libraries quote the URLs that they were given."""
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(escape_lines(without_secrets(text)))
    sys.exit(BUG)


def _is_of_help(error: OSError) -> bool:
    """Say whether typer failed at what it prints itself: the help, the version."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("typer.")
