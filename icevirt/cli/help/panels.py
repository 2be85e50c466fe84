"""Name what the help of a command shows together: options by panel, commands by panel, examples."""

from __future__ import annotations

from collections.abc import Mapping

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "Sources": (
        *("--file", "--recipe", "--catalog", "--source-group", "--variable", "--drop-variable"),
        *("--variables",),
        *("--asset", "--scanner", "--since", "--settle", "--replaces", "--rescan"),
        *("--rescan-changed", "--update"),
    ),
    "Combining": (
        *("--concat-dim", "--combine", "--labels", "--data-vars", "--spacing", "--tolerance"),
        *("--combine-attrs", "--rename", "--attr", "--preprocess", "--chunk-grid"),
    ),
    "Where files differ": (
        *("--missing", "--duplicates", "--on-mismatch", "--pad", "--float-variable"),
        *("--variable-policy", "--on-changed", "--vanished", "--fail-on-held", "--drop-others"),
    ),
    "Access": (
        *("--access", "--authorize", "--allow-references-to", "--trust-recipe", "--publish-as"),
        *("--container", "--anonymous", "--region", "--endpoint", "--profile"),
    ),
    "Limits": (
        *("--max-bad-files", "--max-vanished", "--file-timeout", "--file-memory"),
        *("--max-native-bytes", "--max-native-bytes-per-file"),
    ),
    "Repository": (
        *("--repo", "--group", "--mode", "--branch", "--promote", "--message", "--metadata"),
        *("--allow-changes", "--verify", "--if-running"),
    ),
    "Output": ("--dry-run", "--write-recipe", "--report", "--output", "--quiet", "--help"),
}
"""Options in the order in which they are shown, for commands that have many."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Build": ("demo", "plan", "build", "append", "update", "scan", "catalog"),
    "Look": ("info", "status", "check", "verify", "source"),
    "History": ("log", "diff", "undo", "redo", "reset", "branch", "tag", "ops-log"),
    "Keep": ("maintain", "relocate", "materialize", "exclude", "withdraw", "export", "upgrade"),
    "Other": ("explain", "spark-script"),
}
"""Commands in the order in which they are shown."""

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
    "diff": (("what the last commit changed", "icevirt diff repo main~1 main"),),
}
"""Commands to start from, with what they are for."""


def panel_of(flag: str) -> str:
    """Return the panel of an option; what only one command has stands first."""
    return next((name for name, flags in OPTIONS.items() if flag in flags), "Options")
