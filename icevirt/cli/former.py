"""Explain former command-line options: what to write in their place."""

from __future__ import annotations

_NOW = {
    "--holes": "--missing reserve",
    "--regular": "--spacing DIM=SPACING",
    "--eras": "--on-mismatch eras",
    "--deviating": "--on-mismatch native",
    "--policy": "--variable-policy [VARIABLE=]POLICY",
    "--stack": "--labels [DIM=]LABELS",
    "--label-variable": "--labels [DIM=]variable:NAME",
}
_NOW_OF_SCAN = {"--group": "--source-group GROUP"}


def replacement(error: Exception) -> str | None:
    """Return what a usage error should say where a former option caused it."""
    option = getattr(error, "option_name", None)
    command = getattr(getattr(error, "ctx", None), "info_name", None)
    now = (_NOW | (_NOW_OF_SCAN if command == "scan" else {})).get(str(option))
    return None if now is None else f"No such option: {option}. It was renamed: write {now}"
