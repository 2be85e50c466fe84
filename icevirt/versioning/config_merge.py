"""Merge saved configurations, and refuse a setting that would lose acknowledged commits.

A document is a tree of mappings; absent and null mean the default. Where the official client cannot
write conditionally, on a local disk, it persists the settings for that together with the first
container. In a copy of such a repository on an object store it obeys them: it replaces `repo`
unconditionally, and the commits of others are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.errors import StorageError

_SETTING = "unsafe_use_conditional_update"
_ONE_MACHINE = ("file:", "memory:")  # no place for the official client to write at the same time


def rebased(
    base: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``theirs`` with the changes that led from ``base`` to ``mine``.

    Two writers that each add a container both keep theirs; where both changed one value, mine wins.
    """
    result = dict(theirs)
    for key in sorted(base.keys() | mine.keys()):
        before, after, other = base.get(key), mine.get(key), theirs.get(key)
        if before == after:
            continue
        if isinstance(after, Mapping) and isinstance(other, Mapping):
            result[key] = rebased(before if isinstance(before, Mapping) else {}, after, other)
        elif key in mine:
            result[key] = after
        else:
            result.pop(key, None)
    return result


def persistable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is written: never the defaults of a kind of storage, which would not travel."""
    return {**document, "storage": document.get("storage")}


def refuse_unconditional(config: Mapping[str, Any] | None, url: str) -> None:
    """Check a configuration with which the repository at ``url`` would be published.

    Raises:
        StorageError: Other writers to this object store would not write conditionally.
    """
    settings = (config or {}).get("storage")
    if url.startswith(_ONE_MACHINE) or not isinstance(settings, Mapping):
        return
    if settings.get(_SETTING) is False:
        raise StorageError(
            "the configuration of this repository allows unconditional writes, as on a local "
            "disk: commits would be lost",
            do="Stop other writers, then run `repo.config.storage = None; repo.save_config()`.",
            repo=url,
            setting=f"storage.{_SETTING}",
        )
