"""Read and check what a snapshot says about the build that made it; any client can write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from icevirt.errors import FormatError
from icevirt.model.json import loads
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import Snapshot
from icevirt.planning.combine.data_vars import data_vars_of

METADATA = "icevirt_build"
"""Key of a snapshot's metadata under which a build says what it was made of."""

BUILD_ID = re.compile("[0-9a-f]{20}")  # what `digest_of` makes; it becomes a path


def provenance_of(
    snapshot: Snapshot | SnapshotSummary, group: str | None = None
) -> dict[str, Any] | None:
    """Return what a snapshot says of its build, in which the parts that we use can be used.

    Args:
        snapshot: Of a repository that anybody may have written.
        group: Look only at builds of this one; None: of any.

    Returns:
        None where no such build made the snapshot.

    Raises:
        FormatError: A part is of another kind than builds write.
    """
    recorded = snapshot.metadata.get(METADATA)
    if not isinstance(recorded, dict) or not BUILD_ID.fullmatch(str(recorded.get("build_id"))):
        return None
    if group is not None and recorded.get("group") != group:
        return None
    for name, fits in _FITS.items():
        if name in recorded and not _is_fit(fits, recorded[name]):
            raise FormatError(
                "the build metadata of a snapshot is not valid",
                do="icevirt did not write it. Go back to a snapshot from before it with"
                " repo.reset_branch(...), or build into another group.",
                snapshot=str(snapshot.id),
                field=f"{METADATA}.{name}",
            )
    return recorded


def _is_fit(fits: Callable[[Any], bool], value: Any) -> bool:
    try:
        return fits(value)
    except (ValueError, TypeError, AttributeError):
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_choices(value: Any) -> bool:
    data_vars, edits, tolerance = (value.get(name) or {} for name in _CHOICES)
    data_vars_of(data_vars)
    attrs = edits.get("attrs") or []
    return (
        isinstance(data_vars, dict)
        and all(map(_are_texts, data_vars.values()))
        and isinstance(attrs, list)
        and all(_are_texts(each) and len(each) == 3 and _is_value(each[2]) for each in attrs)
        and all(map(_is_number, tolerance.values()))
    )


_CHOICES = ("data_vars", "edits", "tolerance")


def _is_value(text: str) -> bool:
    """Say whether a text is the value of an attribute and its dtype."""
    found = loads(text)
    return len(found) == 2 and isinstance(found[1], str | None)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "arrays": _is_count,
    "bad_files": lambda found: all(_are_texts(each) and len(each) == 3 for each in found),
    "combine": lambda found: isinstance(found, dict) and _are_choices(found),
    "eras": _is_count,
    "files": _is_count,
    "kept": lambda found: isinstance(found, dict) and all(map(_are_texts, found.values())),
    "limits": lambda found: len(found) == 2 and all(map(_is_number, found)),
    "references": _is_count,
}
