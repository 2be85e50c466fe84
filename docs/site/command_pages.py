"""Write the page of the site about the command line: ``--help`` of every command, in full."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.main import get_command
from typer.testing import CliRunner

from icevirt.cli.main import app

WIDTH = "88"  # columns, as a page shows them without a scroll bar


def page() -> str:
    """Return the sections of all commands, in the order of ``icevirt --help``."""
    return "\n".join(_section(words) for words in [[], *commands()])


def commands() -> Iterator[list[str]]:
    """Yield the words of each command that is not hidden, also of commands below commands."""
    program = get_command(app)
    context = typer.Context(program)
    for name in program.list_commands(context):  # type: ignore[attr-defined]
        command = program.get_command(context, name)  # type: ignore[attr-defined]
        if command.hidden:
            continue
        yield [name]
        for below in getattr(command, "commands", {}):
            yield [name, below]


def _section(words: list[str]) -> str:
    called = " ".join(["icevirt", *words])
    ran = CliRunner().invoke(
        app, [*words, "--help"], env={"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}
    )
    if ran.exit_code:
        raise RuntimeError(f"{called} --help ended with {ran.exit_code}: {ran.output}")
    return f"{'##' if len(words) < 2 else '###'} {called}\n\n```text\n{ran.stdout.strip()}\n```\n"
