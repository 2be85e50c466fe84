"""Implement ``icevirt branch`` and ``icevirt tag``, each a group of commands."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from icevirt.cli.commands import FUNCTIONS
from icevirt.cli.functions import command_of


class NameCommands(TyperGroup):
    """Commands that come before the repository; a line without one gets the line with it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or say what the line lacks."""
        repo, *name = args
        if self.get_command(ctx, repo) is None and not get_close_matches(repo, self.commands):
            meant = ["icevirt", str(self.name), "create" if name else "list", repo, *name]
            ctx.fail(f"No such command {repo!r}. Did you mean `{shlex.join(meant)}`?")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands, with all of the first sentence of each."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1000)) for name, each in self.commands.items()]
            )


branch = typer.Typer(
    cls=NameCommands,
    help="List, create, delete and rename branches.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
tag = typer.Typer(
    cls=NameCommands,
    help="List, create and delete tags; names of deleted ones stay taken.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


for words, command in FUNCTIONS.items():
    group, _, name = words.partition(" ")
    if name:
        {"branch": branch, "tag": tag}[group].command(name)(command_of(command))
