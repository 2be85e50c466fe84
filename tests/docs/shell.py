"""Fenced blocks of the pages, and the command lines of icevirt in them.

What a block is for follows from its language, which the site shows in its colors:

- ``python`` and ``bash`` are run by a test;
- ``py`` and ``sh`` need what a test machine lacks (buckets of others, clusters): names, commands
  and options are compared with those that exist;
- a block without a language is a transcript: its commands stand behind ``$ `` and are run.
"""

import re
import shlex
from pathlib import Path

import typer

from icevirt.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("icevirt/**/*.md")])
PROGRAM = typer.main.get_command(app)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"(?:^|\s)(?:icevirt|\$\(icevirt spark-script\)) ((?:--progress|[a-z]).*)$")


def blocks(path: Path) -> list[tuple[str, str]]:
    """Return language and text of the fenced blocks of a page."""
    return _BLOCK.findall(path.read_text())


def section(page: str, title: str) -> str:
    """Return a part of a page, from a heading to the next one of its level."""
    (found,) = re.findall(
        rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL
    )
    return found


def lines(text: str) -> list[str]:
    """Return the commands of a block, without comments; a long one may go on in the next line."""
    joined = text.replace("\\\n", " ")
    parts = [part for line in joined.splitlines() for part in line.split("&&")]
    shown = (part.split(" #")[0].strip() for part in parts)
    return [line for line in shown if line and not line.startswith("#")]


def calls(text: str) -> list[list[str]]:
    """Return the words behind ``icevirt`` of each call of it in a block."""
    found = (_CALL.search(line) for line in lines(text))
    return [shlex.split(each[1]) for each in found if each]


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, and run nothing.

    Raises:
        click.UsageError: There is no such command, option or value, or an argument is missing.
    """
    command, context = PROGRAM, PROGRAM.make_context("icevirt", list(words))
    while hasattr(command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        name, command, left = command.resolve_command(context, left)
        context = command.make_context(name, left, parent=context)
