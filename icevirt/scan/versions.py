"""Read which version of a repository of Icechunk is a source: a branch, a tag or a snapshot."""

from __future__ import annotations

from typing import Any

from icevirt.errors import InvalidInputError

_KINDS = ("branch", "tag", "snapshot_id")


def arguments_of(version: Any) -> dict[str, Any]:
    """Return a version, like ``tag=v1``, as arguments of `Repository.readonly_session`.

    Raises:
        InvalidInputError: It names none.
    """
    kind, _, name = version.partition("=") if isinstance(version, str) else ("", "", "")
    if kind in _KINDS and name:
        return {kind: name}
    raise InvalidInputError(
        "this is not a version of a repository",
        do="Write it like branch=main, tag=v1 or snapshot_id=1CECHNKREP0F1RSTCMT0.",
        source_version=version,
    )
