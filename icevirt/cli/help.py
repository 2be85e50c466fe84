"""Show the help of commands: examples first, and the options of large commands in panels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

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


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "Sources": (
        *("--file", "--recipe", "--catalog", "--source-group", "--variable", "--drop-variable"),
        *("--variables",),
        *("--asset", "--scanner", "--sidecar", "--grids", "--since", "--settle", "--replaces"),
        *("--codecs", "--source-version"),
        *("--rescan", "--rescan-changed", "--update"),
    ),
    "Combining": (
        *("--concat-dim", "--combine", "--labels", "--data-vars", "--spacing", "--tolerance"),
        *(
            "--combine-attrs",
            "--rename",
            "--attr",
            "--preprocess",
            "--chunk-grid",
            "--split-contiguous",
        ),
    ),
    "Where files differ": (
        *("--missing", "--duplicates", "--on-mismatch", "--pad", "--float-variable"),
        *("--rebase-indices", "--index-of"),
        *("--variable-policy", "--on-changed", "--vanished", "--fail-on-held", "--drop-others"),
    ),
    "Access": (
        *("--access", "--authorize", "--allow-references-to", "--trust-recipe", "--publish-as"),
        *("--container", "--anonymous", "--region", "--endpoint", "--profile"),
    ),
    "Execution and limits": (
        *("--executor", "--max-bad-files", "--max-vanished", "--file-timeout", "--file-memory"),
        *("--max-native-bytes", "--max-native-bytes-per-file"),
    ),
    "Repository": (
        *("--repo", "--group", "--mode", "--branch", "--promote", "--message", "--metadata"),
        *("--allow-changes", "--verify", "--if-running"),
    ),
    "Output": (
        *("--dry-run", "--twin-chunks", "--write-recipe", "--report"),
        *("--output", "--quiet", "--help"),
    ),
}
"""Options in the order in which they are shown, for commands that have many."""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Build": {
        "demo": "Build a virtual dataset over real ocean-model files, and compute with it.",
        "plan": "Show what a build of these files would do and store, without a repository.",
        "build": "Build a virtual dataset over files, without copying them.",
        "append": "Add new files to a dataset, combined as its last build says.",
        "update": "List the sources of a dataset again, and commit what is new, corrected or gone.",
        "scan": "Show what a build would find in a file, or scan many files for builds.",
        "catalog": "Show what a catalog holds, write a table of it, or forget scans of files.",
    },
    "Look": {
        "info": "Show what a repository holds: its groups and arrays, and where their chunks lie.",
        "status": "Show how a dataset is: newest step, files, manifests, last commit.",
        "check": "Check every invariant of a repository.",
        "verify": "Compare a repository with its source files.",
        "source": "Show the file and bytes that a value is decoded from.",
    },
    "History": {
        "log": "Show the history, newest first: snapshots, times, messages, what builds added.",
        "diff": "Compare two versions: groups, arrays, chunks written, files and steps.",
        "undo": "Move a branch back to the parent of its tip; redo takes it back.",
        "redo": "Undo the last undo of a branch.",
        "reset": "Point a branch at another snapshot.",
        "branch": "List, create, delete and rename branches.",
        "tag": "List, create and delete tags; names of deleted ones stay taken.",
        "ops-log": "Show what was done to a repository: commits, resets, tags, configuration.",
    },
    "Keep": {
        "maintain": "Let old versions expire, and delete what no version needs.",
        "relocate": "Point a repository to files that moved, after comparing them.",
        "materialize": "Store a variable, or a region of it, in the repository.",
        "exclude": "Let appends and updates leave files out, or list those that they leave out.",
        "withdraw": "Take files out of a repository: out of all branches, tags and older versions.",
        "export": "Write references of a repository as kerchunk's JSON or Parquet.",
        "upgrade": "Upgrade a repository of an older format to V2.",
    },
    "Other": {
        "explain": "Explain the code of an error: what it means, usual causes, and what to do.",
        "spark-script": "Print the path of what spark-submit runs.",
    },
}
"""Commands in the order in which they are shown, with what the help of the program says of them."""

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "build": (
        ("the pattern in quotes, the repository last", "icevirt build 'archive/*.nc' repo"),
        (
            "public files, a repository of one's own",
            "icevirt build 's3://public/*.nc' s3://mine/repo --access s3://public=anonymous",
        ),
        (
            "keep the scan, for other ways of combining",
            "icevirt build archive repo --concat-dim time --catalog scans",
        ),
    ),
    "append": (("new files, by the recipe of the last build", "icevirt append new/*.nc repo"),),
    "update": (
        ("what has changed", "icevirt update repo --authorize archive --dry-run"),
        ("commit it", "icevirt update repo --authorize archive"),
    ),
    "plan": (
        ("what a build would do", "icevirt plan 'archive/*.nc'"),
        (
            "its recipe, to change and to build from",
            "icevirt plan 'archive/*.nc' --write-recipe recipe.toml",
        ),
    ),
    "scan": (
        ("what one file holds", "icevirt scan archive/day1.nc"),
        ("scan many, for builds", "icevirt scan 'archive/*.nc' --catalog scans"),
    ),
    "verify": (("compare a sample with the files", "icevirt verify repo --authorize archive"),),
    "maintain": (("what would be deleted", "icevirt maintain repo --keep-snapshots 30D"),),
    "source": (("where a value is from", "icevirt source repo t2m --at time=2024-01-01"),),
    "relocate": (
        ("the files moved", "icevirt relocate repo archive/ /mnt/new/archive/ --dry-run"),
    ),
    "diff": (("what the last commit changed", "icevirt diff repo"),),
}
"""Commands to start from, with what they are for."""


def panel_of(flag: str) -> str:
    """Return the panel of an option; what only one command has stands first."""
    return next((name for name, flags in OPTIONS.items() if flag in flags), "Options")
