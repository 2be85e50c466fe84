"""Show the help of commands: examples first, and the options of large commands in panels."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

from icevirt.cli.help.panels import EXAMPLES, OPTIONS, panel_of
from icevirt.cli.output import remember_flags

_FEW = 14  # options that need no panels

_KINDS = {
    "<list[str]>": "<text>",
    "<str>": "<text>",
    "<int>": "<number>",
    "<float>": "<number>",
    "<int range>": "<number>",
}
"""Types of Python, and what a person writes."""


class Command(TyperCommand):
    """A command whose help a person can find their way in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for each in self.params:  # errors name arguments as the help does
            if each.param_type_name == "argument":
                each.metavar = each.metavar or str(each.name).upper()

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it prints names its own flags."""
        remember_flags({str(each.name): max(each.opts, key=len) for each in self.params})
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the name of the command in its usage."""
        return [re.sub(r"[{}]", "", each) for each in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does, and commands to start from."""
        super().format_help_text(ctx, formatter)
        if shown := EXAMPLES.get(self.name or ""):
            with formatter.section("Examples"):
                for what, command in shown:
                    formatter.write(f"  {command}\n      {what}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, those of a large command in panels."""
        written = [(each, each.get_help_record(ctx)) for each in self.get_params(ctx)]
        records = [(each, record) for each, record in written if record is not None]
        arguments = [
            (str(each.metavar), help_text)
            for each, (_, help_text) in records
            if each.param_type_name == "argument"
        ]
        options = [
            (panel_of(max(each.opts, key=len)), _in_words(record))
            for each, record in records
            if each.param_type_name == "option"
        ]
        panels = ["Options", *OPTIONS] if len(options) > _FEW else []
        sections = [("Arguments", arguments)] if arguments else []
        sections += [
            (name, [help_text for panel, help_text in options if panel == name]) for name in panels
        ]
        sections += [] if panels else [("Options", [help_text for _, help_text in options])]
        for name, rows in sections:
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


def _in_words(record: tuple[str, str]) -> tuple[str, str]:
    """Return an option with the kind of its value as a person would say it."""
    flags, help_text = record
    for kind, word in _KINDS.items():
        flags = flags.replace(kind, word)
    return flags, help_text
