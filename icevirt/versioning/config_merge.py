"""Merge a saved configuration with one that another writer saved in the meantime.

A document is a tree of mappings; absent and null mean the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
