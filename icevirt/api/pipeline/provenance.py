"""Read and check what a snapshot says about the build that made it; any client can write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.model.json import loads
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import Snapshot
from icevirt.planning.combine.data_vars import data_vars_of
from icevirt.planning.stored_form import forms_of
from icevirt.versioning.lookup import ancestry

METADATA = "icevirt_build"
"""Key of a snapshot's metadata under which a build says what it was made of."""

RELOCATED = "icevirt_relocated"
"""Key of a snapshot's metadata under which a relocation says what each dataset is made of now."""

HOLDING = "icevirt_update"
"""Key of the metadata of a snapshot that changes nothing but which files are held back."""

BUILD_ID = re.compile("[0-9a-f]{20}")  # what `digest_of` makes; it becomes a path


def records_in(snapshot: Snapshot | SnapshotSummary) -> Iterator[dict[str, Any]]:
    """Yield what a snapshot says of builds, unchecked: one of a build, several of a relocation."""
    moved = snapshot.metadata.get(RELOCATED)
    builds = moved.get("builds") if isinstance(moved, dict) else None
    for each in (snapshot.metadata.get(METADATA), *(builds if isinstance(builds, list) else ())):
        if isinstance(each, dict) and BUILD_ID.fullmatch(str(each.get("build_id"))):
            yield each


def newest_records(info: RepoInfo, tip: ObjectId12) -> Iterator[dict[str, Any]]:
    """Yield what the history of a snapshot says last of each group."""
    groups: set[str] = set()
    for each in ancestry(info, tip):
        for record in records_in(each):
            if (group := str(record.get("group"))) not in groups:
                groups.add(group)
                yield record


def is_about(snapshot: SnapshotSummary, group: str) -> bool:
    """Say whether a snapshot says anything of a group: of a build, or of files held back."""
    said = (snapshot.metadata.get(HOLDING), *records_in(snapshot))
    return any(isinstance(each, dict) and each.get("group") == group for each in said)


def moves_in(snapshots: Iterable[SnapshotSummary]) -> Iterator[tuple[str, str]]:
    """Yield the prefixes, old and new, of relocations."""
    for each in snapshots:
        moved = each.metadata.get(RELOCATED)
        pair = (moved.get("old"), moved.get("new")) if isinstance(moved, dict) else (None, None)
        if isinstance(pair[0], str) and isinstance(pair[1], str) and all(pair):
            yield pair[0], pair[1]


def as_build(snapshot: SnapshotSummary, group: str) -> SnapshotSummary:
    """Return a snapshot as if a build of one group had made it, which a relocation only renamed."""
    record = provenance_of(snapshot, group)
    if record is None or snapshot.metadata.get(METADATA) is record:
        return snapshot
    return replace(snapshot, metadata={**snapshot.metadata, METADATA: record})


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
    found = records_in(snapshot)
    recorded = next((each for each in found if group in (None, each.get("group"))), None)
    if recorded is None:
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
        and _are_texts(value.get("absent") or [])
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


def _are_texts_by_name(value: Any) -> bool:
    return isinstance(value, dict) and _are_texts([*value.values()])


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "arrays": _is_count,
    "bytes": lambda found: len(found) == 2 and all(map(_is_count, found)),
    "bad_files": lambda found: all(_are_texts(each) and len(each) == 3 for each in found),
    "combine": lambda found: isinstance(found, dict) and _are_choices(found),
    "born": lambda found: bool(ObjectId12.parse(found)),
    "edited": _are_texts_by_name,
    "ends": lambda found: isinstance(found, dict) and all(map(_are_texts, found.values())),
    "eras": _is_count,
    "files": _is_count,
    "groups": _are_texts,
    "held": lambda found: isinstance(found, str) and BUILD_ID.fullmatch(found) is not None,
    "kept": lambda found: isinstance(found, dict) and all(map(_are_texts, found.values())),
    "recipe": lambda found: isinstance(found, str),
    "limits": lambda found: len(found) == 2 and all(map(_is_number, found)),
    "references": _is_count,
    "stored": lambda found: isinstance(forms_of({"stored": found}), dict),
}
