"""Where icechunk keeps its Rust types; some programs import them from here."""

from __future__ import annotations

from typing import Any

from icevirt import icechunk


def _all_error_kinds() -> list[str]:
    """Return the codes of icechunk's errors."""
    return [str(kind) for kind in icechunk.ErrorKind]


def __getattr__(name: str) -> Any:
    """Return a public name of the package."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "LatencyStorage":
        return icechunk.testing.LatencyStorage
    return getattr(icechunk, name.removeprefix("Py") if name.startswith("Py") else name)
