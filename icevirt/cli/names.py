"""Implement ``icevirt branch`` and ``icevirt tag``, each a group of commands."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from icevirt.api.history import names
from icevirt.cli.history import Repo
from icevirt.cli.options import OutputOption
from icevirt.cli.output import CommandResult, Output

_AT = "a branch, a tag, a snapshot id or its first letters; default the tip of main."
At = Annotated[str, typer.Argument(metavar="VERSION", help=f"Where it points: {_AT}")]
BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]
TagName = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]


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


@branch.command("list")
def list_branches(repo: Repo, output: OutputOption = Output.text) -> CommandResult:
    """List the branches and their tips."""
    return CommandResult(value=names.branches(repo), output=output)


@branch.command("create")
def create_branch(
    repo: Repo, name: BranchName, version: At = "main", output: OutputOption = Output.text
) -> CommandResult:
    """Create a branch at a version."""
    return CommandResult(value=names.create_branch(repo, name, version), output=output)


@branch.command("delete")
def delete_branch(
    repo: Repo, name: BranchName, output: OutputOption = Output.text
) -> CommandResult:
    """Delete a branch; its snapshots stay readable by id until garbage is collected."""
    return CommandResult(value=names.delete_branch(repo, name), output=output)


@branch.command("rename")
def rename_branch(
    repo: Repo,
    name: BranchName,
    new: Annotated[str, typer.Argument(help="The new name.")],
    output: OutputOption = Output.text,
) -> CommandResult:
    """Rename a branch, main excepted."""
    return CommandResult(value=names.rename_branch(repo, name, new), output=output)


@tag.command("list")
def list_tags(repo: Repo, output: OutputOption = Output.text) -> CommandResult:
    """List the tags, and the names of deleted ones."""
    return CommandResult(value=names.tags(repo), output=output)


@tag.command("create")
def create_tag(
    repo: Repo, name: TagName, version: At = "main", output: OutputOption = Output.text
) -> CommandResult:
    """Create a tag at a version; it never moves."""
    return CommandResult(value=names.create_tag(repo, name, version), output=output)


@tag.command("delete")
def delete_tag(repo: Repo, name: TagName, output: OutputOption = Output.text) -> CommandResult:
    """Delete a tag; its name stays taken."""
    return CommandResult(value=names.delete_tag(repo, name), output=output)
